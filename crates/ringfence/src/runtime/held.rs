//! The operations of guards and of the keeper on a held lock: check, extend, downgrade, renew,
//! release. Each one calls the machine and drains it (`hold.rs`).

use std::sync::Arc;
use std::time::Duration;

use crate::observation::{HoldEnd, LockKind, ObservedLock};
use crate::protocol::{ClockReading, ExtensionVerdict, HoldPolicy, Line, Lost, RoundId, Vote};
use crate::time::Timestamp;

use super::extending::Extending;
use super::hold::{DrainedBy, HeldLock, HoldState};
use super::releasing::Releasing;
use super::{lock, wait_for};

impl HeldLock {
    pub(crate) fn policy(&self) -> Arc<HoldPolicy> {
        self.look(|machine| Arc::clone(machine.policy()))
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        self.look(|machine| machine.deadline())
    }

    pub(crate) fn remaining(self: &Arc<Self>) -> Duration {
        self.feed(|machine, clock| machine.remaining(clock))
    }

    /// Whether the lock is still held. Reads the clock, so the answer is right even if the keeper's
    /// timers are late.
    pub(crate) fn check(self: &Arc<Self>) -> Result<(), Lost> {
        let mut state = lock(&self.state);
        let held = state.machine.check(self.runtime.sender.read_clock());
        // Callers may check very often. Only the end of the hold produces an output to execute.
        if held.is_err() {
            self.drain(state, DrainedBy::Caller);
        }
        held
    }

    /// Every node's vote in the latest round, in node order.
    pub(crate) fn votes(&self) -> Vec<Vote> {
        self.look(|machine| machine.votes())
    }

    pub(super) fn votes_in(&self, round: RoundId) -> Vec<Vote> {
        self.look(|machine| machine.votes_in(round))
    }

    pub(super) fn timeout_of(&self, round: RoundId) -> Option<Timestamp> {
        self.look(|machine| machine.timeout_of(round))
    }

    /// Waits for the verdict of `round`.
    pub(super) async fn concluded(&self, round: RoundId) -> ExtensionVerdict {
        loop {
            let verdict = || self.look(|machine| machine.verdict(round));
            wait_for(&self.changed, || verdict().is_some()).await;
            if let Some(verdict) = verdict() {
                return verdict;
            }
        }
    }

    pub(super) fn close_round(self: &Arc<Self>, round: RoundId) {
        self.feed(|machine, _| machine.close_round(round));
    }

    /// Completes once the lock is lost. Has its own timer besides the keeper's, so that it works
    /// even after the keeper's tokio runtime has ended.
    pub(crate) async fn lost(self: &Arc<Self>) -> Lost {
        let since = self.look(|machine| machine.since());
        loop {
            let deadline = self.deadline();
            let ended = || self.look(|machine| machine.lost()).is_some();
            tokio::select! {
                biased;
                () = wait_for(&self.changed, ended) => {}
                () = self.runtime.sender.frozen_since(since) => {}
                () = self.runtime.sender.clock.sleep_until(deadline) => {}
            }
            if let Err(why) = self.check() {
                return why;
            }
        }
    }

    /// Begins one round of extending to `ttl`.
    pub(crate) fn extend(self: &Arc<Self>, ttl: Duration) -> Extending {
        let round = self.feed(|machine, clock| machine.extend(ttl, clock.now));
        Extending::new(self, round)
    }

    /// Ends this hold and begins a shared one with the same token and ballot.
    ///
    /// `publish` gets the new hold before the old one has ended, so that the guard never finds
    /// the old one released. It must not read the old one.
    pub(crate) fn downgrade(
        self: &Arc<Self>,
        publish: impl FnOnce(&Arc<Self>),
    ) -> (Arc<Self>, Extending) {
        let (id, task) = (self.id.shared(), self.task());
        let (shared, round) = self.feed_state(|state, clock| {
            let (shared, round) = state.machine.downgrade(clock);
            self.report_end(HoldEnd::Downgraded, state, clock);
            let observed = state.observed.filter(|_| shared.lost().is_none());
            let observed = observed.map(|observed| ObservedLock {
                kind: LockKind::Read,
                ..observed
            });
            let shared = Self::with(&self.runtime, id, observed, shared, task);
            publish(&shared);
            (shared, round)
        });
        shared.feed(|_, _| ());
        let round = Extending::new(&shared, round);
        (shared, round)
    }

    /// Handles a timeout of the machine. Called by the keeper or the second line.
    pub(crate) fn time_out(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let clock = self.runtime.sender.read_clock();
        state.was_due(clock.now);
        let mut cluster = self.runtime.sender.cluster();
        state.machine.handle_timeout(clock, &mut cluster);
        drop(cluster);
        self.drain(state, DrainedBy::Keeper);
    }

    /// Begins a renewal. Called by the keeper, or by the second line, when the limit of concurrent
    /// renewals allows it.
    pub(crate) fn renew(self: &Arc<Self>, by: Line) {
        let mut state = lock(&self.state);
        let sender = &self.runtime.sender;
        let line = match by {
            Line::First if sender.second.is_open() => state.machine.next_line(),
            line => line,
        };
        let clock = sender.read_clock();
        let began = state.machine.renew(clock, line);
        state.take_turn(began);
        self.drain(state, DrainedBy::Keeper);
        if !began {
            self.runtime.renewals.finish();
        }
    }

    /// Stops renewing, before a release or a downgrade. Returns the renewal in progress, which the
    /// caller waits for.
    pub(crate) fn stop_renewing(self: &Arc<Self>) -> Option<Extending> {
        let round = self.feed(|machine, _| machine.stop_renewing());
        round.map(|round| Extending::new(self, round))
    }

    /// Begins the final release. `None` if the lease has ended already.
    pub(crate) fn release(self: &Arc<Self>) -> Option<Arc<Releasing>> {
        let release = self.feed_state(|state, clock| {
            let release = state.machine.release(clock);
            self.report_end(HoldEnd::Released, state, clock);
            release
        })?;
        self.runtime.sender.observation.releasing(&self.id);
        // Read before the release is sent: the nodes' wakes then name the waiter after this one.
        let next = self.runtime.room.next(&self.id.claims);
        let keep_until = release.keep_until;
        let releasing = Releasing::finish(&self.runtime, &self.id, release);
        if let Some(next) = next
            && keep_until.is_none()
        {
            next.wake(self.runtime.sender.clock.now(), None);
        }
        Some(releasing)
    }

    /// Whether the hold ended by its release, and not by a loss before.
    pub(crate) fn was_released_in_time(&self) -> bool {
        self.look(|machine| machine.lost()) == Some(Lost::Released)
    }

    /// Stops renewing and watching the lock without releasing it.
    pub(crate) fn stop(self: &Arc<Self>) {
        self.feed_state(|state, clock| {
            state.machine.stop(clock);
            self.report_end(HoldEnd::Left, state, clock);
        });
    }

    /// Reports how the holder ended the hold, unless it was lost before.
    fn report_end(&self, end: HoldEnd, state: &HoldState, clock: ClockReading) {
        if state.machine.lost() == Some(Lost::Released) {
            let observation = &self.runtime.sender.observation;
            let held = clock.now.since(state.machine.since());
            observation.ended(&self.id, state.observed, end, held);
        }
    }
}
