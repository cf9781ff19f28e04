//! The words that stats, metrics, events and traces share: kinds of locks, outcomes, votes, states
//! of nodes. Each word has one spelling, here.

use crate::message::{Answer, Kind, Reply};
use crate::node::{CallError, TroubleKind};
use crate::protocol::{ExtensionVerdict, Lost, Vote, VoteWord};

/// An enum whose values have a word each.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$value_meta:meta])* $value:ident = $word:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $($(#[$value_meta])* $value,)+
        }

        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$value),+];

            /// The word for it in metrics and traces.
            $vis fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What a caller takes, as the API names it.
    #[non_exhaustive]
    pub enum LockKind {
        /// [`Locks::mutex`](crate::Locks::mutex).
        Mutex = "mutex",
        /// [`Locks::multi`](crate::Locks::multi) with several names.
        Multi = "multi",
        /// A share of [`Locks::rw_lock`](crate::Locks::rw_lock).
        Read = "read",
        /// [`Locks::rw_lock`](crate::Locks::rw_lock), alone.
        Write = "write",
        /// A permit of [`Locks::semaphore`](crate::Locks::semaphore).
        Semaphore = "semaphore",
        /// The lead of [`Locks::election`](crate::Locks::election).
        Election = "election",
        /// [`Locks::plain_mutex`](crate::Locks::plain_mutex).
        Plain = "plain",
    }
}

impl LockKind {
    /// The kind of a lock that is `kind` for the nodes and covers so many `names`.
    pub(crate) fn of(kind: Kind, names: usize) -> Self {
        match kind {
            Kind::Exclusive if names > 1 => Self::Multi,
            Kind::Exclusive => Self::Mutex,
            Kind::Shared => Self::Read,
            Kind::Slot => Self::Semaphore,
            Kind::Plain => Self::Plain,
        }
    }
}

words! {
    /// How a call that takes a lock ended.
    #[non_exhaustive]
    pub enum AcquireOutcome {
        /// The lock was granted.
        Granted = "granted",
        /// Another client held it until the wait was over.
        Held = "held",
        /// No majority of the nodes answered.
        NoQuorum = "no_quorum",
        /// The votes of a majority do not count yet.
        Quarantined = "quarantined",
        /// A majority of the nodes is not fit to hold locks.
        Misconfigured = "misconfigured",
        /// It was granted too late to be worth holding.
        Expired = "expired",
        /// The nodes' clocks are too far apart.
        ClocksApart = "clocks_apart",
        /// The client was closed, or its tokio runtime ended.
        Closed = "closed",
        /// The caller dropped the future before there was an outcome.
        Dropped = "dropped",
        /// Any other failure.
        Failed = "failed",
    }
}

words! {
    /// How a renewal ended.
    #[non_exhaustive]
    pub enum RenewalOutcome {
        /// A majority of the nodes extended the lock.
        Renewed = "renewed",
        /// No majority answered. The renewal is tried again until the deadline.
        NoMajority = "no_majority",
        /// The nodes proved that the lock is lost.
        Lost = "lost",
    }
}

impl From<ExtensionVerdict> for RenewalOutcome {
    fn from(verdict: ExtensionVerdict) -> Self {
        match verdict {
            ExtensionVerdict::Extended { .. } => Self::Renewed,
            ExtensionVerdict::Unsure => Self::NoMajority,
            ExtensionVerdict::Lost => Self::Lost,
        }
    }
}

words! {
    /// Why a lock was lost.
    pub(crate) enum LossReason {
        Expired = "expired",
        Gone = "gone",
        Broken = "broken",
        MaxHold = "max_hold",
        ClockFroze = "clock_froze",
        Other = "other",
    }
}

impl From<Lost> for LossReason {
    fn from(why: Lost) -> Self {
        match why {
            Lost::Expired => Self::Expired,
            Lost::Gone => Self::Gone,
            Lost::Broken => Self::Broken,
            Lost::MaxHold => Self::MaxHold,
            Lost::ClockFroze => Self::ClockFroze,
            _ => Self::Other,
        }
    }
}

/// The word for the outcome of a call that takes or extends a lock; `None` if the answer is no vote.
pub(crate) fn vote_word(
    outcome: &Result<Reply, CallError>,
    discount: Option<&Vote>,
) -> Option<VoteWord> {
    match (outcome, discount) {
        (Ok(_), Some(discount)) => Some(discount.into()),
        (Ok(reply), None) => answer_word(&reply.answer),
        (Err(error), _) => Some(match error.trouble().kind {
            TroubleKind::Timeout => VoteWord::TimedOut,
            _ => VoteWord::Failed,
        }),
    }
}

fn answer_word(answer: &Answer) -> Option<VoteWord> {
    Some(match answer {
        Answer::Granted | Answer::Extended | Answer::Downgraded | Answer::Restored => {
            VoteWord::Granted
        }
        Answer::Held(_) => VoteWord::Held,
        Answer::Behind { .. } => VoteWord::Behind,
        Answer::TicketOld => VoteWord::TicketOld,
        Answer::Quarantined { .. } => VoteWord::Quarantined,
        Answer::Late => VoteWord::Late,
        Answer::Stale => VoteWord::Stale,
        Answer::Ahead => VoteWord::Ahead,
        Answer::Gone => VoteWord::Gone,
        Answer::Broken(_) => VoteWord::Broken,
        Answer::Permit(permit) => return answer_word(&permit.answer),
        Answer::Released
        | Answer::Newer
        | Answer::Removed { .. }
        | Answer::Turns(_)
        | Answer::Arrivals(_)
        | Answer::Views(_)
        | Answer::Listed(_) => return None,
    })
}

words! {
    /// The state of a node, as the last call to it showed it.
    #[non_exhaustive]
    pub enum NodeState {
        /// No call has ended yet.
        Unknown = "unknown",
        /// It answers, and its votes count.
        Voting = "voting",
        /// It answers, but its votes do not count yet: it was restarted, or its clock jumped.
        Quarantined = "quarantined",
        /// It does not answer.
        Silent = "silent",
        /// It is the same server as an earlier node of the list, which votes for it.
        Duplicate = "duplicate",
        /// It cannot vote until an operator changes a setting.
        Misconfigured = "misconfigured",
    }
}

impl NodeState {
    /// The state that the outcome of a call shows; `None` if it shows none.
    pub(crate) fn of<T>(outcome: &Result<T, CallError>, discount: Option<&Vote>) -> Option<Self> {
        match outcome {
            Ok(_) => match discount {
                None => Some(Self::Voting),
                Some(Vote::Quarantined { .. } | Vote::ClockJumped { .. }) => {
                    Some(Self::Quarantined)
                }
                Some(Vote::Duplicate { .. }) => Some(Self::Duplicate),
                // Passing: the next call shows what the node is now.
                Some(_) => None,
            },
            Err(CallError::NotSent(trouble) | CallError::Refused(trouble))
                if trouble.is_misconfiguration() =>
            {
                Some(Self::Misconfigured)
            }
            Err(CallError::NotSent(_) | CallError::Unknown(_)) => Some(Self::Silent),
            Err(CallError::Refused(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Trouble;

    #[test]
    fn a_call_without_an_answer_is_timed_out_or_failed() {
        let failed = |kind| Err(CallError::Unknown(Trouble::new(kind, "no")));
        let word = |kind| vote_word(&failed(kind), None);
        assert_eq!(word(TroubleKind::Timeout), Some(VoteWord::TimedOut));
        assert_eq!(word(TroubleKind::Disconnected), Some(VoteWord::Failed));
    }

    #[test]
    fn a_state_is_shown_by_the_last_call() {
        let refused = |kind| {
            let error = CallError::Refused(Trouble::new(kind, "no"));
            NodeState::of::<()>(&Err(error), None)
        };
        assert_eq!(refused(TroubleKind::Evicts), Some(NodeState::Misconfigured));
        assert_eq!(refused(TroubleKind::Other), None);
        let left = std::time::Duration::from_secs(1);
        let discount = |discount: Vote| NodeState::of(&Ok(()), Some(&discount));
        let quarantined = Some(NodeState::Quarantined);
        assert_eq!(discount(Vote::Quarantined { left }), quarantined);
        let jumped = Vote::ClockJumped { by_us: 1, left };
        assert_eq!(discount(jumped), quarantined);
        assert_eq!(discount(Vote::Moved), None);
        assert_eq!(NodeState::of(&Ok(()), None), Some(NodeState::Voting));
    }

    #[test]
    fn a_word_is_a_valid_label() {
        let words = LockKind::ALL.iter().map(|word| word.as_str());
        let words = words.chain(AcquireOutcome::ALL.iter().map(|word| word.as_str()));
        let words = words.chain(VoteWord::ALL.iter().map(|word| word.as_str()));
        for word in words {
            assert!(
                word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{word}"
            );
        }
    }
}
