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

/// See the module.
pub(super) struct GroupSearch {
    locks: Locks,
    /// The search of each node, and why it was given up in this round.
    scans: Vec<(Scan, Option<CallError>)>,
    /// When the round began.
    began: Timestamp,
    /// Until when the other nodes may go on, once a majority has been searched completely.
    give_up_at: Option<Timestamp>,
}

/// One portion of one node.
pub(super) struct FoundPortion {
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
            scans: scans.map(|_| (Scan::new(breaks, began), None)).collect(),
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
        self.scans.iter().all(|(scan, _)| scan.is_complete())
    }

    /// Begins the next round.
    pub(super) fn restart(&mut self) {
        for (scan, error) in &mut self.scans {
            scan.restart();
            *error = None;
        }
        self.began = self.locks.runtime().sender.clock.now();
        self.give_up_at = None;
    }

    /// Ends the round.
    pub(super) fn give_up(&mut self) {
        self.scans.iter_mut().for_each(|(scan, _)| scan.give_up());
    }

    pub(super) fn round_age(&self) -> Duration {
        let now = self.locks.runtime().sender.clock.now();
        now.since(self.began)
    }

    pub(super) fn nodes(&self) -> Vec<NodeSearch> {
        let nodes = self.locks.node_names().iter().zip(&self.scans);
        let nodes = nodes.map(|(node, (scan, error))| NodeSearch {
            node: node.clone(),
            done: scan.is_complete(),
            error: error.clone(),
        });
        nodes.collect()
    }

    /// Waits until a node may be searched, and searches one portion of every node that may be.
    pub(super) async fn next_portions(&mut self) -> Result<Vec<FoundPortion>, ListError> {
        self.locks.check_runtime()?;
        let sender = &self.locks.runtime().sender;
        let due = self.scans.iter();
        let due = due.filter_map(|(scan, _)| scan.poll_timeout()).min();
        if let Some(due) = due.filter(|due| *due > sender.clock.now()) {
            sender.clock.sleep_until(due).await;
        }
        let sent = sender.clock.now();
        let requests: Vec<_> = (0..)
            .zip(&self.scans)
            .filter(|(_, (scan, _))| scan.poll_timeout().is_some_and(|due| due <= sent))
            .filter_map(|(node, (scan, _))| Some((node, Arc::new(scan.poll_request()?))))
            .collect();
        let answers = sender.ask_each(&requests, sent + PATIENCE).await;
        let now = sender.clock.now();
        let mut found = Vec::new();
        for ((node, _), answer) in requests.into_iter().zip(answers) {
            let (scan, error) = &mut self.scans[node];
            let portion = answer.and_then(|reply| match reply.answer {
                Answer::Listed(portion) => Ok((portion, reply.standing.clock_us)),
                _ => Err(CallError::Unknown(Trouble::new(
                    TroubleKind::Garbage,
                    "the reply does not fit the request",
                ))),
            });
            match portion {
                Ok((portion, clock_us)) => {
                    scan.handle_portion(&portion, sent, now);
                    found.push(FoundPortion { portion, clock_us });
                }
                Err(trouble) => {
                    scan.give_up();
                    *error = Some(trouble);
                }
            }
        }
        self.check_quorum()?;
        self.leave_slow_nodes(now);
        Ok(found)
    }

    /// A lock that a majority has is found on any majority. A node that is much slower than a
    /// majority, or that pretends to have keys without end, does not keep the round from ending.
    fn leave_slow_nodes(&mut self, now: Timestamp) {
        let searched = self.scans.iter();
        let searched = searched.filter(|(scan, error)| scan.is_complete() && error.is_none());
        if searched.count() < quorum(self.scans.len()) {
            return;
        }
        let began = self.began;
        let slowest = || now + SLOWER * now.since(began) + PATIENCE;
        if now < *self.give_up_at.get_or_insert_with(slowest) {
            return;
        }
        for (scan, error) in &mut self.scans {
            if !scan.is_complete() {
                scan.give_up();
                let trouble = Trouble::new(
                    TroubleKind::Timeout,
                    "its search took much longer than that of a majority",
                );
                *error = Some(CallError::Unknown(trouble));
            }
        }
    }

    /// A lock that a majority has is found on any majority. So others need not answer.
    fn check_quorum(&self) -> Result<(), ListError> {
        let failed = self.scans.iter().filter(|(_, error)| error.is_some());
        if self.scans.len() - failed.count() >= quorum(self.scans.len()) {
            return Ok(());
        }
        let votes = self.scans.iter().map(|(_, error)| match error {
            None => Vote::Granted,
            Some(error) => Vote::Failed(error.clone()),
        });
        Err(ListError::NoQuorum {
            votes: Votes::worded("answers", self.locks.node_names(), votes),
        })
    }
}
