//! Surplus slots: what nodes store for an attempt beside the slot that it won. A node that may
//! choose the slot may grant another one, and a node that grants none keeps the attempt's ticket.
//! Both are undone as soon as they are known. A node that does not answer gets the undo at its
//! timeout.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::Reply;
use crate::node::{CallError, Deliver};
use crate::protocol::{Attempt, GrantId, Target};
use crate::time::Timestamp;

use super::acquire::AcquireRequest;
use super::releasing::{Releasing, UndoOf};
use super::schedule::{Due, ScheduleKey};
use super::sender::PendingRound;
use super::{ClientRuntime, lock};

/// Receives the replies of an attempt at a slot.
pub(crate) struct SurplusSlots {
    runtime: Arc<ClientRuntime>,
    round: Arc<PendingRound<Attempt>>,
    /// After this time a node that has not answered gets the undo.
    timeout: Timestamp,
    /// Set once the attempt has won, until every node has been examined.
    won: Mutex<Option<WonSlot>>,
}

struct WonSlot {
    /// The slots that were not won.
    id: GrantId,
    /// How long the nodes keep those slots.
    lease: Duration,
    call_timeout: Duration,
    /// Whether each node has been examined.
    examined: Vec<bool>,
    scheduled: Option<ScheduleKey>,
}

impl SurplusSlots {
    pub(crate) fn new(
        runtime: &Arc<ClientRuntime>,
        round: &Arc<PendingRound<Attempt>>,
        timeout: Timestamp,
    ) -> Self {
        Self {
            runtime: Arc::clone(runtime),
            round: Arc::clone(round),
            timeout,
            won: Mutex::new(None),
        }
    }

    /// The attempt won. Undoes `id`, which names the slots that it did not win.
    pub(crate) fn won(self: &Arc<Self>, id: GrantId, wanted: &AcquireRequest) {
        let terms = &wanted.terms;
        // `Locks::close` waits for these undos too.
        self.runtime
            .closing
            .releasing
            .fetch_add(1, Ordering::SeqCst);
        *lock(&self.won) = Some(WonSlot {
            id,
            lease: wanted.lease(),
            call_timeout: terms.call_timeout,
            examined: vec![false; terms.nodes],
            scheduled: None,
        });
        self.undo_surplus(false);
        if let Some(won) = &mut *lock(&self.won) {
            let due = Due::SurplusSlots(Arc::clone(self));
            won.scheduled = Some(self.runtime.schedule.insert(self.timeout, due));
        }
    }

    /// Handles the timeout of the nodes that have not answered.
    pub(crate) fn time_out(&self) {
        self.undo_surplus(true);
    }

    /// Undoes the known surplus slots. With `all`, also those that a node without an answer may
    /// have.
    fn undo_surplus(&self, all: bool) {
        let mut slot = lock(&self.won);
        let Some(won) = &mut *slot else { return };
        let mut targets = self.round.with(|attempt| attempt.surplus_slots());
        for (target, examined) in targets.iter_mut().zip(&mut won.examined) {
            if *examined || (*target == Target::Unknown && !all) {
                *target = Target::Nothing;
            } else {
                *examined = true;
            }
        }
        let (id, lease, call_timeout) = (won.id.clone(), won.lease, won.call_timeout);
        let over = won.examined.iter().all(|examined| *examined);
        let ended = if over { slot.take() } else { None };
        drop(slot);
        if targets.iter().any(|target| *target != Target::Nothing) {
            let of = UndoOf::Live;
            Releasing::undo(&self.runtime, &id, targets, lease, call_timeout, of);
        }
        if let Some(ended) = ended {
            if let Some(key) = ended.scheduled {
                self.runtime.schedule.remove(key);
            }
            let closing = &self.runtime.closing;
            closing.count_down(&closing.releasing);
        }
    }
}

impl Deliver<Reply> for SurplusSlots {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        self.round.deliver(tag, outcome);
        self.undo_surplus(false);
    }

    fn is_wanted(&self, tag: u64) -> bool {
        self.round.is_wanted(tag)
    }

    fn withdrawn(&self, tag: u64) {
        self.round.withdrawn(tag);
    }
}

impl fmt::Debug for SurplusSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SurplusSlots({:?})", self.round)
    }
}
