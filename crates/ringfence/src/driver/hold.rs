//! A lock that is held: its machine ([`protocol::Hold`](crate::protocol::Hold)), and the execution of what
//! that wants. No rule is decided here.
//!
//! Any thread feeds the machine. One thread at a time drains it, so that its outputs are executed in
//! the order in which they were produced; the others leave theirs to that thread. No lock is held
//! during a send, because a node may answer inside it.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::Notify;

use crate::message::{Claim, Reply, Request};
use crate::node::Deliver;
use crate::protocol::{
    Attempt, ClockReading, ExtensionVerdict, GrantId, Hold as Machine, HoldAction, HoldEvent,
    HoldPolicy, Lost, Transmit,
};
use crate::time::Timestamp;

use super::acquire::Won;
use super::extending::{RestoreReply, RoundReplies};
use super::schedule::{Due, Key};
use super::sender::PendingRound;
use super::{Driver, lock};

/// A lock that is held. There may be a hundred thousand of these: what is the same for many, or there
/// for few, is kept elsewhere.
pub(crate) struct Hold {
    pub(super) driver: Arc<Driver>,
    pub(super) id: GrantId,
    pub(super) state: Mutex<State>,
    /// The hold has ended, or a round that a caller waits for is over.
    pub(super) changed: Notify,
}

/// The machine of a hold, and what is known of how its outputs are executed.
pub(super) struct State {
    pub(super) machine: Machine,
    /// Which task took the hold.
    pub(super) taker: Taker,
    scheduled: Option<Key>,
    /// How many renewals of it count among those under way.
    turns: u16,
    /// A thread executes what the machine wants.
    draining: bool,
}

/// On whose thread a hold is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Keeper,
    Anybody,
}

/// What is to be done next.
enum Output {
    Event(HoldEvent),
    Transmit(Transmit),
}

impl State {
    pub(super) fn new(machine: Machine, taker: Taker) -> Self {
        Self {
            machine,
            taker,
            scheduled: None,
            turns: 0,
            draining: false,
        }
    }

    /// The keeper has taken the hold off the schedule, if it stood there for `now` or before.
    pub(super) fn was_due(&mut self, now: Timestamp) {
        self.scheduled = self.scheduled.filter(|key| key.at() > now);
    }

    /// A renewal counts among those under way, if it `began`.
    pub(super) fn take_turn(&mut self, began: bool) {
        self.turns += u16::from(began);
    }

    fn next_output(&mut self, clock: impl FnOnce() -> ClockReading) -> Option<Output> {
        if let Some(transmit) = self.machine.poll_transmit(clock) {
            return Some(Output::Transmit(transmit));
        }
        let event = self.machine.poll_event()?;
        if let HoldEvent::Concluded { renewal: true, .. } = event {
            self.turns -= 1;
        }
        Some(Output::Event(event))
    }
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

    pub(super) fn with(
        driver: &Arc<Driver>,
        id: GrantId,
        machine: Machine,
        taker: Taker,
    ) -> Arc<Self> {
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

    /// A node has answered the attempt that won it, after the verdict.
    pub(super) fn hear_acquire(&self, round: &PendingRound<Attempt>) {
        let mut state = lock(&self.state);
        round.with(|won| state.machine.handle_acquired(won));
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&lock(&self.state).machine)
    }

    /// Feeds the machine and executes what it wants. The clock is read under the lock, so that what was
    /// decided at a later time is never followed by a decision at an earlier one.
    pub(super) fn feed<T>(
        self: &Arc<Self>,
        feed: impl FnOnce(&mut Machine, ClockReading) -> T,
    ) -> T {
        let mut state = lock(&self.state);
        let clock = self.driver.sender.read_clock();
        let made = feed(&mut state.machine, clock);
        self.drain(state, By::Anybody);
        made
    }

    /// Executes what the machine wants, unless another thread, or a caller further up on this one, does.
    pub(super) fn drain<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, by: By) {
        if state.draining {
            return;
        }
        let mut drainer = None;
        let mut prepared = None;
        while let Some(output) = state.next_output(|| self.driver.sender.read_clock()) {
            state.draining = true;
            drop(state);
            drainer.get_or_insert_with(|| Drainer(self));
            match output {
                Output::Event(event) => self.execute(event, by),
                Output::Transmit(transmit) => self.send(transmit, &mut prepared),
            }
            state = lock(&self.state);
        }
        self.reschedule(&mut state);
        state.draining = false;
        std::mem::forget(drainer);
    }

    fn execute(self: &Arc<Self>, event: HoldEvent, by: By) {
        match event {
            HoldEvent::Concluded {
                verdict,
                renewal,
                failures,
                awaited,
                ..
            } => {
                if awaited {
                    self.changed.notify_waiters();
                }
                if verdict == ExtensionVerdict::Unsure && failures > 0 {
                    tracing::debug!(target: "ringfence", token = %self.id.token, failures, "renewal brought no majority; trying again");
                }
                if renewal {
                    self.driver.renewals.finish();
                }
            }
            HoldEvent::Ended(why) => {
                self.changed.notify_waiters();
                self.trace_end(why);
            }
            HoldEvent::RenewalDue => {
                self.driver.renewals.want(Arc::clone(self));
                // The keeper looks at the renewals right after this.
                if by != By::Keeper {
                    self.driver.schedule.nudge();
                }
            }
        }
    }

    /// A release is traced where it begins.
    fn trace_end(&self, why: Lost) {
        if why != Lost::Released {
            tracing::warn!(
                target: "ringfence",
                name = %Names(&self.id.claims),
                token = %self.id.token,
                fence = %self.id.ballot,
                why = %why,
                "lock lost"
            );
        }
    }

    /// Sends one request. The nodes of a round share one, which is `prepared` for the first of them.
    fn send(self: &Arc<Self>, transmit: Transmit, prepared: &mut Option<Prepared>) {
        let node = transmit.node;
        let same = |one: &&Prepared| {
            one.of
                == Transmit {
                    node: one.of.node,
                    ..transmit
                }
        };
        if prepared.as_ref().filter(same).is_none() {
            *prepared = Some(self.prepare(transmit));
        }
        if transmit.action == HoldAction::Restore {
            tracing::debug!(
                target: "ringfence",
                node = self.driver.sender.nodes[node].name(),
                token = %self.id.token,
                "putting the lock back on a node that lost it"
            );
        }
        if let Some(Prepared { request, to, .. }) = prepared {
            let to = Arc::clone(to);
            self.driver.sender.send(node, request, transmit.expires, to);
        }
    }

    fn prepare(self: &Arc<Self>, transmit: Transmit) -> Prepared {
        let (round, t0, hold) = (transmit.round, transmit.t0, Arc::clone(self));
        Prepared {
            of: transmit,
            request: Arc::new(transmit.request(&self.id, &self.policy().label)),
            to: match transmit.action {
                HoldAction::Restore => Arc::new(RestoreReply(hold)),
                HoldAction::Extend | HoldAction::Downgrade => {
                    Arc::new(RoundReplies { hold, round, t0 })
                }
            },
        }
    }

    /// Puts the hold on the schedule for when the machine wants to be woken.
    fn reschedule(self: &Arc<Self>, state: &mut State) {
        let at = state.machine.poll_timeout();
        if state.scheduled.map(Key::at) == at {
            return;
        }
        let schedule = &self.driver.schedule;
        if let Some(key) = state.scheduled.take() {
            schedule.remove(key);
        }
        state.scheduled = at.map(|at| schedule.insert(at, Due::Hold(Arc::clone(self))));
    }
}

/// A request that the nodes of a round share, and where their replies go.
struct Prepared {
    of: Transmit,
    request: Arc<Request>,
    to: Arc<dyn Deliver<Reply>>,
}

/// The thread that drains a hold. Dropped in a panic of a node: another thread may go on.
struct Drainer<'a>(&'a Hold);

impl Drop for Drainer<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).draining = false;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let turns = lock(&self.state).turns;
        for _ in 0..turns {
            self.driver.renewals.finish();
        }
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

/// The policy that holds of one client have in common. Most are looked after alike, and there may be a
/// hundred thousand: one for them all.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    last: Mutex<Weak<HoldPolicy>>,
}

impl Policies {
    /// `policy`, shared with the holds before if it is equal to theirs.
    fn share(&self, policy: HoldPolicy) -> Arc<HoldPolicy> {
        let mut last = lock(&self.last);
        match last.upgrade() {
            Some(known) if *known == policy => known,
            _ => {
                let policy = Arc::new(policy);
                *last = Arc::downgrade(&policy);
                policy
            }
        }
    }
}

/// Which task took a lock, or which thread where no task runs, so that a task that waits for itself can
/// be warned. Small, since every hold has one; two that are taken for the same cost a needless warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taker(u32);

impl Taker {
    /// Whoever runs now.
    pub(crate) fn current() -> Self {
        let mut hasher = DefaultHasher::new();
        match tokio::task::try_id() {
            Some(task) => (true, task).hash(&mut hasher),
            None => (false, std::thread::current().id()).hash(&mut hasher),
        }
        // Never that of nobody.
        Self(hasher.finish() as u32 | 1)
    }
}

#[cfg(test)]
mod tests;
