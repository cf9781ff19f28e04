//! The message queue: a list on a Redis server. A message is the number of a task.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

const KEY: &str = "tasks";

pub(crate) struct Queue(MultiplexedConnection);

impl Queue {
    pub(crate) async fn connect(server: &str) -> RedisResult<Self> {
        let client = redis::Client::open(server)?;
        Ok(Self(client.get_multiplexed_async_connection().await?))
    }

    pub(crate) async fn push(&mut self, task: i64) -> RedisResult<()> {
        let mut command = cmd("RPUSH");
        command.arg(KEY).arg(task).query_async(&mut self.0).await
    }

    pub(crate) async fn pop(&mut self) -> RedisResult<Option<i64>> {
        cmd("LPOP").arg(KEY).query_async(&mut self.0).await
    }

    /// How many messages wait there.
    pub(crate) async fn len(&mut self) -> RedisResult<usize> {
        cmd("LLEN").arg(KEY).query_async(&mut self.0).await
    }
}
