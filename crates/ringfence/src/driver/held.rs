//! What guards and the keeper ask of a lock that is held.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{ExtensionVerdict, HoldPolicy, Lost, RoundId, Vote};
use crate::time::Timestamp;

use super::extending::Extending;
use super::hold::{By, Hold, Names};
use super::releasing::Releasing;
use super::{lock, wait_for};

impl Hold {
    pub(crate) fn policy(&self) -> Arc<HoldPolicy> {
        self.look(|machine| Arc::clone(machine.policy()))
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        self.look(|machine| machine.deadline())
    }

    pub(crate) fn remaining(self: &Arc<Self>) -> Duration {
        self.feed(|machine, clock| machine.remaining(clock))
    }

    /// Whether it is still held. Asks the clock, not the keeper: true even if every timer is late.
    pub(crate) fn check(self: &Arc<Self>) -> Result<(), Lost> {
        let mut state = lock(&self.state);
        let held = state.machine.check(self.driver.sender.read_clock());
        // Only the end of the hold is something to tell. A caller may ask very often.
        if held.is_err() {
            self.drain(state, By::Anybody);
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

    /// Waits for what `round` comes to.
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

    /// Completes once the lock is lost. Has its own timer beside the keeper's, so that it works
    /// even where the keeper's runtime is gone.
    pub(crate) async fn lost(self: &Arc<Self>) -> Lost {
        let since = self.look(|machine| machine.since());
        loop {
            let deadline = self.deadline();
            let ended = || self.look(|machine| machine.lost()).is_some();
            tokio::select! {
                biased;
                () = wait_for(&self.changed, ended) => {}
                () = self.driver.sender.frozen_since(since) => {}
                () = self.driver.sender.clock.sleep_until(deadline) => {}
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

    /// Ends this hold and begins a shared one in its place, with the same token and ballot.
    ///
    /// `publish` gets the new hold before the old one has ended, so that a guard which is to go on with
    /// the new one never finds the old one released. It must not look at the old one.
    pub(crate) fn downgrade(
        self: &Arc<Self>,
        publish: impl FnOnce(&Arc<Self>),
    ) -> (Arc<Self>, Extending) {
        let (id, taker) = (self.id.shared(), self.taker());
        let (shared, round) = self.feed(|machine, clock| {
            let (shared, round) = machine.downgrade(clock);
            let shared = Self::with(&self.driver, id, shared, taker);
            publish(&shared);
            (shared, round)
        });
        shared.feed(|_, _| ());
        let round = Extending::new(&shared, round);
        (shared, round)
    }

    /// The keeper found this due.
    pub(crate) fn time_out(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let clock = self.driver.sender.read_clock();
        state.was_due(clock.now);
        let mut cluster = self.driver.sender.cluster();
        state.machine.handle_timeout(clock, &mut cluster);
        drop(cluster);
        self.drain(state, By::Keeper);
    }

    /// Its turn to be renewed has come.
    pub(crate) fn renew(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let clock = self.driver.sender.read_clock();
        let began = state.machine.renew(clock);
        state.take_turn(began);
        self.drain(state, By::Keeper);
        if !began {
            self.driver.renewals.finish();
        }
    }

    /// Stops the renewal, for a release or a downgrade. The one that is under way, to be waited for.
    pub(crate) fn stop_renewing(self: &Arc<Self>) -> Option<Extending> {
        let round = self.feed(|machine, _| machine.stop_renewing());
        round.map(|round| Extending::new(self, round))
    }

    /// The holder is done, or gone: begins the final release. `None` if it is too late for one.
    pub(crate) fn release(self: &Arc<Self>) -> Option<Arc<Releasing>> {
        let release = self.feed(|machine, clock| machine.release(clock))?;
        tracing::debug!(
            target: "ringfence",
            name = %Names(&self.id.claims),
            token = %self.id.token,
            fence = %self.id.ballot,
            "lock released"
        );
        // Asked before the nodes are told: what they say then is who comes after that one.
        let next = self.driver.room.next(&self.id.claims);
        let keep_until = release.keep_until;
        let releasing = Releasing::finish(&self.driver, &self.id, release);
        if let Some(next) = next
            && keep_until.is_none()
        {
            next.come(self.driver.sender.clock.now());
        }
        Some(releasing)
    }

    /// Leaves the lock behind: it is no longer looked after, and not released.
    pub(crate) fn stop(self: &Arc<Self>) {
        self.feed(|machine, clock| machine.stop(clock));
    }
}
