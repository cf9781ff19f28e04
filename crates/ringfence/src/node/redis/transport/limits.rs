//! How much one server may send. A hostile or broken server must not use up the process's memory or
//! time: the same threads handle other nodes' replies and the deadlines of locks.

use redis::{ErrorKind, RedisError};

use crate::node::TroubleKind;

/// The most bytes of one reply. Our largest replies are the parties of a latch (1,024 of 256 bytes
/// each) and a page of keys with the longest names (200 of about 2 KiB each): less than half of
/// this.
pub(crate) const REPLY_MAX_BYTES: usize = 1 << 20;
/// The most values in one reply, counted at all levels. The parties of a latch are 1,024, the names
/// of an `inspect` take 900. Small values take many times more memory than bytes on the wire.
pub(crate) const REPLY_MAX_VALUES: u64 = 16 << 10;
/// How deep a reply may be nested. `HELLO` takes four levels, our scripts take one.
pub(crate) const REPLY_MAX_DEPTH: usize = 16;
/// The longest line: numbers and statuses are short, and so is an error of an honest server.
pub(crate) const LINE_MAX_BYTES: usize = 64 << 10;
/// About how much memory the replies to one batch may take, by
/// [`memory`](super::connection::memory). The link fills a batch only to half of it, by
/// [`longest_reply`](crate::node::redis::reply::longest_reply).
pub(crate) const BATCH_MAX_MEMORY: usize = 16 << 20;
/// How many bytes of one connection are handled before other connections and timers run: about a
/// millisecond of work. An ordinary batch of replies is less than a quarter of it.
pub(crate) const TURN_BYTES: usize = 64 << 10;
/// The least that one read counts for a turn. A TLS server may send its bytes one by one.
pub(crate) const READ_COST: usize = 1 << 10;
/// What one push counts for a turn, beside its bytes: the crate `redis` parses it, and it may wake
/// a task.
pub(crate) const PUSH_COST: usize = 256;

/// A limit that a server exceeded. The connection is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Bytes of one reply.
    Bytes,
    /// Values in one reply.
    Values,
    /// Levels in one reply.
    Depth,
    /// Replies to one batch of commands.
    Batch,
    /// Messages without a request.
    Pushes,
}

impl Excess {
    const ALL: [Self; 5] = [
        Self::Bytes,
        Self::Values,
        Self::Depth,
        Self::Batch,
        Self::Pushes,
    ];

    /// The excess in `error`, if any.
    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        if error.kind() != ErrorKind::Client {
            return None;
        }
        let what = error.detail()?;
        Self::ALL.into_iter().find(|excess| excess.what() == what)
    }

    /// What the server did, as a text that follows its name.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Bytes => "sent a reply larger than 1 MiB; is this a Redis server?",
            Self::Values => "sent a reply of more than 16,384 values; is this a Redis server?",
            Self::Depth => "sent a reply of more than 16 nested levels; is this a Redis server?",
            Self::Batch => "sent replies that are far too large; is this a Redis server?",
            Self::Pushes => {
                "sent more messages than there are waiters to wake, so the connection was dropped; \
                 is this a Redis server, and who publishes on `ringfence:wake:*`?"
            }
        }
    }

    /// Too large replies mean that this is not a Redis server. But a flood of messages may end, and
    /// another client of an honest server may cause it.
    pub(crate) fn kind(self) -> TroubleKind {
        match self {
            Self::Bytes | Self::Values | Self::Depth | Self::Batch => TroubleKind::Garbage,
            Self::Pushes => TroubleKind::Disconnected,
        }
    }
}

impl From<Excess> for RedisError {
    fn from(excess: Excess) -> Self {
        let what = excess.what().to_owned();
        (ErrorKind::Client, "the server sent too much", what).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excess_is_known_again_as_an_error() {
        for excess in Excess::ALL {
            assert_eq!(Excess::of(&RedisError::from(excess)), Some(excess));
        }
        let other = (ErrorKind::Client, "the server sent too much");
        assert_eq!(Excess::of(&RedisError::from(other)), None);
    }
}
