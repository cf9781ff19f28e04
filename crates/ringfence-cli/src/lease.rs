//! The lock that a command runs under, of any kind.

use ringfence::receipt::Receipt;
use ringfence::votes::Vote;
use ringfence::{Held, Lost, ReleaseError};
use ringfence_core::time::Timestamp;

use crate::report::Report;

/// A lock that is held, and what the command sees of it.
pub(crate) struct Lease {
    held: Box<dyn Held>,
    fence: u64,
    token: String,
    slot: Option<u32>,
}

impl Lease {
    /// `slot`: if it is a permit of a semaphore.
    pub(crate) fn new(held: impl Held, receipt: &Receipt, slot: Option<u32>) -> Self {
        Self {
            fence: receipt.fence(),
            token: receipt.expose(),
            slot,
            held: Box::new(held),
        }
    }

    pub(crate) fn fence(&self) -> u64 {
        self.fence
    }

    /// The token as `extend` and `release` expect it.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The slot, if it is a permit of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        self.slot
    }

    /// The moment until which the lock is ours if no node answers any more. A renewal moves it
    /// forward.
    pub(crate) fn deadline(&self) -> Timestamp {
        self.held.exact_deadline()
    }

    pub(crate) fn check(&self) -> Result<(), Lost> {
        self.held.check()
    }

    /// Completes with the reason when the lock is lost.
    pub(crate) async fn lost(&self) -> Lost {
        self.held.lost().await
    }

    /// What each node that does not vote for this lock says, in the latest round.
    pub(crate) fn absent_nodes(&self) -> Vec<String> {
        let votes = self.held.votes();
        let absent = votes.iter().filter(|node| node.vote != Vote::Granted);
        let absent = absent.map(|node| format!("{}: {}", node.node, node.said()));
        absent.collect()
    }

    /// With `-v`, names the nodes that do not vote for this lock.
    pub(crate) fn tell_absent_nodes(&self, report: Report) {
        for node in self.absent_nodes() {
            report.tell(&format!("node {node}"));
        }
    }

    /// Why the lock was lost, for people. A broken lock names the operator and the reason.
    pub(crate) fn describe(&self, why: Lost) -> String {
        let votes = self.held.votes();
        let mut notes = votes.iter().filter_map(|node| match &node.vote {
            Vote::Broken(note) => Some(note.to_string()),
            _ => None,
        });
        match notes.next().filter(|_| why == Lost::Broken) {
            Some(note) => format!("it was {note}"),
            None => why.to_string(),
        }
    }

    pub(crate) async fn release(self) -> Result<(), ReleaseError> {
        self.held.release().await
    }
}
