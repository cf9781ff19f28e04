//! One round that extends a hold on all nodes.

use std::time::Duration;

use crate::message::{Answer, Reply};
use crate::node::CallError;
use crate::time::Timestamp;

use super::vote::count_once;
use super::{Discount, Drift, Vote, deadline, quorum};

/// One round that extends a hold on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Extension {
    t0: Timestamp,
    deadline: Timestamp,
    timeout: Timestamp,
    nodes: Vec<ExtensionNode>,
    verdict: Option<ExtensionVerdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ExtensionNode {
    vote: Vote,
    /// The server that answered; zero before the answer.
    server: u64,
    /// The node has no holder, so our token can be restored there. Or it is the only node and in
    /// quarantine, and its holder may be older than we are.
    vacant: bool,
}

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
        let unheard = ExtensionNode {
            vote: Vote::Pending,
            server: 0,
            vacant: false,
        };
        Self {
            t0,
            deadline: deadline(t0, ttl, drift),
            timeout: t0 + call_timeout,
            nodes: vec![unheard; nodes],
            verdict: None,
        }
    }

    /// When the round began, before the first send. Its deadline counts from here, however late the
    /// replies are.
    pub fn t0(&self) -> Timestamp {
        self.t0
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), unless there is a verdict.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.verdict.is_none().then_some(self.timeout)
    }

    /// The verdict, as soon as it cannot change.
    pub fn verdict(&self) -> Option<ExtensionVerdict> {
        self.verdict
    }

    /// Every node's vote so far, in node order.
    pub fn votes(&self) -> impl Iterator<Item = &Vote> + Clone {
        self.nodes.iter().map(|node| &node.vote)
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// `node`'s vote so far.
    pub fn vote(&self, node: usize) -> &Vote {
        &self.nodes[node].vote
    }

    /// Takes the outcome of the call to `node`.
    ///
    /// An answer that does not count proves neither that the lock is held nor that it is lost, even
    /// if the node has our token.
    pub fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    ) {
        let server = outcome.as_ref().map_or(0, |reply| reply.standing.server);
        let quarantined = matches!(discount, Some(Discount::Quarantined { .. }));
        let may_be_outdated = quarantined && self.nodes.len() == 1;
        let state = &mut self.nodes[node];
        state.server = server;
        state.vacant = match outcome.as_ref().map(|reply| &reply.answer) {
            Ok(Answer::Gone) => true,
            Ok(Answer::Held(_)) => may_be_outdated,
            _ => false,
        };
        state.vote = Vote::of(outcome, discount);
        count_once(
            server,
            self.nodes.iter_mut().map(|s| (s.server, &mut s.vote)),
        );
        if self.verdict.is_none() {
            self.verdict = self.tally(now);
        }
    }

    /// Time has passed. After the timeout, nodes that have not answered do not count.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if self.verdict.is_some() || now < self.timeout {
            return;
        }
        Vote::time_out(self.nodes.iter_mut().map(|node| &mut node.vote));
        self.verdict = self.tally(now);
    }

    /// The nodes that lost our token and have no other holder. The lock is restored there after the
    /// round, failed or not, unless the loss is proved. These nodes count from the next round on.
    pub fn to_restore(&self) -> impl Iterator<Item = usize> {
        let alive = self
            .verdict
            .is_some_and(|verdict| verdict != ExtensionVerdict::Lost);
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(move |(node, state)| (alive && state.vacant).then_some(node))
    }

    /// Takes the next of the nodes [`to_restore`](Self::to_restore), each once.
    pub fn take_restore(&mut self) -> Option<usize> {
        let node = self.to_restore().next()?;
        self.nodes[node].vacant = false;
        Some(node)
    }

    /// Whether every node has answered, so that nothing changes any more.
    pub fn is_complete(&self) -> bool {
        let awaited = |vote: &Vote| matches!(vote, Vote::Pending | Vote::TimedOut);
        !self.votes().any(awaited)
    }

    /// The new deadline of the hold, if a majority confirmed the round after it had failed. The
    /// late confirmation is as good as one in time, because the deadline counts from t0.
    pub fn late_deadline(&self) -> Option<Timestamp> {
        let kept = self.votes().filter(|vote| **vote == Vote::Granted);
        let confirmed = self.verdict == Some(ExtensionVerdict::Unsure)
            && kept.count() >= quorum(self.nodes.len());
        confirmed.then_some(self.deadline)
    }

    fn tally(&self, now: Timestamp) -> Option<ExtensionVerdict> {
        let nodes = self.nodes.len();
        let quorum = quorum(nodes);
        let count = |wanted: fn(&Vote) -> bool| self.votes().filter(|v| wanted(v)).count();
        let kept = count(|vote| *vote == Vote::Granted);
        let lost = count(Vote::proves_loss);
        let pending = count(|vote| *vote == Vote::Pending);
        let in_time = now < self.deadline;
        if kept >= quorum && in_time {
            return Some(ExtensionVerdict::Extended {
                deadline: self.deadline,
            });
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
    use crate::message::Standing;
    use crate::node::{Trouble, TroubleKind};

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
        let young = Discount::Quarantined { left: TTL };
        round.handle_reply(1, extended(), Some(young), late);
        let trouble = Trouble::new(TroubleKind::Disconnected, "gone");
        round.handle_reply(2, Err(CallError::Unknown(trouble)), None, late);
        assert_eq!(round.late_deadline(), None);
    }
}
