//! What nodes have of ours beside the slot of a semaphore that was won: another slot, since each
//! picks for itself when it is asked for any, or our ticket, where it gave none. It is given back as
//! soon as it is known; what a node that does not answer may have is taken back when its time is
//! over.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::Reply;
use crate::node::{CallError, Deliver};
use crate::protocol::{Attempt, GrantId, Target};
use crate::time::Timestamp;

use super::acquire::Wanted;
use super::releasing::Releasing;
use super::schedule::{Due, Key};
use super::sender::PendingRound;
use super::{Driver, lock};

/// Where the replies of an attempt at a slot go.
pub(crate) struct Strays {
    driver: Arc<Driver>,
    round: Arc<PendingRound<Attempt>>,
    /// When a node that has not answered counts as silent.
    timeout: Timestamp,
    /// Set once the attempt is won, until every node has been looked at.
    open: Mutex<Option<Open>>,
}

struct Open {
    /// The slots that were not won.
    id: GrantId,
    /// How long the nodes keep them.
    lease: Duration,
    call_timeout: Duration,
    looked_at: Vec<bool>,
    scheduled: Option<Key>,
}

impl Strays {
    pub(crate) fn new(
        driver: &Arc<Driver>,
        round: &Arc<PendingRound<Attempt>>,
        timeout: Timestamp,
    ) -> Self {
        Self {
            driver: Arc::clone(driver),
            round: Arc::clone(round),
            timeout,
            open: Mutex::new(None),
        }
    }

    /// The attempt was won: whatever is there of `id` is to be given back.
    pub(crate) fn won(self: &Arc<Self>, id: GrantId, wanted: &Wanted) {
        let terms = &wanted.terms;
        // Whoever closes the client waits for these, too.
        self.driver
            .closing
            .withdrawing
            .fetch_add(1, Ordering::SeqCst);
        *lock(&self.open) = Some(Open {
            id,
            lease: wanted.lease(),
            call_timeout: terms.call_timeout,
            looked_at: vec![false; terms.nodes],
            scheduled: None,
        });
        self.give_back(false);
        if let Some(open) = &mut *lock(&self.open) {
            let due = Due::Strays(Arc::clone(self));
            open.scheduled = Some(self.driver.schedule.insert(self.timeout, due));
        }
    }

    /// Those who have not answered have had their time.
    pub(crate) fn time_out(&self) {
        self.give_back(true);
    }

    /// Gives back what is known to be astray; with `all`, also what may be.
    fn give_back(&self, all: bool) {
        let mut slot = lock(&self.open);
        let Some(open) = &mut *slot else { return };
        let mut targets = self.round.with(|attempt| attempt.strays());
        for (target, looked_at) in targets.iter_mut().zip(&mut open.looked_at) {
            if *looked_at || (*target == Target::Unknown && !all) {
                *target = Target::Nothing;
            } else {
                *looked_at = true;
            }
        }
        let (id, lease, call_timeout) = (open.id.clone(), open.lease, open.call_timeout);
        let over = open.looked_at.iter().all(|looked_at| *looked_at);
        let closed = if over { slot.take() } else { None };
        drop(slot);
        if targets.iter().any(|target| *target != Target::Nothing) {
            Releasing::undo(&self.driver, &id, targets, lease, call_timeout, None);
        }
        if let Some(closed) = closed {
            if let Some(key) = closed.scheduled {
                self.driver.schedule.remove(key);
            }
            let closing = &self.driver.closing;
            closing.count_down(&closing.withdrawing);
        }
    }
}

impl Deliver<Reply> for Strays {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        self.round.deliver(tag, outcome);
        self.give_back(false);
    }
}

impl fmt::Debug for Strays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Strays({:?})", self.round)
    }
}
