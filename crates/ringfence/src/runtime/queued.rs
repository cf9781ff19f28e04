//! A caller in the wait queue, between two attempts: waits for a wake or a retry time, and leaves
//! the queue when the call ends. The queue itself is kept by the nodes.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::message::{Kind, Ticket};
use crate::protocol::{Attempt, Queue};
use crate::time::Timestamp;

use super::acquire::{AcquireRequest, PendingAttempt};
use super::sender::PendingRound;
use super::waiter::{Waiter, Woken};
use super::{ClientRuntime, lock};

/// The caller's position in the wait queue between two attempts. Dropping it leaves the queue.
pub(super) struct Queued<'a> {
    runtime: &'a Arc<ClientRuntime>,
    wanted: &'a AcquireRequest,
    pub(super) waiter: Option<Arc<Waiter>>,
    /// The waiter of a ticket that has left the queue. Nodes that may still have the ticket
    /// get an undo of it after the undo of the last attempt, which removes it from most of them.
    left: Option<Arc<Waiter>>,
}

impl<'a> Queued<'a> {
    pub(super) fn new(runtime: &'a Arc<ClientRuntime>, wanted: &'a AcquireRequest) -> Self {
        Self {
            runtime,
            wanted,
            waiter: None,
            left: None,
        }
    }

    /// An attempt begins. From now on the attempt keeps the ticket alive, not the refresh.
    pub(super) fn begin_attempt(&mut self, ticket: Option<&Ticket>) {
        self.forget_left();
        let Some(ticket) = ticket else { return };
        match &self.waiter {
            Some(waiter) if waiter.has(ticket) => waiter.begin(),
            _ => {
                self.leave_room();
                let claims = &self.wanted.claims;
                let queue = match self.wanted.terms.kind {
                    Kind::Slot => Queue::Slot,
                    Kind::Exclusive | Kind::Shared | Kind::Plain => Queue::Lock,
                };
                let room = &self.runtime.room;
                let waiter = room.enter(self.runtime, claims, ticket.clone(), queue);
                self.waiter = Some(waiter);
            }
        }
    }

    /// The attempt lost. `stays`: the ticket stays in the queue.
    pub(super) fn end_attempt(&mut self, stays: bool) {
        if let Some(waiter) = &self.waiter {
            waiter.end();
        }
        if !stays {
            self.leave_room();
        }
    }

    /// Waits until `at` or until a wake, but for a wake not before `wake_at`. Returns the wake,
    /// if there was one. Meanwhile the `lost` attempt is undone, in any case before the next one
    /// begins.
    pub(super) async fn wait_for_wake(
        &mut self,
        at: Timestamp,
        wake_at: Timestamp,
        lost: PendingAttempt<'_>,
    ) -> Option<Woken> {
        let (runtime, waiter) = (self.runtime, self.waiter.clone());
        let clock = &runtime.sender.clock;
        let mut wake = pin!(async {
            match &waiter {
                Some(waiter) => waiter.wait_for_wake(runtime, at, wake_at).await,
                None => {
                    runtime.schedule.sleep_until(at, clock).await;
                    None
                }
            }
        });
        let now = clock.now();
        if let Some(until) = lost.round.with(|attempt| attempt.undo_waits_until(now)) {
            tokio::select! {
                biased;
                woken = &mut wake => return woken,
                () = lost.round.answered() => {}
                () = runtime.schedule.sleep_until(until, clock) => {}
            }
        }
        drop(lost);
        self.forget_left();
        wake.await
    }

    fn leave_room(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.runtime.room.leave(&waiter);
            self.forget_left();
            self.left = Some(waiter);
        }
    }

    fn forget_left(&mut self) {
        if let Some(waiter) = self.left.take() {
            waiter.gave_up(self.runtime, self.wanted.terms.call_timeout);
        }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.leave_room();
        self.forget_left();
    }
}

impl PendingRound<Attempt> {
    /// Completes once every node has answered. May never complete.
    async fn answered(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if state.round.is_complete() {
                return Poll::Ready(());
            }
            state.last = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
