//! What one node's answer means for a round.

use std::fmt;
use std::time::Duration;

use crate::message::{Answer, Holder, Reply};
use crate::node::{CallError, Trouble, TroubleKind};

/// One node's part in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// Asked, not yet answered.
    Pending,
    /// Our token holds there.
    Granted,
    /// Somebody else holds there.
    Held(Holder),
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
    /// No answer in time.
    Silent,
    /// No answer that counts.
    Failed(CallError),
}

impl Vote {
    /// What the outcome of a call means, given how long its node is still in quarantine.
    pub(super) fn of(outcome: Result<Reply, CallError>, quarantine: Option<Duration>) -> Self {
        let answer = match outcome {
            Ok(reply) => reply.answer,
            Err(error) => return Self::Failed(error),
        };
        if let Some(left) = quarantine {
            return Self::Quarantined { left };
        }
        match answer {
            Answer::Granted | Answer::Extended | Answer::Downgraded | Answer::Restored => {
                Self::Granted
            }
            Answer::Held(holder) => Self::Held(holder),
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
            | Answer::Permit(_) => Self::Failed(CallError::Refused(Trouble::new(
                TroubleKind::Garbage,
                "the node answered something else than it was asked",
            ))),
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

    /// Whether somebody has to change a setting before this node can vote.
    pub fn is_misconfigured(&self) -> bool {
        matches!(self, Self::Failed(error) if error.trouble().is_misconfiguration())
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
            Self::Silent => f.write_str("no answer in time"),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// Whole seconds for people, rounded up: "in 0 s" helps nobody.
pub(crate) fn ceil_secs(span: Duration) -> u64 {
    span.as_millis().div_ceil(1000).max(1) as u64
}
