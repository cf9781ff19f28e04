//! The sections of `INFO` that a handshake reads, what they say about the server, and whether that
//! has changed since.

use redis::{Pipeline, Value};

use crate::ledger::birth::Incarnation;
use crate::node::{CallError, Memory, OnDisk, Role, TroubleKind};

use super::born::is_id;
use super::server::SYNC_SETTINGS;
use crate::node::redis::report::{Reporter, quote};

/// The shortest run id that is accepted.
const RUN_ID_MIN_CHARS: usize = 32;

/// The sections that a handshake reads. One that our user may not read is empty.
pub(crate) struct Sections {
    /// The run id; `None` if our user may not read it.
    pub(crate) run_id: Option<String>,
    /// Whether our user may not read what shows a restart, a failover or an eviction.
    pub(crate) unseen: bool,
    server: Info,
    pub(crate) replication: Info,
    pub(crate) memory: Info,
    /// `None` if our user may not read it.
    persistence: Option<Info>,
}

impl Sections {
    /// The answers to `INFO` for the sections server, replication, memory and persistence.
    pub(crate) fn read(answers: [Value; 4], reporter: &Reporter) -> Result<Self, CallError> {
        let garbage = || CallError::Refused(reporter.garbage());
        let info = |value: &Value| match value {
            Value::ServerError(error) => match reporter.server_error(error) {
                trouble if trouble.kind == TroubleKind::Denied => Ok(None),
                trouble => Err(CallError::Refused(trouble)),
            },
            _ => Info::read(value).map(Some).ok_or_else(garbage),
        };
        let [server, replication, memory, persistence] = &answers;
        let (server, replication) = (info(server)?, info(replication)?);
        let (memory, persistence) = (info(memory)?, info(persistence)?);
        let run_id = server
            .as_ref()
            .map(|server| run_id(server).ok_or_else(garbage));
        Ok(Self {
            run_id: run_id.transpose()?,
            unseen: server.is_none() || replication.is_none() || memory.is_none(),
            server: server.unwrap_or_default(),
            replication: replication.unwrap_or_default(),
            memory: memory.unwrap_or_default(),
            persistence,
        })
    }

    /// The server's role. One that is not known counts as a master: a replica refuses to write.
    pub(crate) fn role(&self) -> Role {
        let (server, replication) = (&self.server, &self.replication);
        match server.get("redis_mode").or(server.get("server_mode")) {
            Some("cluster") => Role::ClusterNode,
            Some("sentinel") => Role::Sentinel,
            _ if replication.get("role") == Some("slave") => {
                let master = |field| replication.get(field).filter(|value| !value.is_empty());
                Role::Replica(
                    master("master_host")
                        .zip(master("master_port"))
                        .map(|(host, port)| quote(&format!("{host}:{port}"))),
                )
            }
            _ => Role::Master,
        }
    }

    /// When the server's writes are on disk.
    pub(crate) fn on_disk(&self, sync_settings: [&Value; 2]) -> OnDisk {
        match &self.persistence {
            None => OnDisk::Unknown,
            Some(persistence) => on_disk(persistence, sync_settings),
        }
    }

    pub(crate) fn is_loading(&self) -> bool {
        let persistence = self.persistence.as_ref();
        persistence.is_some_and(|info| info.get("loading") == Some("1"))
    }

    /// Server and version, for people.
    pub(crate) fn version(&self) -> String {
        match self.server.get("valkey_version") {
            Some(version) => quote(&format!("Valkey {version}")),
            None => quote(&format!(
                "Redis {}",
                self.server
                    .get("redis_version")
                    .unwrap_or("of unknown version")
            )),
        }
    }
}

/// The run id; `None` if it is malformed. Every Redis and Valkey has one of 40 characters.
fn run_id(server: &Info) -> Option<String> {
    let run_id = server.get("run_id")?;
    (is_id(run_id) && run_id.len() >= RUN_ID_MIN_CHARS).then(|| run_id.to_owned())
}

/// A server that does not sync while it rewrites its file may lose the writes of that time.
pub(crate) fn on_disk(persistence: &Info, sync_settings: [&Value; 2]) -> OnDisk {
    let [appendfsync, not_on_rewrite] = sync_settings;
    match (setting(appendfsync), setting(not_on_rewrite)) {
        _ if persistence.get("aof_enabled") != Some("1") => OnDisk::Never,
        (Some("always"), Some("no")) => OnDisk::Always,
        (Some(_), _) => OnDisk::Later,
        (None, _) => OnDisk::Unknown,
    }
}

/// The answer to `CONFIG GET`; `None` if that is forbidden.
pub(crate) fn setting(answer: &Value) -> Option<&str> {
    let value = match answer {
        Value::Array(pair) => pair.get(1),
        Value::Map(pairs) => pairs.first().map(|(_, value)| value),
        _ => None,
    };
    match value? {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// The state of a server at its handshake that must not change. `session.rs` decides when it is
/// checked.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    /// The server's part of its birth record.
    pub(crate) server: Incarnation<String>,
    /// Whether it may evict locks.
    pub(crate) evicts: bool,
}

impl Image {
    /// The questions to the server. `CONFIG` only if durability depends on it and it is not
    /// refused.
    pub(crate) fn questions(&self, with_config: bool) -> Pipeline {
        let mut pipe = redis::pipe();
        for section in ["replication", "memory", "persistence"] {
            pipe.cmd("INFO").arg(section);
        }
        if self.server.durable && with_config {
            for setting in SYNC_SETTINGS {
                pipe.cmd("CONFIG").arg("GET").arg(setting);
            }
        }
        pipe
    }

    /// Whether the answers to [`Image::questions`] say that `CONFIG` is refused.
    pub(crate) fn refuse_config(answers: &[Value]) -> bool {
        matches!(answers.get(3), Some(Value::ServerError(_)))
    }

    /// What has changed, by the answers to [`Image::questions`]: then the handshake must be
    /// repeated.
    pub(crate) fn change(&self, answers: &[Value]) -> Option<&'static str> {
        let mut sections = answers.iter().map(Info::read);
        let mut section = || sections.next().flatten();
        let (Some(replication), Some(memory), Some(persistence)) =
            (section(), section(), section())
        else {
            return Some("does not report its state any more");
        };
        let reported = replication.replication_id();
        let known = self.server.replication_id.as_deref();
        let setting = |i| answers.get(i).unwrap_or(&Value::Nil);
        let synced = on_disk(&persistence, [setting(3), setting(4)]);
        match () {
            () if replication.get("role") == Some("slave") => Some("has become a replica"),
            () if known.is_some() && reported.is_some() && reported != known => {
                Some("has another replication id")
            }
            () if replication.has_replicas() && !self.server.replicated => {
                Some("has a replica now")
            }
            () if memory.memory().evicts() != self.evicts => {
                Some("has another maxmemory or maxmemory-policy")
            }
            () if self.server.durable && matches!(synced, OnDisk::Never | OnDisk::Later) => {
                Some("does not sync every write to its append-only file any more")
            }
            () => None,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn image() -> Image {
        Image {
            server: Incarnation {
                run_id: "ab".to_owned(),
                replication_id: Some("e1".to_owned()),
                database: 0,
                epoch: None,
                replicated: false,
                durable: true,
            },
            evicts: false,
        }
    }

    fn answers() -> Vec<Value> {
        vec![
            text("role:master\r\nconnected_slaves:0\r\nmaster_replid:e1\r\n"),
            text("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n"),
            text("aof_enabled:1\r\n"),
            Value::Array(vec![text("appendfsync"), text("always")]),
            Value::Array(vec![text("no-appendfsync-on-rewrite"), text("no")]),
        ]
    }

    #[test]
    fn a_server_that_did_not_change_is_let_be() {
        assert_eq!(image().change(&answers()), None);
        // If CONFIG is refused, INFO must suffice.
        assert_eq!(image().change(&answers()[..3]), None);
    }

    #[test]
    fn every_change_that_matters_is_noticed() {
        let everysec = Value::Array(vec![text("appendfsync"), text("everysec")]);
        for (answer, instead) in [
            (
                0,
                text("role:slave\r\nconnected_slaves:0\r\nmaster_replid:e1\r\n"),
            ),
            (
                0,
                text("role:master\r\nconnected_slaves:0\r\nmaster_replid:e2\r\n"),
            ),
            (
                0,
                text("role:master\r\nconnected_slaves:1\r\nmaster_replid:e1\r\n"),
            ),
            (1, text("maxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n")),
            (2, text("aof_enabled:0\r\n")),
            (2, Value::Nil),
            (3, everysec),
        ] {
            let mut answers = answers();
            answers[answer] = instead.clone();
            assert!(image().change(&answers).is_some(), "{instead:?}");
        }
    }

    #[test]
    fn what_is_known_already_is_no_change() {
        let mut image = image();
        (image.server.replicated, image.server.durable) = (true, false);
        let mut answers = answers();
        answers[0] = text("role:master\r\nconnected_slaves:1\r\nmaster_replid:e1\r\n");
        answers[2] = text("aof_enabled:0\r\n");
        assert_eq!(image.change(&answers), None);
    }
}
