//! The shop: hours, stock, buyers and orders on one Redis server, and three ways to sell.

use std::fmt::{self, Display};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, RedisResult, Script, cmd};
use ringfence::Locks;
use tokio::sync::Barrier;

use crate::Outcome;

// One hash tag, so that one script may use them all, also in a cluster.
const HOURS: &str = "{sale}:hours";
const STOCK: &str = "{sale}:stock";
const BUYERS: &str = "{sale}:buyers";
const ORDERS: &str = "{sale}:orders";

/// Everything in one step. The server's own clock decides whether the shop is open.
const BUY: &str = "
    local now = tonumber(redis.call('TIME')[1])
    local hours = redis.call('HMGET', KEYS[1], 'start', 'end')
    if not hours[1] or now < tonumber(hours[1]) or now >= tonumber(hours[2]) then return 0 end
    if tonumber(redis.call('GET', KEYS[2]) or 0) <= 0 then return 0 end
    if redis.call('SADD', KEYS[3], ARGV[1]) == 0 then return 0 end
    redis.call('DECR', KEYS[2])
    redis.call('RPUSH', KEYS[4], ARGV[1])
    return 1";

/// How a purchase is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Unprotected,
    Locked,
    Scripted,
}

/// When the shop is open.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hours {
    Later,
    Now,
    Over,
}

/// The answer to one request, and how often it went to a server and back.
pub(crate) struct Answer {
    pub(crate) bought: bool,
    pub(crate) trips: usize,
}

#[derive(Clone)]
pub(crate) struct Shop {
    connection: MultiplexedConnection,
    locks: Locks,
}

impl Shop {
    pub(crate) async fn connect(server: &str) -> Outcome<Self> {
        let client = redis::Client::open(server)?;
        // Fifteen hundred requests share this connection, on a machine that may be busy.
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(Self {
            connection: client
                .get_multiplexed_async_connection_with_config(&patient)
                .await?,
            locks: Locks::connect(server).await?,
        })
    }

    /// A new sale.
    pub(crate) async fn open(&self, stock: usize, hours: Hours) -> RedisResult<()> {
        let now = self.time().await?;
        let (start, end) = match hours {
            Hours::Later => (now + 3600, now + 7200),
            Hours::Now => (now - 3600, now + 3600),
            Hours::Over => (now - 7200, now - 3600),
        };
        let () = self.ask(cmd("DEL").arg(BUYERS).arg(ORDERS)).await?;
        let mut set = cmd("HSET");
        let () = self
            .ask(set.arg(HOURS).arg(&[("start", start), ("end", end)]))
            .await?;
        self.ask(cmd("SET").arg(STOCK).arg(stock)).await
    }

    /// One request of a user.
    pub(crate) async fn buy(&self, user: &str, way: Way, met: &Barrier) -> Outcome<Answer> {
        match way {
            Way::Unprotected => Ok(self.look_and_take(user, Some(met)).await?),
            Way::Locked => {
                let guard = self.locks.mutex("sale").lock().await?;
                let mut answer = guard.run(self.look_and_take(user, None)).await??;
                guard.release().await?;
                answer.trips += 2;
                Ok(answer)
            }
            Way::Scripted => {
                let script = Script::new(BUY);
                let mut call = script.key(HOURS);
                call.key(STOCK).key(BUYERS).key(ORDERS).arg(user);
                let bought = call.invoke_async(&mut self.connection.clone()).await?;
                Ok(Answer { bought, trips: 1 })
            }
        }
    }

    /// A purchase in seven commands. It is right only if nobody comes between them. A client that
    /// dies between them leaves half a purchase behind, also under a lock.
    async fn look_and_take(&self, user: &str, met: Option<&Barrier>) -> RedisResult<Answer> {
        let refused = |trips| {
            Ok(Answer {
                bought: false,
                trips,
            })
        };
        let now = self.time().await?;
        let mut hours = cmd("HMGET");
        let (start, end): (u64, u64) = self.ask(hours.arg(HOURS).arg("start").arg("end")).await?;
        if now < start || now >= end {
            return refused(2);
        }
        let stock: i64 = self.ask(cmd("GET").arg(STOCK)).await?;
        if stock <= 0 {
            return refused(3);
        }
        let known: bool = self.ask(cmd("SISMEMBER").arg(BUYERS).arg(user)).await?;
        if let Some(met) = met {
            met.wait().await;
        }
        if known {
            return refused(4);
        }
        let () = self.ask(cmd("DECR").arg(STOCK)).await?;
        let () = self.ask(cmd("SADD").arg(BUYERS).arg(user)).await?;
        let () = self.ask(cmd("RPUSH").arg(ORDERS).arg(user)).await?;
        Ok(Answer {
            bought: true,
            trips: 7,
        })
    }

    pub(crate) async fn orders(&self) -> RedisResult<usize> {
        self.ask(cmd("LLEN").arg(ORDERS)).await
    }

    pub(crate) async fn buyers(&self) -> RedisResult<usize> {
        self.ask(cmd("SCARD").arg(BUYERS)).await
    }

    pub(crate) async fn stock(&self) -> RedisResult<i64> {
        self.ask(cmd("GET").arg(STOCK)).await
    }

    pub(crate) async fn close(&self) {
        self.locks.close().await;
    }

    /// The server's clock, in seconds.
    async fn time(&self) -> RedisResult<u64> {
        let (seconds, _): (u64, u64) = self.ask(&cmd("TIME")).await?;
        Ok(seconds)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        command.query_async(&mut self.connection.clone()).await
    }
}

impl Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unprotected => "unprotected",
            Self::Locked => "lock",
            Self::Scripted => "script",
        })
    }
}

impl Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Later => "before the hours",
            Self::Now => "within the hours",
            Self::Over => "after the hours",
        })
    }
}
