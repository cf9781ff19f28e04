//! What one node's answer means for a round, and how many answers make a majority.
//!
//! One server behind two nodes has one vote. An address may be pointed to another node's server at
//! any time (DNS, a virtual IP), so every reply says which server gave it, and every round compares.
//!
//! The earlier node of the list votes for the server, the later one does not. Which reply comes first
//! does not matter: a later node's vote is taken back when the earlier node answers. As long as the
//! earlier node does not answer, the later one speaks for the server.

use std::fmt;
use std::time::Duration;

use crate::message::{Answer, Holder, Reply};
use crate::node::{CallError, Trouble, TroubleKind};

/// Why nothing that a node says counts, although it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discount {
    /// It may have forgotten locks.
    Quarantined {
        /// For how much longer.
        left: Duration,
    },
    /// Its clock jumped.
    ClockJumped {
        /// By how many microseconds at least; below zero it was set back.
        by_us: i64,
        /// For how much longer.
        left: Duration,
    },
    /// Our own clock stood still since the request was sent.
    Outdated,
    /// It is the same server as an earlier node, which votes for it.
    Duplicate {
        /// Which node, by its place in the list.
        of: usize,
    },
    /// The node became another server since the request was sent, and may have answered for the
    /// same locks as another node did before.
    Moved,
}

impl From<Discount> for Vote {
    fn from(discount: Discount) -> Self {
        match discount {
            Discount::Quarantined { left } => Self::Quarantined { left },
            Discount::ClockJumped { by_us, left } => Self::ClockJumped { by_us, left },
            Discount::Outdated => Self::Outdated,
            Discount::Duplicate { of } => Self::Duplicate { of },
            Discount::Moved => Self::Moved,
        }
    }
}

/// One node's part in a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vote {
    /// Asked, not yet answered.
    Pending,
    /// Our token holds there.
    Granted,
    /// Somebody else holds there.
    Held(Box<Holder>),
    /// Nobody holds there, but others are ahead in line.
    Behind {
        /// How many.
        ahead: u64,
        /// When they may be passed if they do not come.
        pass_in: Option<Duration>,
    },
    /// Our place in line was too old to be new.
    TicketOld,
    /// Our ballot was not above the floor there.
    Stale,
    /// Our ballot was too far above the node's clock.
    Ahead,
    /// Our token is not there, and nobody else is.
    Gone,
    /// The node may have forgotten locks, so nothing it says counts yet.
    Quarantined {
        /// For how much longer.
        left: Duration,
    },
    /// The node's clock jumped, so its locks may have expired early: nothing it says counts yet.
    ClockJumped {
        /// By how many microseconds at least; below zero it was set back.
        by_us: i64,
        /// For how much longer.
        left: Duration,
    },
    /// Our own clock stood still since the request was sent: nobody knows how old the answer is.
    Outdated,
    /// The node is the same server as an earlier one, which votes for it.
    Duplicate {
        /// Which node, by its place in the list.
        of: usize,
    },
    /// The node was restarted or its address was re-pointed since the request was sent.
    Moved,
    /// The node was born after the latch was made, so it may have forgotten who arrived.
    BornLater,
    /// No answer in time.
    Silent,
    /// No answer that counts.
    Failed(CallError),
}

impl Vote {
    /// What the outcome of a call means, given why its node's answers do not count, if so.
    pub(super) fn of(outcome: Result<Reply, CallError>, discount: Option<Discount>) -> Self {
        let answer = match outcome {
            Ok(reply) => reply.answer,
            Err(error) => return Self::Failed(error),
        };
        if let Some(discount) = discount {
            return discount.into();
        }
        match answer {
            Answer::Granted | Answer::Extended | Answer::Downgraded | Answer::Restored => {
                Self::Granted
            }
            Answer::Held(holder) => Self::Held(Box::new(holder)),
            Answer::Behind { ahead, for_ms } => Self::Behind {
                ahead,
                pass_in: for_ms.map(Duration::from_millis),
            },
            Answer::TicketOld => Self::TicketOld,
            Answer::Stale => Self::Stale,
            Answer::Ahead => Self::Ahead,
            Answer::Gone => Self::Gone,
            Answer::Released
            | Answer::Newer
            | Answer::Turns(_)
            | Answer::Views(_)
            | Answer::Arrivals(_)
            | Answer::Permit(_) => Self::Failed(CallError::Refused(Trouble::new(
                TroubleKind::Garbage,
                "the node answered something else than it was asked",
            ))),
        }
    }

    /// The nodes have had their time: those that have not answered are silent.
    pub(super) fn time_out<'a>(votes: impl Iterator<Item = &'a mut Self>) {
        for vote in votes.filter(|vote| **vote == Self::Pending) {
            *vote = Self::Silent;
        }
    }

    /// Whether the node said something about the lock, whatever it was.
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
        )
    }

    /// For how much longer nothing that the node says counts, if it answers and yet does not.
    pub(super) fn counts_in(&self) -> Option<Duration> {
        match self {
            Self::Quarantined { left } | Self::ClockJumped { left, .. } => Some(*left),
            Self::Outdated | Self::Moved => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// Whether somebody has to change a setting before this node can vote.
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
            Self::Behind { ahead, .. } => write!(f, "{ahead} ahead in line"),
            Self::TicketOld => f.write_str("refused a place in line from before its time"),
            Self::Stale => f.write_str("refused a stale ballot"),
            Self::Ahead => f.write_str("refused a ballot ahead of its clock"),
            Self::Gone => f.write_str("does not hold our token"),
            Self::Quarantined { left } => {
                write!(f, "new or restarted, may vote in {} s", ceil_secs(*left))
            }
            Self::ClockJumped { by_us, left } => write!(
                f,
                "its clock jumped {}, may vote in {} s",
                Leap(*by_us),
                ceil_secs(*left)
            ),
            Self::Outdated => {
                f.write_str("answered a question from before this machine stood still")
            }
            Self::Duplicate { of } => write!(
                f,
                "the same server as node {} of the list, which votes for it; point each address to \
                 a server of its own",
                of + 1
            ),
            Self::Moved => f.write_str("was restarted or re-pointed while it was asked"),
            Self::BornLater => {
                f.write_str("new or restarted since the latch was made, does not vote on it")
            }
            Self::Silent => f.write_str("no answer in time"),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// How far a clock jumped, for people: `forward by 1.250 s`.
pub struct Leap(pub i64);

impl fmt::Display for Leap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.0 < 0 { "back" } else { "forward" };
        let ms = self.0.unsigned_abs() / 1000;
        write!(f, "{way} by {}.{:03} s", ms / 1000, ms % 1000)
    }
}

/// Whole seconds for people, rounded up: "in 0 s" helps nobody.
pub fn ceil_secs(span: Duration) -> u64 {
    span.as_millis().div_ceil(1000).max(1) as u64
}

/// How many of `nodes` make a majority. For an even number a tie is no majority.
pub const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether two nodes are one server, by the numbers of their servers. Zero is no server.
pub(super) fn is_same(one: u64, other: u64) -> bool {
    one != 0 && one == other
}

/// A reply came from `server`: of all `nodes` of this round that it answered for, each with its server
/// and its vote, the first keeps its vote.
pub(super) fn count_once<'a>(server: u64, nodes: impl Iterator<Item = (u64, &'a mut Vote)>) {
    let nodes = nodes.enumerate();
    let mut same = nodes.filter(|(_, (other, _))| is_same(*other, server));
    if let Some((of, _)) = same.next() {
        same.for_each(|(_, (_, vote))| *vote = Vote::Duplicate { of });
    }
}

/// For each of `servers` in node order, the earlier node that is the same server, if there is one.
pub fn duplicates(servers: &[u64]) -> Vec<Option<usize>> {
    let earlier = |node: usize| {
        let mut others = servers[..node].iter();
        others.position(|&other| is_same(other, servers[node]))
    };
    (0..servers.len()).map(earlier).collect()
}
