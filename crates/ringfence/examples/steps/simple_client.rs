//! The lock that one writes by hand: a key on one server. The steps make it better, one mistake at
//! a time.

use std::error::Error;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, cmd};
use ringfence_testkit::{Server, wait_until};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Deletes the key if it has the caller's value. The server executes it in one step.
const DELETE_IF_MINE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
     return 0";

/// A client of one server.
pub(crate) struct Client(MultiplexedConnection);

impl Client {
    /// Waits for a reply without a limit: what a late reply does is what one step shows.
    pub(crate) async fn connect(url: &str) -> Result<Self, Box<dyn Error>> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url)?;
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        Ok(Self(connection.await?))
    }

    /// The first lock of every tutorial.
    pub(crate) async fn setnx(&mut self, key: &str, value: &str) -> redis::RedisResult<bool> {
        let mut command = cmd("SETNX");
        command.arg(key).arg(value).query_async(&mut self.0).await
    }

    /// The second command of [`setnx`](Self::setnx).
    pub(crate) async fn expire(&mut self, key: &str, ttl: Duration) -> redis::RedisResult<bool> {
        let mut command = cmd("PEXPIRE");
        command.arg(key).arg(millis(ttl));
        command.query_async(&mut self.0).await
    }

    /// Key and expiry in one command: `SET key value NX PX ttl`.
    pub(crate) async fn lock(
        &mut self,
        key: &str,
        value: &str,
        ttl: Duration,
    ) -> redis::RedisResult<bool> {
        let mut command = cmd("SET");
        command.arg(key).arg(value).arg("NX").arg("PX");
        command.arg(millis(ttl)).query_async(&mut self.0).await
    }

    /// Deletes the key, whoever it belongs to.
    pub(crate) async fn delete(&mut self, key: &str) -> redis::RedisResult<bool> {
        cmd("DEL").arg(key).query_async(&mut self.0).await
    }

    /// Deletes the key if it has this value.
    pub(crate) async fn unlock(&mut self, key: &str, value: &str) -> redis::RedisResult<bool> {
        let mut command = cmd("EVAL");
        command.arg(DELETE_IF_MINE).arg(1).arg(key).arg(value);
        command.query_async(&mut self.0).await
    }

    pub(crate) async fn set(&mut self, key: &str, value: &str) -> redis::RedisResult<()> {
        cmd("SET")
            .arg(key)
            .arg(value)
            .query_async(&mut self.0)
            .await
    }

    pub(crate) async fn get(&mut self, key: &str) -> redis::RedisResult<Option<String>> {
        cmd("GET").arg(key).query_async(&mut self.0).await
    }

    pub(crate) fn connection(&mut self) -> &mut MultiplexedConnection {
        &mut self.0
    }
}

/// Waits until the key has expired on the server.
pub(crate) fn until_expired(server: &Server, key: &str) {
    wait_until("the key to expire", PATIENCE, || {
        server.command(&["EXISTS", key]) == "0"
    });
}

fn millis(ttl: Duration) -> u64 {
    ttl.as_millis().try_into().unwrap_or(u64::MAX)
}
