//! One thing that happens around a failover.

use std::fmt;

use super::world::HOLDER;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailoverStep {
    /// A tick passes, for all.
    Tick,
    /// The Sentinels promote the other server. One of those that have the epoch `from` knows.
    Promote {
        /// The epoch that it had.
        from: usize,
    },
    /// A Sentinel that has the epoch `from` learns of a later one.
    Learn {
        /// The epoch that it had.
        from: usize,
        /// The epoch that it has.
        to: usize,
    },
    /// The former master learns that it is a replica.
    Demote {
        /// Which server.
        server: usize,
    },
    /// A replica copies all that its master has written.
    Replicate {
        /// Which server.
        server: usize,
    },
    /// A master is restarted.
    Restart {
        /// Which server.
        server: usize,
        /// It has its data.
        keeps: bool,
    },
    /// The Sentinels confirm a server under this epoch, and a client joins it.
    Join {
        /// Which client.
        client: usize,
        /// The epoch.
        epoch: usize,
    },
    /// The newcomer asks for the lock.
    Acquire {
        /// Which client.
        client: usize,
    },
    /// A holder asks for more time.
    Extend {
        /// Which client.
        client: usize,
    },
    /// A holder releases the lock.
    Release {
        /// Which client.
        client: usize,
    },
    /// The request of a client arrives, and the server executes it. The reply to an acquire is
    /// under way then; any other reply is read at once.
    Execute {
        /// Which client.
        client: usize,
        /// The reply is lost.
        mute: bool,
    },
    /// A client reads the reply to its acquire.
    Read {
        /// Which client.
        client: usize,
    },
    /// The reply to an acquire is lost.
    Lose {
        /// Which client.
        client: usize,
    },
}

impl fmt::Display for FailoverStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |client: usize| match client {
            HOLDER => "the holder",
            _ => "the newcomer",
        };
        let at = |server: usize| ["A", "B"][server];
        // The first epoch of a group is 1.
        let known = |epoch: usize| epoch + 1;
        match *self {
            Self::Tick => f.write_str("a tick passes"),
            Self::Promote { from } => write!(
                f,
                "the other server is promoted; a Sentinel with epoch {} knows",
                known(from)
            ),
            Self::Learn { from, to } => write!(
                f,
                "a Sentinel with epoch {} learns of epoch {}",
                known(from),
                known(to)
            ),
            Self::Demote { server } => write!(f, "{} becomes a replica", at(server)),
            Self::Replicate { server } => write!(f, "{} copies its master", at(server)),
            Self::Restart {
                server,
                keeps: true,
            } => write!(f, "{} is restarted", at(server)),
            Self::Restart {
                server,
                keeps: false,
            } => write!(f, "{} is restarted without its data", at(server)),
            Self::Join { client, epoch } => {
                let epoch = known(epoch);
                write!(f, "{} joins under epoch {epoch}", name(client))
            }
            Self::Acquire { client } => write!(f, "{} sends an acquire", name(client)),
            Self::Extend { client } => write!(f, "{} sends an extend", name(client)),
            Self::Release { client } => write!(f, "{} releases", name(client)),
            Self::Execute { client, mute } => {
                let lost = if mute { "; the reply is lost" } else { "" };
                write!(f, "the request of {} is executed{lost}", name(client))
            }
            Self::Read { client } => write!(f, "{} reads the reply", name(client)),
            Self::Lose { client } => write!(f, "the reply to {} is lost", name(client)),
        }
    }
}
