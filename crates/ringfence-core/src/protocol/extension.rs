//! One round that extends a hold on all nodes.

use std::time::Duration;

use crate::message::Answer;
use crate::time::Timestamp;

use super::round::{Purpose, Round, RoundReply};
use super::{Drift, RoundMachine, Vote, deadline};

/// One round that extends a hold on all nodes.
pub type Extension = Round<Extending>;

/// What an extension grants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extending {
    deadline: Timestamp,
}

/// Whether the node has no holder, so that our token can be restored there. Or it is the only node
/// and in quarantine, and its holder may be older than we are.
type Vacant = bool;

/// The verdict of the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExtensionVerdict {
    /// A majority extended the lease.
    Extended {
        /// The new deadline of the hold.
        deadline: Timestamp,
    },
    /// So many nodes lost our token that no majority can hold it: proof of loss.
    Lost,
    /// Too few answers. The old deadline stays, and another round may succeed.
    Unsure,
}

impl Extension {
    /// A round that begins at `t0`, which must be read before anything is sent.
    pub fn new(
        nodes: usize,
        t0: Timestamp,
        ttl: Duration,
        drift: Drift,
        call_timeout: Duration,
    ) -> Self {
        let deadline = deadline(t0, ttl, drift);
        let vacant = std::iter::repeat_n(false, nodes);
        Self::begin(Extending { deadline }, t0, t0 + call_timeout, vacant)
    }

    /// The nodes that lost our token and have no other holder. The lock is restored there after the
    /// round, failed or not, unless the loss is proved. These nodes count from the next round on.
    pub fn to_restore(&self) -> impl Iterator<Item = usize> {
        let verdict = self.verdict();
        let alive = verdict.is_some_and(|verdict| verdict != ExtensionVerdict::Lost);
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(move |(node, state)| (alive && state.note).then_some(node))
    }

    /// Takes the next of the nodes [`to_restore`](Self::to_restore), each once.
    pub fn take_restore(&mut self) -> Option<usize> {
        let node = self.to_restore().next()?;
        self.nodes[node].note = false;
        Some(node)
    }

    /// The new deadline of the hold, if a majority confirmed the round after it had failed. The
    /// late confirmation is as good as one in time, because the deadline counts from t0.
    pub fn late_deadline(&self) -> Option<Timestamp> {
        let confirmed = self.verdict() == Some(ExtensionVerdict::Unsure)
            && self.count(|vote| *vote == Vote::Granted) >= self.quorum();
        confirmed.then_some(self.purpose.deadline)
    }
}

impl Purpose for Extending {
    type Note = Vacant;
    type Verdict = ExtensionVerdict;

    /// An answer that does not count proves neither that the lock is held nor that it is lost, even
    /// if the node has our token.
    fn vote(&mut self, vacant: &mut Vacant, reply: RoundReply) -> Option<Vote> {
        let quarantined = matches!(reply.discount, Some(Vote::Quarantined { .. }));
        *vacant = match reply.outcome.as_ref().map(|reply| &reply.answer) {
            Ok(Answer::Gone) => true,
            Ok(Answer::Held(_)) => quarantined && reply.alone,
            _ => false,
        };
        Some(reply.vote())
    }

    fn tally(round: &Extension, now: Timestamp) -> Option<ExtensionVerdict> {
        let (nodes, quorum) = (round.nodes.len(), round.quorum());
        let deadline = round.purpose.deadline;
        let kept = round.count(|vote| *vote == Vote::Granted);
        let lost = round.count(Vote::proves_loss);
        let pending = round.count(|vote| *vote == Vote::Pending);
        let in_time = now < deadline;
        if kept >= quorum && in_time {
            return Some(ExtensionVerdict::Extended { deadline });
        }
        if nodes - lost < quorum {
            return Some(ExtensionVerdict::Lost);
        }
        // Dead nodes fail first. They must not end the round before the others can prove the loss.
        let may_extend = in_time && kept + pending >= quorum;
        let may_prove_loss = nodes - lost - pending < quorum;
        (!may_extend && !may_prove_loss).then_some(ExtensionVerdict::Unsure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Reply, Standing};
    use crate::node::{CallError, Trouble, TroubleKind};

    const T0: Timestamp = Timestamp::from_nanos(1_000_000_000);
    const TTL: Duration = Duration::from_secs(10);
    const TIMEOUT: Duration = Duration::from_secs(1);

    fn round() -> Extension {
        Extension::new(3, T0, TTL, Drift::default(), TIMEOUT)
    }

    fn extended() -> Result<Reply, CallError> {
        Ok(Reply {
            stamp: None,
            standing: Standing {
                incarnation: 1,
                born_us: 0,
                clock_us: 1,
                server: 0,
                replicated: false,
                epoch: None,
            },
            answer: Answer::Extended,
        })
    }

    #[test]
    fn a_majority_that_confirms_late_counts_from_t0() {
        let mut round = round();
        round.handle_timeout(T0 + TIMEOUT);
        assert_eq!(round.verdict(), Some(ExtensionVerdict::Unsure));
        let late = T0 + TIMEOUT * 2;
        round.handle_reply(0, extended(), None, late);
        assert_eq!(round.late_deadline(), None);
        round.handle_reply(2, extended(), None, late);
        assert_eq!(
            round.late_deadline(),
            Some(deadline(T0, TTL, Drift::default()))
        );
        // The verdict that the caller received does not change.
        assert_eq!(round.verdict(), Some(ExtensionVerdict::Unsure));
    }

    #[test]
    fn neither_a_quarantined_nor_a_failed_node_confirms_late() {
        let mut round = round();
        round.handle_timeout(T0 + TIMEOUT);
        let late = T0 + TIMEOUT * 2;
        round.handle_reply(0, extended(), None, late);
        let young = Vote::Quarantined { left: TTL };
        round.handle_reply(1, extended(), Some(young), late);
        let trouble = Trouble::new(TroubleKind::Disconnected, "gone");
        round.handle_reply(2, Err(CallError::Unknown(trouble)), None, late);
        assert_eq!(round.late_deadline(), None);
    }
}
