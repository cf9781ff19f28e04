//! A lock that is held: what its guard and the keeper feed to its machine
//! ([`protocol::Hold`](crate::protocol::Hold)). No rule is decided here.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::message::Claim;
use crate::protocol::{
    Attempt, ExtensionVerdict, GrantId, Hold as Machine, HoldPolicy, Lost, RoundId, Vote,
};
use crate::time::Timestamp;

use super::acquire::Won;
use super::draining::{By, State};
use super::extending::Extending;
use super::releasing::Releasing;
use super::sender::PendingRound;
use super::taker::Taker;
use super::{Driver, lock, wait_for};

/// A lock that is held. There may be a hundred thousand of these: what is the same for many, or there
/// for few, is kept elsewhere.
pub(crate) struct Hold {
    pub(super) driver: Arc<Driver>,
    pub(super) id: GrantId,
    pub(super) state: Mutex<State>,
    /// The hold has ended, or a round that a caller waits for is over.
    pub(super) changed: Notify,
}

impl Hold {
    /// Takes over an attempt that was won.
    pub(crate) fn new(driver: &Arc<Driver>, won: Won, policy: HoldPolicy) -> Arc<Self> {
        let Won {
            round,
            id,
            deadline,
        } = won;
        let (clock, policy) = (driver.sender.read_clock(), driver.policies.share(policy));
        let (kind, now) = (id.kind, clock.now);
        let machine = round.with(|won| Machine::new(won, deadline, policy, kind, now));
        let open = machine.awaits_acquire();
        let hold = Self::with(driver, id, machine, Taker::current());
        if open {
            round.left_to(&hold);
            // What came before the round knew of the hold.
            hold.hear_acquire(&round);
        }
        hold.drain(lock(&hold.state), By::Anybody);
        hold
    }

    /// A hold that was left behind and is to be extended once.
    pub(crate) fn resume(driver: &Arc<Driver>, id: GrantId, policy: HoldPolicy) -> Arc<Self> {
        let (now, policy) = (driver.sender.clock.now(), driver.policies.share(policy));
        let machine = Machine::resume(policy, driver.sender.nodes.len(), id.kind, now);
        Self::with(driver, id, machine, Taker::default())
    }

    fn with(driver: &Arc<Driver>, id: GrantId, machine: Machine, taker: Taker) -> Arc<Self> {
        Arc::new(Self {
            driver: Arc::clone(driver),
            id,
            state: Mutex::new(State::new(machine, taker)),
            changed: Notify::new(),
        })
    }

    pub(crate) fn id(&self) -> &GrantId {
        &self.id
    }

    /// Which task took it, for warnings.
    pub(super) fn taker(&self) -> Taker {
        lock(&self.state).taker
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

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

    /// A node has answered the attempt that won it, after the verdict.
    pub(super) fn hear_acquire(&self, round: &PendingRound<Attempt>) {
        let mut state = lock(&self.state);
        round.with(|won| state.machine.handle_acquired(won));
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

    pub(super) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&lock(&self.state).machine)
    }
}

/// The names that are held, for people.
pub(super) struct Names<'a>(pub(super) &'a [Claim]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, claim) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{}", claim.name)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("token", &self.id.token)
            .field("ballot", &self.id.ballot)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bench` measures what a guard takes in all; this says which change made it more.
    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn a_hundred_thousand_of_them_are_small() {
        assert!(size_of::<Hold>() <= 216, "{}", size_of::<Hold>());
        assert!(size_of::<crate::Guard>() <= 56);
        // Every node's vote is kept, until all have granted.
        assert!(size_of::<Vote>() <= 32);
    }
}
