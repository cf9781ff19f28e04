//! A lock that is held: its deadline, its renewal, and the moment it is lost.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::message::Claim;
use crate::protocol::{ExtensionVerdict, Target, Vote};
use crate::time::Timestamp;

use super::acquire::Won;
use super::care::Care;
use super::extending::{Extending, Kind};
use super::lost::Lost;
use super::renewals::Turn;
use super::schedule::{Due, Key};
use super::tally::Tally;
use super::withdraw::{Traces, Withdrawing};
use super::{Driver, lock, wait_for};

/// A lock that is held. There may be a hundred thousand of these: what is the same for many, or there
/// for few, is kept elsewhere.
pub(crate) struct Hold {
    driver: Arc<Driver>,
    traces: Traces,
    care: Arc<Care>,
    /// When the round began that won it: if our clock stood still since, nobody knows how much of
    /// its time is left.
    since: Timestamp,
    /// When `max_hold` ends it.
    end: Option<Timestamp>,
    /// Until when a release keeps it from others.
    keep_until: Option<Timestamp>,
    /// In nanoseconds of the client's clock. Never moves back.
    deadline: AtomicU64,
    state: Mutex<State>,
    lost: Notify,
}

struct State {
    phase: Phase,
    /// Made from a receipt: whether it is still inside its validity is not known here, so it is never
    /// put back on a node that lacks it.
    of_receipt: bool,
    tally: Tally,
    renewing: Option<Arc<Extending>>,
    /// When to renew next; `None` while that waits for its turn, or is under way.
    renew_at: Option<Timestamp>,
    failures: u32,
    scheduled: Option<Key>,
    /// When the last lease that was ever asked for is over: until then a release may have
    /// something to take back.
    leased_until: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Lost(Lost),
}

impl State {
    fn held(&self) -> Result<(), Lost> {
        match self.phase {
            Phase::Lost(why) => Err(why),
            Phase::Held => Ok(()),
        }
    }

    /// Ends the hold, unless it has ended for another reason.
    fn lose(&mut self, why: Lost) {
        if self.phase == Phase::Held {
            self.phase = Phase::Lost(why);
        }
    }
}

impl Hold {
    /// Takes over an attempt that was won.
    pub(crate) fn new(driver: &Arc<Driver>, won: Won, care: Care) -> Arc<Self> {
        let end = care.max_hold.map(|span| won.t0 + span);
        let deadline = end.map_or(won.deadline, |end| end.min(won.deadline));
        let renew_at = care.renew.then(|| won.t0 + care.ttl / 3);
        // The nodes' leases began after t0, at the latest now.
        let now = driver.clock.now();
        let leased_until = now + care.lease(care.ttl);
        let keep_until = (!care.hold_at_least.is_zero()).then(|| now + care.hold_at_least);
        let flight = Arc::clone(&won.flight);
        let hold = Arc::new(Self {
            driver: Arc::clone(driver),
            traces: won.traces,
            care: driver.cares.share(care),
            since: won.t0,
            end,
            keep_until,
            deadline: AtomicU64::new(deadline.as_nanos()),
            state: Mutex::new(State {
                phase: Phase::Held,
                of_receipt: false,
                tally: Tally::of(won.flight),
                renewing: None,
                renew_at,
                failures: 0,
                scheduled: None,
                leased_until,
            }),
            lost: Notify::new(),
        });
        flight.left_to(&hold);
        let mut state = lock(&hold.state);
        state.tally.hear_late();
        hold.reschedule(&mut state);
        drop(state);
        hold
    }

    /// A hold that was left behind and is to be extended once. Nobody looks after it.
    pub(crate) fn resume(driver: &Arc<Driver>, traces: Traces, care: Care) -> Arc<Self> {
        let nodes = driver.nodes.len();
        // Until the nodes have answered nobody knows; no round takes longer than this.
        let now = driver.clock.now();
        let deadline = now + care.ttl;
        Arc::new(Self {
            driver: Arc::clone(driver),
            traces,
            care: driver.cares.share(care),
            since: now,
            end: None,
            keep_until: None,
            deadline: AtomicU64::new(deadline.as_nanos()),
            state: Mutex::new(State {
                phase: Phase::Held,
                of_receipt: true,
                tally: Tally::unknown(nodes),
                renewing: None,
                renew_at: None,
                failures: 0,
                scheduled: None,
                leased_until: deadline,
            }),
            lost: Notify::new(),
        })
    }

    pub(crate) fn traces(&self) -> &Traces {
        &self.traces
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// A lease was asked for that may last until `until`.
    pub(super) fn leased_until(&self, until: Timestamp) {
        let mut state = lock(&self.state);
        state.leased_until = state.leased_until.max(until);
    }

    /// Whether our token may be put back on `node`. If so, a release counts on the restore being under
    /// way from now on: decided under the lock under which the release ends the hold, so that none is
    /// sent that the release does not know of.
    pub(super) fn begin_restore(&self, node: usize) -> bool {
        self.decide(|state, held| {
            let refused = held.is_err() || state.of_receipt;
            if !refused {
                state.tally.put_back_on(node);
            }
            !refused
        })
    }

    /// `node` has answered a restore, or it never got one.
    pub(super) fn restore_answered(&self, node: usize) {
        lock(&self.state).tally.restore_answered(node);
    }

    pub(crate) fn care(&self) -> &Care {
        &self.care
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self.check() {
            Ok(()) => self.deadline().since(self.driver.clock.now()),
            Err(_) => Duration::ZERO,
        }
    }

    /// Whether it is still held. Asks the clock, not the keeper: true even if every timer is late.
    pub(crate) fn check(&self) -> Result<(), Lost> {
        self.decide(|_, held| held)
    }

    /// Has `then` decide something about the hold as it stands, under the lock that guards its phase and
    /// moves its deadline. If its deadline has passed, it is lost from this moment on, whether a timer has
    /// run or not. All tasks that wait for the loss are woken.
    fn decide<T>(&self, then: impl FnOnce(&mut State, Result<(), Lost>) -> T) -> T {
        let mut state = lock(&self.state);
        let before = state.phase;
        if before == Phase::Held
            && let Some(why) = self.why_over(self.driver.clock.now())
        {
            state.phase = Phase::Lost(why);
        }
        let held = state.held();
        let made = then(&mut state, held);
        let lost = state.held().err().filter(|_| before == Phase::Held);
        drop(state);
        if let Some(why) = lost {
            self.lost.notify_waiters();
            self.trace_loss(why);
        }
        made
    }

    /// A release is traced where it begins.
    fn trace_loss(&self, why: Lost) {
        if why != Lost::Released {
            tracing::warn!(
                target: "ringfence",
                name = %Names(&self.traces.claims),
                token = %self.traces.token,
                fence = %self.traces.ballot,
                why = %why,
                "lock lost"
            );
        }
    }

    fn check_phase(&self) -> Result<(), Lost> {
        lock(&self.state).held()
    }

    /// Completes once the lock is lost. Has its own timer beside the keeper's, so that it works
    /// even where the keeper's runtime is gone.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            let deadline = self.deadline();
            tokio::select! {
                biased;
                () = wait_for(&self.lost, || self.check_phase().is_err()) => {}
                () = self.driver.standing_still_since(self.since) => {}
                () = self.driver.clock.sleep_until(deadline) => {}
            }
            if let Err(why) = self.check() {
                return why;
            }
        }
    }

    /// All nodes have answered the round that won it.
    pub(super) fn votes_are_in(&self) {
        lock(&self.state).tally.hear_late();
    }

    /// Every node's vote in the latest round, in node order.
    pub(crate) fn votes(&self) -> Vec<Vote> {
        lock(&self.state).tally.votes()
    }

    /// Begins one round of extending to `ttl`.
    pub(crate) fn extend(self: &Arc<Self>, ttl: Duration) -> Arc<Extending> {
        Extending::begin(self, ttl, Kind::Extend)
    }

    /// Ends this hold and begins a shared one in its place: the same token and ballot, so that
    /// nothing is given back in between. From the first send on it is a share, whatever is answered:
    /// with the replies lost, readers may be in already.
    ///
    /// `publish` gets the new hold before the old one has ended, so that a guard which is to go on with
    /// the new one never finds the old one released. It must not look at the old one.
    pub(crate) fn downgrade(
        self: &Arc<Self>,
        publish: impl FnOnce(&Arc<Self>),
    ) -> (Arc<Self>, Arc<Extending>) {
        let traces = Traces {
            claims: self.traces.claims.iter().map(Claim::shared).collect(),
            ..self.traces.clone()
        };
        let now = self.driver.clock.now();
        // Should the round be slow, it must not keep the renewal from its work.
        let renew_at = self.care.renew.then(|| now + self.care.call_timeout);
        let (shared, scheduled) = self.decide(|old, _| {
            let state = State {
                phase: old.phase,
                of_receipt: old.of_receipt,
                tally: old.tally.clone(),
                renewing: None,
                renew_at,
                failures: 0,
                scheduled: None,
                leased_until: old.leased_until,
            };
            let shared = Arc::new(Self {
                driver: Arc::clone(&self.driver),
                traces,
                care: Arc::clone(&self.care),
                since: self.since,
                end: self.end,
                // Others share it from now on: there is nothing to keep from them.
                keep_until: None,
                deadline: AtomicU64::new(self.deadline.load(Ordering::Acquire)),
                state: Mutex::new(state),
                lost: Notify::new(),
            });
            publish(&shared);
            old.renewing = None;
            old.lose(Lost::Released);
            (shared, old.scheduled.take())
        });
        if let Some(key) = scheduled {
            self.driver.schedule.remove(key);
        }
        shared.reschedule(&mut lock(&shared.state));
        let round = Extending::begin(&shared, self.care.ttl, Kind::Downgrade);
        (shared, round)
    }

    /// The keeper found this due.
    pub(crate) fn due(self: &Arc<Self>) {
        let now = self.driver.clock.now();
        let renew = self.decide(|state, held| {
            state.scheduled = None;
            if held.is_err() {
                return false;
            }
            let renew = state.renew_at.is_some_and(|at| at <= now) && state.renewing.is_none();
            if renew {
                state.renew_at = None;
            }
            // Its deadline stays on the schedule, should the renewal's turn not come.
            self.reschedule(state);
            renew
        });
        if renew {
            self.driver.renewals.want(Arc::clone(self));
        }
    }

    /// Its turn to be renewed has come; unless that is no longer wanted, a round is begun.
    pub(crate) fn renew(self: &Arc<Self>, turn: Turn) {
        let wanted = self.decide(|state, held| {
            held.is_ok() && state.renewing.is_none() && state.renew_at.is_none()
        });
        if !wanted {
            return;
        }
        let extending = Extending::begin(self, self.care.ttl, Kind::Renew(turn));
        let mut state = lock(&self.state);
        // A node that answers while it is being asked may have ended the round already.
        // And a guard that was dropped meanwhile has no use for it.
        let open = extending.flight.with(|round| round.verdict()).is_none();
        if open && state.phase == Phase::Held {
            state.renewing = Some(extending);
        }
        self.reschedule(&mut state);
    }

    /// The holder is done, or gone: stops the renewal and begins the final release. `None` if it is
    /// too late for one: with a lock delay, who comes after its deadline is one of those from whom
    /// the delay protects the others.
    pub(crate) fn release(self: &Arc<Self>) -> Option<Arc<Withdrawing>> {
        let targets = self.stop();
        let late = self.why_over(self.driver.clock.now()).is_some();
        if !self.care.delay.is_zero() && late {
            return None;
        }
        tracing::debug!(
            target: "ringfence",
            name = %Names(&self.traces.claims),
            token = %self.traces.token,
            fence = %self.traces.ballot,
            "lock released"
        );
        // A lease that is on its way still counts from when it arrives, which is what the TTL is
        // for; one that was extended further lasts longer.
        let leased_until = lock(&self.state).leased_until;
        let left = leased_until.since(self.driver.clock.now());
        // Asked before the nodes are told: what they say then is who comes after that one.
        let next = self.driver.room.next(&self.traces.claims);
        let release = Withdrawing::begin_keeping(
            &self.driver,
            &self.traces,
            targets,
            left.max(self.care.lease(self.care.ttl)),
            self.care.call_timeout,
            self.keep_until,
            !late,
        );
        if let Some(next) = next
            && self.keep_until.is_none()
        {
            next.come(self.driver.clock.now());
        }
        Some(release)
    }

    /// Stops looking after it and tells what the nodes may have of it. Whoever waits for the loss
    /// is told that it was released.
    pub(crate) fn stop(&self) -> Vec<Target> {
        let (targets, scheduled) = self.decide(|state, _| {
            state.renewing = None;
            state.lose(Lost::Released);
            (state.tally.targets(), state.scheduled.take())
        });
        if let Some(key) = scheduled {
            self.driver.schedule.remove(key);
        }
        targets
    }

    /// The renewal under way, for a release that wants to join it first.
    pub(crate) fn renewing(&self) -> Option<Arc<Extending>> {
        let mut state = lock(&self.state);
        state.renew_at = None;
        state.renewing.clone()
    }

    /// Takes what a round of extending came to. Applied only if the deadline has not passed by now:
    /// who was told of its loss, or should have been, stays lost. If the deadline moved all the same,
    /// another holder may have come in between; and a release would come in time again, and cut the
    /// lock delay that protects others from just such a holder.
    pub(super) fn conclude(
        self: &Arc<Self>,
        verdict: ExtensionVerdict,
        votes: Vec<Vote>,
        t0: Timestamp,
    ) {
        self.decide(|state, held| {
            state.tally.take(votes);
            if held.is_err() {
                return;
            }
            match verdict {
                ExtensionVerdict::Extended { deadline } => self.move_deadline(deadline),
                ExtensionVerdict::Lost => state.lose(Lost::Gone),
                ExtensionVerdict::Unsure => {}
            }
            if state.phase == Phase::Held && self.care.renew {
                self.plan_renewal(state, verdict, t0);
            }
        });
    }

    /// Plans the next renewal after a round that came to `verdict`.
    fn plan_renewal(self: &Arc<Self>, state: &mut State, verdict: ExtensionVerdict, t0: Timestamp) {
        let now = self.driver.clock.now();
        if verdict == ExtensionVerdict::Unsure {
            state.failures += 1;
            tracing::debug!(target: "ringfence", token = %self.traces.token, failures = state.failures, "renewal brought no majority; trying again");
            let pause = self.care.pause(state.failures, self.deadline().since(now));
            state.renew_at = Some(now + pause);
        } else {
            state.failures = 0;
            state.renew_at = Some(self.care.renewal_after(t0, now));
        }
        self.reschedule(state);
    }

    /// Moves the deadline on, as [`conclude`](Self::conclude) does, for a caller that may have been
    /// woken before it: what it is told and what the hold counts on are then the same.
    pub(crate) fn extended_until(&self, deadline: Timestamp) -> Result<(), Lost> {
        self.decide(|_, held| held.map(|()| self.move_deadline(deadline)))
    }

    /// Under the state's lock, of a hold that has not ended. Never back: an earlier, longer extension
    /// still stands on the nodes.
    fn move_deadline(&self, deadline: Timestamp) {
        let deadline = self.end.map_or(deadline, |end| end.min(deadline));
        self.deadline
            .fetch_max(deadline.as_nanos(), Ordering::AcqRel);
    }

    /// An answer that came after its round was over: better than none.
    pub(super) fn hear_late_vote(&self, node: usize, vote: Vote) {
        lock(&self.state).tally.take_late(node, vote);
    }

    /// A round that had been given up was confirmed late. On a busy machine every round may be: if
    /// they did not count, a lock that all nodes hold would be lost.
    pub(super) fn conclude_late(self: &Arc<Self>, deadline: Timestamp, t0: Timestamp) {
        self.decide(|state, held| {
            if held.is_err() {
                return;
            }
            self.move_deadline(deadline);
            if state.renew_at.is_some() {
                state.failures = 0;
                let now = self.driver.clock.now();
                state.renew_at = Some(self.care.renewal_after(t0, now));
                self.reschedule(state);
            }
        });
    }

    pub(super) fn renewal_over(&self, of: &Extending) {
        let mut state = lock(&self.state);
        let same = |one: &Arc<Extending>| std::ptr::eq(&raw const **one, of);
        if state.renewing.as_ref().is_some_and(same) {
            state.renewing = None;
        }
    }

    /// Why it is over at `now`, if it is.
    fn why_over(&self, now: Timestamp) -> Option<Lost> {
        if self.driver.stood_still_since(self.since) {
            return Some(Lost::ClockStoodStill);
        }
        match self.end {
            _ if now < self.deadline() => None,
            Some(end) if end <= now && end <= self.deadline() => Some(Lost::MaxHold),
            _ => Some(Lost::Expired),
        }
    }

    /// Puts the hold on the schedule for whatever comes first.
    fn reschedule(self: &Arc<Self>, state: &mut State) {
        if let Some(key) = state.scheduled.take() {
            self.driver.schedule.remove(key);
        }
        if state.phase != Phase::Held {
            return;
        }
        let mut at = self.deadline();
        if let Some(renewing) = &state.renewing
            && let Some(timeout) = renewing.flight.with(|round| round.poll_timeout())
        {
            at = at.min(timeout);
        }
        if let Some(renew_at) = state.renew_at
            && state.renewing.is_none()
        {
            at = at.min(renew_at);
        }
        let due = Due::Hold(Arc::clone(self));
        state.scheduled = Some(self.driver.schedule.insert(at, due));
    }

    /// The renewal that is to be timed out, if any.
    pub(crate) fn overdue(&self) -> Option<Arc<Extending>> {
        let now = self.driver.clock.now();
        let state = lock(&self.state);
        let renewing = state.renewing.as_ref()?;
        let timeout = renewing.flight.with(|round| round.poll_timeout())?;
        (timeout <= now).then(|| Arc::clone(renewing))
    }
}

/// The names that are held, for people.
struct Names<'a>(&'a [Claim]);

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
            .field("token", &self.traces.token)
            .field("ballot", &self.traces.ballot)
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
