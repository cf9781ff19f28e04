//! What one node's answer means for a round, and how many answers are a majority.
//!
//! A server behind two nodes has one vote. An address may be redirected to the server of another
//! node at any time (DNS, a virtual IP). So every reply names the server that sent it, and every
//! round compares the servers.
//!
//! The earlier node of the list votes for the server; the later one does not. The order of the
//! replies does not matter: the later node loses its vote when the earlier node answers. As long as
//! the earlier node does not answer, the later one votes for the server.

use std::fmt;
use std::time::Duration;

use crate::message::{Answer, BreakNote, Holder, Reply};
use crate::node::{CallError, Trouble, TroubleKind};

/// Why the answers of a node do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discount {
    /// The node may have lost locks.
    Quarantined {
        /// The remaining time without a vote.
        left: Duration,
    },
    /// The node's clock jumped.
    ClockJumped {
        /// The size of the jump in microseconds, at least; negative if the clock was set back.
        by_us: i64,
        /// The remaining time without a vote.
        left: Duration,
    },
    /// Our own clock froze since the request was sent.
    Outdated,
    /// The node is the same server as an earlier node, which votes for it.
    Duplicate {
        /// The index of the earlier node.
        of: usize,
    },
    /// The node became another server since the request was sent. Its answer may be about the same
    /// locks as an earlier answer of another node.
    Moved,
    /// Not enough Sentinels have lately confirmed that the node is the master.
    Unconfirmed,
}

impl From<Discount> for Vote {
    fn from(discount: Discount) -> Self {
        match discount {
            Discount::Quarantined { left } => Self::Quarantined { left },
            Discount::ClockJumped { by_us, left } => Self::ClockJumped { by_us, left },
            Discount::Outdated => Self::Outdated,
            Discount::Duplicate { of } => Self::Duplicate { of },
            Discount::Moved => Self::Moved,
            Discount::Unconfirmed => Self::Unconfirmed,
        }
    }
}

/// The vote of one node in a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vote {
    /// The request was sent; there is no answer yet.
    Pending,
    /// The node holds our token.
    Granted,
    /// Another client holds the lock there.
    Held(Box<Holder>),
    /// The lock is free there, but other waiters are ahead in the queue.
    Behind {
        /// The number of waiters ahead.
        ahead: u64,
        /// When we may pass them if they do not acquire.
        pass_in: Option<Duration>,
    },
    /// The node refused our ticket: it claims to be new but is too old.
    TicketOld,
    /// Our ballot was not above the floor there.
    Stale,
    /// Our ballot was too far above the node's clock.
    Ahead,
    /// The node does not hold our token, and no other holder is in conflict.
    Gone,
    /// An operator broke our hold.
    Broken(Box<BreakNote>),
    /// The node may have lost locks, so its answers do not count yet.
    Quarantined {
        /// The remaining time without a vote.
        left: Duration,
    },
    /// The node's clock jumped, so its locks may have expired early. Its answers do not count yet.
    ClockJumped {
        /// The size of the jump in microseconds, at least; negative if the clock was set back.
        by_us: i64,
        /// The remaining time without a vote.
        left: Duration,
    },
    /// Our own clock froze since the request was sent, so the age of the answer is unknown.
    Outdated,
    /// The node is the same server as an earlier node, which votes for it.
    Duplicate {
        /// The index of the earlier node.
        of: usize,
    },
    /// The node was restarted, or its address was redirected, since the request was sent.
    Moved,
    /// Not enough Sentinels have lately confirmed that the node is the master.
    Unconfirmed,
    /// The request arrived too late, and the node did not execute it.
    Late,
    /// The node was born after the latch was created, so it may have lost arrivals.
    BornLater,
    /// No answer before the timeout.
    TimedOut,
    /// The call failed.
    Failed(CallError),
}

impl Vote {
    /// The vote for the outcome of a call. `discount`: why the answers of the node do not count.
    pub(super) fn of(outcome: Result<Reply, CallError>, discount: Option<Discount>) -> Self {
        let answer = match outcome {
            Ok(reply) => reply.answer,
            Err(error) => return Self::Failed(error),
        };
        if let Some(discount) = discount {
            return discount.into();
        }
        match answer {
            Answer::Granted
            | Answer::Extended
            | Answer::Downgraded
            | Answer::Restored
            | Answer::Removed { .. } => Self::Granted,
            Answer::Held(holder) => Self::Held(Box::new(holder)),
            Answer::Behind { ahead, for_ms } => Self::Behind {
                ahead,
                pass_in: for_ms.map(Duration::from_millis),
            },
            Answer::TicketOld => Self::TicketOld,
            Answer::Quarantined { left_ms } => Self::Quarantined {
                left: Duration::from_millis(left_ms),
            },
            Answer::Late => Self::Late,
            Answer::Stale => Self::Stale,
            Answer::Ahead => Self::Ahead,
            Answer::Gone => Self::Gone,
            Answer::Broken(note) => Self::Broken(note),
            Answer::Released
            | Answer::Newer
            | Answer::Turns(_)
            | Answer::Views(_)
            | Answer::Listed(_)
            | Answer::Arrivals(_)
            | Answer::Permit(_) => Self::Failed(CallError::Refused(Trouble::new(
                TroubleKind::Garbage,
                "the reply does not fit the request",
            ))),
        }
    }

    /// The timeout has passed: marks every node without an answer.
    pub(super) fn time_out<'a>(votes: impl Iterator<Item = &'a mut Self>) {
        for vote in votes.filter(|vote| **vote == Self::Pending) {
            *vote = Self::TimedOut;
        }
    }

    /// Whether the node answered about the lock, and the answer counts.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Granted
                | Self::Held(_)
                | Self::Behind { .. }
                | Self::TicketOld
                | Self::Stale
                | Self::Ahead
                | Self::Gone
                | Self::Broken(_)
        )
    }

    /// Whether the node answered that it does not hold our token.
    pub(super) fn proves_loss(&self) -> bool {
        matches!(self, Self::Gone | Self::Held(_) | Self::Broken(_))
    }

    /// When the answers of the node count again, if they do not count now for a limited time.
    pub(super) fn votes_in(&self) -> Option<Duration> {
        match self {
            Self::Quarantined { left } | Self::ClockJumped { left, .. } => Some(*left),
            Self::Outdated | Self::Moved | Self::Late => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Whether an operator has to change a setting before this node can vote.
    pub fn is_misconfigured(&self) -> bool {
        match self {
            Self::Duplicate { .. } => true,
            Self::Failed(error) => error.trouble().is_misconfiguration(),
            _ => false,
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("not yet answered"),
            Self::Granted => f.write_str("granted"),
            Self::Held(holder) => fmt::Display::fmt(holder, f),
            Self::Behind { ahead, .. } => write!(f, "{ahead} ahead in the wait queue"),
            Self::TicketOld => f.write_str("refused a new ticket that is too old"),
            Self::Stale => f.write_str("refused a stale ballot"),
            Self::Ahead => f.write_str("refused a ballot ahead of its clock"),
            Self::Gone => f.write_str("does not hold our token"),
            Self::Broken(note) => fmt::Display::fmt(note, f),
            Self::Quarantined { left } => {
                write!(f, "new or restarted, may vote in {} s", ceil_secs(*left))
            }
            Self::ClockJumped { by_us, left } => write!(
                f,
                "its clock jumped {}, may vote in {} s",
                ClockJump(*by_us),
                ceil_secs(*left)
            ),
            Self::Outdated => f.write_str("answered a request from before a freeze of our clock"),
            Self::Duplicate { of } => write!(
                f,
                "the same server as node {} of the list, which votes for it; point each address to \
                 a server of its own",
                of + 1
            ),
            Self::Moved => f.write_str("was restarted or redirected during the call"),
            Self::Unconfirmed => f.write_str(
                "a majority of its Sentinels has not confirmed lately that it is the master",
            ),
            Self::Late => f.write_str("refused a request that arrived too late"),
            Self::BornLater => {
                f.write_str("new or restarted since the latch was made, does not vote on it")
            }
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// The size of a clock jump as text: `forward by 1.250 s`.
pub struct ClockJump(pub i64);

impl fmt::Display for ClockJump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.0 < 0 { "back" } else { "forward" };
        let ms = self.0.unsigned_abs() / 1000;
        write!(f, "{way} by {}.{:03} s", ms / 1000, ms % 1000)
    }
}

/// Whole seconds, rounded up and at least 1, because "in 0 s" would not help the reader.
pub fn ceil_secs(span: Duration) -> u64 {
    span.as_millis().div_ceil(1000).max(1) as u64
}

/// How many of `nodes` nodes are a majority. For an even number, half is not enough.
pub const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether two server numbers are the same server. Zero means unknown and equals no server.
pub(super) fn is_same_server(one: u64, other: u64) -> bool {
    one != 0 && one == other
}

/// Counts a server once. `nodes` are all nodes of the round in order, each with its server and its
/// vote. The first node that is `server` keeps its vote; the later ones become duplicates.
pub(super) fn count_once<'a>(server: u64, nodes: impl Iterator<Item = (u64, &'a mut Vote)>) {
    let nodes = nodes.enumerate();
    let mut same = nodes.filter(|(_, (other, _))| is_same_server(*other, server));
    if let Some((of, _)) = same.next() {
        same.for_each(|(_, (_, vote))| *vote = Vote::Duplicate { of });
    }
}

/// For each of `servers` in node order, the earlier node that is the same server, if there is one.
pub fn duplicates(servers: &[u64]) -> Vec<Option<usize>> {
    let earlier = |node: usize| {
        let mut others = servers[..node].iter();
        others.position(|&other| is_same_server(other, servers[node]))
    };
    (0..servers.len()).map(earlier).collect()
}
