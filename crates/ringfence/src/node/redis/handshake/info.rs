//! One section of the answer to `INFO`.

use redis::Value;

use crate::node::Memory;
use crate::node::redis::report::quote;

use super::born::is_id;

/// One section of `INFO`: lines of `name:value`. The default is a section that our user may not
/// read.
#[derive(Default)]
pub(crate) struct Info(String);

impl Info {
    /// The answer to `INFO`; `None` if it is malformed.
    pub(crate) fn read(answer: &Value) -> Option<Self> {
        match answer {
            Value::BulkString(text) => Some(Self(String::from_utf8_lossy(text).into_owned())),
            Value::VerbatimString { text, .. } => Some(Self(text.clone())),
            _ => None,
        }
    }

    pub(crate) fn replication_id(&self) -> Option<&str> {
        self.get("master_replid").filter(|id| is_id(id))
    }

    /// Whether the server has replicas, or does not report whether it has.
    pub(crate) fn has_replicas(&self) -> bool {
        self.get("connected_slaves") != Some("0")
    }

    pub(crate) fn memory(&self) -> Memory {
        let used_bytes = self.number("used_memory");
        Memory {
            used_bytes,
            counted_bytes: used_bytes.saturating_sub(self.number("mem_not_counted_for_evict")),
            max_bytes: self.number("maxmemory"),
            policy: quote(self.get("maxmemory_policy").unwrap_or("noeviction")),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found == name).then(|| value.trim_end())
        })
    }

    /// Zero if the field is missing or not a number.
    fn number(&self, name: &str) -> u64 {
        self.get(name)
            .and_then(|value| value.parse().ok())
            .unwrap_or_default()
    }
}
