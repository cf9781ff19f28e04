//! The resources that the locks protect: lists on a server without faults, each in two copies. One
//! copy checks fences, the other accepts every write. A write appends an entry with the value that
//! its writer had seen, so the list shows the order of the writes, and which of them were made
//! without having seen the last one.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisError, RedisResult, Script};
use ringfence::resource::Refused;
use ringfence::resource::redis::{FENCED, FencedKey};
use ringfence_testkit::Server;

/// How long the server of the resources may take on a busy machine. It has no faults.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the resources.
#[derive(Clone)]
pub(super) struct Store {
    connection: MultiplexedConnection,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

/// A write that a resource accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) op: u64,
    pub(super) fence: u64,
    /// The value that the writer had read.
    pub(super) saw: u64,
    /// The value that it wrote.
    pub(super) wrote: u64,
    /// When it was sent.
    pub(super) sent_us: u64,
}

/// Why a resource did not do a read or a write.
#[derive(Debug)]
pub(super) enum StoreError {
    Refused,
    Broken(RedisError),
}

impl Store {
    pub(super) async fn connect(url: &str) -> RedisResult<Self> {
        let client = redis::Client::open(url)?;
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        let connection = connection.await?;
        Ok(Self { connection })
    }

    /// The value of the fenced copy of `name`, read under `fence`.
    pub(super) async fn read_fenced(&mut self, name: &str, fence: u64) -> Result<u64, StoreError> {
        let call = FencedKey::new(fenced(name)).read(fence, ["LINDEX", "-1"]);
        let last: Option<String> = self.call(&call).await?;
        Ok(value(last.as_deref()))
    }

    /// Writes to the fenced copy of `name`.
    pub(super) async fn write_fenced(
        &mut self,
        name: &str,
        entry: Entry,
    ) -> Result<(), StoreError> {
        let words = ["RPUSH".to_owned(), entry.to_string()];
        let call = FencedKey::new(fenced(name)).write(entry.fence, words);
        self.call::<i64>(&call).await.map(drop)
    }

    /// The value of the copy of `name` that does not check fences.
    pub(super) async fn read(&mut self, name: &str) -> RedisResult<u64> {
        let mut command = redis::cmd("LINDEX");
        command.arg(unfenced(name)).arg(-1);
        let last: Option<String> = command.query_async(&mut self.connection).await?;
        Ok(value(last.as_deref()))
    }

    /// Writes to the copy of `name` that does not check fences.
    pub(super) async fn write(&mut self, name: &str, entry: Entry) -> RedisResult<()> {
        let mut command = redis::cmd("RPUSH");
        command.arg(unfenced(name)).arg(entry.to_string());
        command.query_async(&mut self.connection).await
    }

    async fn call<T: redis::FromRedisValue>(
        &mut self,
        call: &ringfence::resource::redis::FencedCall,
    ) -> Result<T, StoreError> {
        let script = Script::new(FENCED);
        let mut invocation = script.key(call.keys());
        invocation.arg(call.args());
        let done: RedisResult<T> = invocation.invoke_async(&mut self.connection).await;
        done.map_err(|error| match Refused::in_message(&error.to_string()) {
            Some(_) => StoreError::Refused,
            None => StoreError::Broken(error),
        })
    }
}

/// The writes that a copy of `resource` on `server` accepted, in order. `checks`: of the copy that
/// checks fences.
pub(super) fn writes(server: &Server, resource: &str, checks: bool) -> Vec<Entry> {
    let key = match checks {
        true => fenced(resource),
        false => unfenced(resource),
    };
    let entries = server.command(&["LRANGE", &key, "0", "-1"]);
    entries.lines().filter_map(Entry::parse).collect()
}

/// The key of the copy that checks fences.
fn fenced(name: &str) -> String {
    format!("fenced:{name}")
}

/// The key of the copy that does not check fences.
fn unfenced(name: &str) -> String {
    format!("unfenced:{name}")
}

fn value(last: Option<&str>) -> u64 {
    last.and_then(Entry::parse).map_or(0, |entry| entry.wrote)
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op,
            fence,
            saw,
            wrote,
            sent_us,
        } = self;
        write!(f, "{op} {fence} {saw} {wrote} {sent_us}")
    }
}

impl Entry {
    /// Reads what `Display` wrote.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self {
            op: next()?,
            fence: next()?,
            saw: next()?,
            wrote: next()?,
            sent_us: next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back() {
        let entry = Entry {
            op: 1,
            fence: 2,
            saw: 3,
            wrote: 4,
            sent_us: 5,
        };
        assert_eq!(Entry::parse(&entry.to_string()), Some(entry));
        assert_eq!(Entry::parse("1 2 3"), None);
    }
}
