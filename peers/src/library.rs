//! The lock clients, and the properties of each.

use std::fmt;
use std::process::Command;

use crate::toolchain::{Missing, Toolchain};

/// A lock client, by the name that its users know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Library {
    /// ringfence with its defaults.
    Ringfence,
    /// ringfence's `plain_mutex`: no fence, no wait queue.
    RingfencePlain,
    /// rslock (Rust).
    Rslock,
    /// redsync with go-redis (Go).
    Redsync,
    /// bsm/redislock (Go), one node.
    Redislock,
    /// redlock 5 with ioredis (Node).
    Redlock,
    /// redlock 4, the version that npm installs by default (Node).
    Redlock4,
    /// redlock-py (Python).
    RedlockPy,
    /// pottery (Python).
    Pottery,
    /// aioredlock (Python).
    Aioredlock,
    /// redis-py's own `Lock` (Python), one node.
    RedisPy,
    /// python-redis-lock (Python), one node.
    PythonRedisLock,
    /// Redisson's `RLock` (Java), one node.
    RedissonLock,
    /// Redisson's `FairLock` (Java), one node.
    RedissonFairLock,
    /// Redisson's `FencedLock` (Java), one node.
    RedissonFencedLock,
    /// Redisson's `RedissonRedLock` (Java).
    RedissonRedLock,
}

impl Library {
    /// The name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ringfence => "ringfence",
            Self::RingfencePlain => "ringfence plain",
            Self::Rslock => "rslock",
            Self::Redsync => "redsync",
            Self::Redislock => "bsm/redislock",
            Self::Redlock => "node-redlock 5",
            Self::Redlock4 => "node-redlock 4",
            Self::RedlockPy => "redlock-py",
            Self::Pottery => "pottery",
            Self::Aioredlock => "aioredlock",
            Self::RedisPy => "redis-py Lock",
            Self::PythonRedisLock => "python-redis-lock",
            Self::RedissonLock => "Redisson RLock",
            Self::RedissonFairLock => "Redisson FairLock",
            Self::RedissonFencedLock => "Redisson FencedLock",
            Self::RedissonRedLock => "Redisson RedLock",
        }
    }

    /// Whether it locks on one node only.
    pub fn is_single(self) -> bool {
        matches!(
            self,
            Self::Redislock
                | Self::RedisPy
                | Self::PythonRedisLock
                | Self::RedissonLock
                | Self::RedissonFairLock
                | Self::RedissonFencedLock
        )
    }

    /// Its name in the arguments of its program.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Ringfence => "ringfence",
            Self::RingfencePlain => "ringfence-plain",
            Self::Rslock => "rslock",
            Self::Redsync => "redsync",
            Self::Redislock => "redislock",
            Self::Redlock => "redlock",
            Self::Redlock4 => "redlock-4",
            Self::RedlockPy => "redlock-py",
            Self::Pottery => "pottery",
            Self::Aioredlock => "aioredlock",
            Self::RedisPy => "redis-py",
            Self::PythonRedisLock => "python-redis-lock",
            Self::RedissonLock => "rlock",
            Self::RedissonFairLock => "fair",
            Self::RedissonFencedLock => "fenced",
            Self::RedissonRedLock => "redlock",
        }
    }

    /// The command that runs `source`, a program in this client's language that may import the
    /// client.
    ///
    /// # Errors
    ///
    /// [`Missing`] if the language's toolchain, or a package that it would install, is not
    /// available.
    pub fn snippet(self, source: &str) -> Result<Command, Missing> {
        self.toolchain().snippet(source)
    }

    pub(crate) fn toolchain(self) -> Toolchain {
        match self {
            Self::Ringfence | Self::RingfencePlain | Self::Rslock => Toolchain::Rust,
            Self::Redsync | Self::Redislock => Toolchain::Go,
            Self::Redlock | Self::Redlock4 => Toolchain::Node,
            Self::RedlockPy
            | Self::Pottery
            | Self::Aioredlock
            | Self::RedisPy
            | Self::PythonRedisLock => Toolchain::Python,
            Self::RedissonLock
            | Self::RedissonFairLock
            | Self::RedissonFencedLock
            | Self::RedissonRedLock => Toolchain::Java,
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
