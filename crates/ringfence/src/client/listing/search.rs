//! The search of all nodes, one portion of each at a time. The rule for the pace is
//! [`Scan`](crate::protocol::Scan).

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Portion};
use crate::node::{CallError, Trouble, TroubleKind};
use crate::protocol::{Scan, Vote, quorum};
use crate::time::Timestamp;

use super::super::Locks;
use super::super::error::ListError;
use super::super::votes::Votes;
use super::NodeSearch;

/// How long a node may take for one portion.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many times longer than a majority a node may take.
const SLOWER: u32 = 4;

/// The most names of one node in a round, and the most bytes of them. A hostile node could list names
/// without end.
const NAMES_MAX: usize = 100_000;
const NAMES_MAX_BYTES: usize = 8 << 20;
/// The most broken holds of one node.
const BREAKS_MAX: usize = 100_000;

/// See the module.
pub(super) struct GroupSearch {
    locks: Locks,
    scans: Vec<NodeScan>,
    /// When the round began.
    began: Timestamp,
    /// Until when the other nodes may go on, once a majority has been searched completely.
    give_up_at: Option<Timestamp>,
}

/// The search of one node.
struct NodeScan {
    scan: Scan,
    /// Why it was given up in this round.
    error: Option<CallError>,
    /// Why the node does not vote, as of its last answer in this round.
    discount: Option<Vote>,
    /// How many names, or broken holds, it was the first to have in this round, and their bytes.
    taken: usize,
    taken_bytes: usize,
    /// Whether it was not searched to its end because it has more of them.
    is_cut: bool,
}

impl NodeScan {
    fn new(breaks: bool, now: Timestamp) -> Self {
        Self {
            scan: Scan::new(breaks, now),
            error: None,
            discount: None,
            taken: 0,
            taken_bytes: 0,
            is_cut: false,
        }
    }

    fn restart(&mut self) {
        self.scan.restart();
        (self.error, self.discount) = (None, None);
        (self.taken, self.taken_bytes, self.is_cut) = (0, 0, false);
    }
}

/// One portion of one node.
pub(super) struct FoundPortion {
    pub(super) node: usize,
    pub(super) portion: Portion,
    /// The node's clock when it answered.
    pub(super) clock_us: u64,
}

impl GroupSearch {
    pub(super) fn new(locks: Locks, breaks: bool) -> Self {
        let sender = &locks.runtime().sender;
        let began = sender.clock.now();
        let scans = sender.nodes.iter();
        Self {
            scans: scans.map(|_| NodeScan::new(breaks, began)).collect(),
            began,
            give_up_at: None,
            locks,
        }
    }

    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Whether the round is over.
    pub(super) fn is_complete(&self) -> bool {
        self.scans.iter().all(|one| one.scan.is_complete())
    }

    /// Begins the next round.
    pub(super) fn restart(&mut self) {
        self.scans.iter_mut().for_each(NodeScan::restart);
        self.began = self.locks.runtime().sender.clock.now();
        self.give_up_at = None;
    }

    /// Ends the round.
    pub(super) fn give_up(&mut self) {
        self.scans.iter_mut().for_each(|one| one.scan.give_up());
    }

    pub(super) fn round_age(&self) -> Duration {
        let now = self.locks.runtime().sender.clock.now();
        now.since(self.began)
    }

    pub(super) fn nodes(&self) -> Vec<NodeSearch> {
        let nodes = self.locks.node_names().iter().zip(&self.scans);
        let nodes = nodes.map(|(node, one)| NodeSearch {
            node: node.clone(),
            done: one.scan.is_complete(),
            error: one.error.clone(),
            discount: one.discount.clone(),
            cut_after: one.is_cut.then_some(one.taken),
        });
        nodes.collect()
    }

    /// Whether a name of `bytes` that no node has had yet may be taken from `node`. If not, the node
    /// is not searched any further in this round.
    pub(super) fn takes(&mut self, node: usize, bytes: usize) -> bool {
        let one = &mut self.scans[node];
        let (names, bytes) = (one.taken + 1, one.taken_bytes + bytes);
        if one.is_cut || names > NAMES_MAX || bytes > NAMES_MAX_BYTES {
            one.is_cut = true;
            one.scan.give_up();
            return false;
        }
        (one.taken, one.taken_bytes) = (names, bytes);
        true
    }

    /// As [`takes`](Self::takes), for a broken hold. A node with too many of them does not count.
    pub(super) fn takes_break(&mut self, node: usize) -> bool {
        let one = &mut self.scans[node];
        one.taken += 1;
        if one.taken > BREAKS_MAX {
            one.scan.give_up();
            let what = format!("lists more than {BREAKS_MAX} broken holds");
            one.error = Some(CallError::Unknown(Trouble::new(TroubleKind::Garbage, what)));
        }
        one.taken <= BREAKS_MAX
    }

    /// Which nodes have answered in this round so far.
    pub(super) fn searched(&self) -> Vec<bool> {
        let scans = self.scans.iter();
        scans.map(|one| one.error.is_none()).collect()
    }

    /// Waits until a node may be searched, and searches one portion of every node that may be.
    pub(super) async fn next_portions(&mut self) -> Result<Vec<FoundPortion>, ListError> {
        self.locks.check_runtime()?;
        let sender = &self.locks.runtime().sender;
        let due = self.scans.iter();
        let due = due.filter_map(|one| one.scan.poll_timeout()).min();
        if let Some(due) = due.filter(|due| *due > sender.clock.now()) {
            sender.clock.sleep_until(due).await;
        }
        let sent = sender.clock.now();
        let requests: Vec<_> = (0..)
            .zip(&self.scans)
            .filter(|(_, one)| one.scan.poll_timeout().is_some_and(|due| due <= sent))
            .filter_map(|(node, one)| Some((node, Arc::new(one.scan.poll_request()?))))
            .collect();
        let answers = sender.ask_each(&requests, sent + PATIENCE).await;
        let now = sender.clock.now();
        let mut found = Vec::new();
        for ((node, _), answer) in requests.into_iter().zip(answers) {
            let NodeScan {
                scan,
                error,
                discount,
                ..
            } = &mut self.scans[node];
            let portion = answer.and_then(|reply| match reply.answer {
                Answer::Listed(portion) => Ok((portion, reply.standing)),
                _ => Err(CallError::Unknown(Trouble::new(
                    TroubleKind::Garbage,
                    "the reply does not fit the request",
                ))),
            });
            match portion {
                Ok((portion, standing)) => {
                    *discount = sender.cluster().discount(node, standing, sent, now);
                    scan.handle_portion(&portion, sent, now);
                    let clock_us = standing.clock_us;
                    found.push(FoundPortion {
                        node,
                        portion,
                        clock_us,
                    });
                }
                Err(trouble) => {
                    scan.give_up();
                    *error = Some(trouble);
                }
            }
        }
        if !self.searched().contains(&true) {
            return Err(self.no_quorum());
        }
        self.leave_slow_nodes(now);
        Ok(found)
    }

    /// A lock that a majority has is found on any majority. A node that is much slower than a
    /// majority, or that pretends to have keys without end, does not keep the round from ending.
    fn leave_slow_nodes(&mut self, now: Timestamp) {
        let searched = self.scans.iter();
        let searched = searched.filter(|one| one.scan.is_complete() && one.error.is_none());
        if searched.count() < quorum(self.scans.len()) {
            return;
        }
        let began = self.began;
        let slowest = || now + SLOWER * now.since(began) + PATIENCE;
        if now < *self.give_up_at.get_or_insert_with(slowest) {
            return;
        }
        for one in &mut self.scans {
            if !one.scan.is_complete() {
                one.scan.give_up();
                let trouble = Trouble::new(
                    TroubleKind::Timeout,
                    "its search took much longer than that of a majority",
                );
                one.error = Some(CallError::Unknown(trouble));
            }
        }
    }

    /// Fails unless a majority of the nodes was searched so far. What a majority has is found on any
    /// majority, so others need not answer.
    pub(super) fn check_quorum(&self) -> Result<(), ListError> {
        let searched = self.searched().into_iter().filter(|searched| *searched);
        match searched.count() >= quorum(self.scans.len()) {
            true => Ok(()),
            false => Err(self.no_quorum()),
        }
    }

    fn no_quorum(&self) -> ListError {
        let votes = self.scans.iter().map(|one| match &one.error {
            None => Vote::Granted,
            Some(error) => Vote::Failed(error.clone()),
        });
        ListError::NoQuorum {
            votes: Votes::worded("answers", self.locks.node_names(), votes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_that_has_too_many_names_is_not_searched_any_further_in_this_round() {
        for (bytes, most) in [(20, NAMES_MAX), (1_000, NAMES_MAX_BYTES / 1_000)] {
            let locks = Locks::connect("memory:").await.unwrap();
            let mut search = GroupSearch::new(locks, false);
            let taken = (0..2 * NAMES_MAX).take_while(|_| search.takes(0, bytes));
            assert_eq!(taken.count(), most);
            assert!(search.is_complete() && !search.takes(0, 1));
            assert_eq!(search.nodes()[0].cut_after, Some(most));
            search.restart();
            assert!(search.takes(0, bytes) && !search.is_complete());
            assert_eq!(search.nodes()[0].cut_after, None);
        }
    }

    #[tokio::test]
    async fn a_node_with_too_many_broken_holds_does_not_count() {
        let locks = Locks::connect("memory:").await.unwrap();
        let mut search = GroupSearch::new(locks, true);
        let taken = (0..2 * BREAKS_MAX).take_while(|_| search.takes_break(0));
        assert_eq!(taken.count(), BREAKS_MAX);
        let error = search.check_quorum().unwrap_err().to_string();
        assert!(
            error.contains("lists more than 100000 broken holds"),
            "{error}"
        );
    }
}
