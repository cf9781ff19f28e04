//! A caller in the wait queue, between two attempts.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::message::{Kind, Place};
use crate::protocol::{Attempt, Queue};
use crate::time::Timestamp;

use super::acquire::{PendingAttempt, Wanted};
use super::sender::PendingRound;
use super::waiter::{Waiter, Woken};
use super::{Driver, lock};

/// The caller's place in the wait queue between two attempts. Dropped, it is given up.
pub(super) struct Queued<'a> {
    driver: &'a Arc<Driver>,
    wanted: &'a Wanted,
    pub(super) waiter: Option<Arc<Waiter>>,
    /// Who waited at a place that is given up. Its ticket is to be forgotten once the undo of the last
    /// attempt has been sent, which tells most nodes.
    left: Option<Arc<Waiter>>,
}

impl<'a> Queued<'a> {
    pub(super) fn new(driver: &'a Arc<Driver>, wanted: &'a Wanted) -> Self {
        Self {
            driver,
            wanted,
            waiter: None,
            left: None,
        }
    }

    /// An attempt begins: from now on it answers for the place.
    pub(super) fn step_up(&mut self, place: Option<&Place>) {
        self.forget_left();
        let Some(place) = place else { return };
        match &self.waiter {
            Some(waiter) if waiter.is_at(place) => waiter.begin(),
            _ => {
                self.leave_room();
                let claims = &self.wanted.claims;
                let queue = match self.wanted.terms.kind {
                    Kind::Slot => Queue::Slot,
                    Kind::Exclusive | Kind::Shared | Kind::Plain => Queue::Lock,
                };
                let room = &self.driver.room;
                let waiter = room.enter(self.driver, claims, place.clone(), queue);
                self.waiter = Some(waiter);
            }
        }
    }

    /// The attempt was lost.
    pub(super) fn step_back(&mut self, stays: bool) {
        if let Some(waiter) = &self.waiter {
            waiter.end();
        }
        if !stays {
            self.leave_room();
        }
    }

    /// Waits until `at`, or until woken, but then not before `wake_at`: by which wake, if it was one.
    /// What the attempt before has left is taken back meanwhile, and in any case before the next.
    pub(super) async fn turn(
        &mut self,
        at: Timestamp,
        wake_at: Timestamp,
        lost: PendingAttempt<'_>,
    ) -> Option<Woken> {
        let (clock, waiter) = (&self.driver.sender.clock, self.waiter.clone());
        let mut turn = pin!(async {
            match &waiter {
                Some(waiter) => waiter.turn(clock, at, wake_at).await,
                None => {
                    clock.sleep_until(at).await;
                    None
                }
            }
        });
        let now = clock.now();
        if let Some(until) = lost.round.with(|attempt| attempt.undo_waits_until(now)) {
            tokio::select! {
                biased;
                woken = &mut turn => return woken,
                () = lost.round.answered() => {}
                () = clock.sleep_until(until) => {}
            }
        }
        drop(lost);
        self.forget_left();
        turn.await
    }

    fn leave_room(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.driver.room.leave(&waiter);
            self.forget_left();
            self.left = Some(waiter);
        }
    }

    fn forget_left(&mut self) {
        if let Some(waiter) = self.left.take() {
            waiter.gave_up(self.driver, self.wanted.terms.call_timeout);
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
    /// Completes once every node has answered, which may be never.
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
