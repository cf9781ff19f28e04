//! A held lock: its machine ([`protocol::Hold`](crate::protocol::Hold)) behind a mutex, and the
//! execution of the machine's outputs. No rule is decided here.
//!
//! Any thread may feed the machine. One thread at a time drains it, so that its outputs are
//! executed in the order in which they were produced; other threads leave their outputs to that
//! thread. No lock is held during a send, because a node may answer inside it.

mod sending;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::Notify;

use crate::message::{Claim, Mode};
use crate::observation::ObservedLock;
use crate::protocol::{
    Attempt, ClockReading, ExtensionVerdict, GrantId, Hold as Machine, HoldEvent, HoldPolicy, Lost,
    Transmit,
};
use crate::time::Timestamp;

use super::acquire::WonAttempt;
use super::schedule::ScheduleKey;
use super::sender::PendingRound;
use super::{ClientRuntime, lock};

/// A held lock. There may be a hundred thousand, so it is small: equal policies are shared, and
/// rarely used state is allocated only when needed.
pub(crate) struct HeldLock {
    pub(super) runtime: Arc<ClientRuntime>,
    pub(super) id: GrantId,
    pub(super) state: Mutex<HoldState>,
    /// Notified when the hold has ended, or a round that a caller waits for has its verdict.
    pub(super) changed: Notify,
}

/// The machine of a hold, and the progress of executing its outputs.
pub(super) struct HoldState {
    pub(super) machine: Machine,
    /// The task that acquired the lock.
    pub(super) task: HolderTask,
    scheduled: Option<ScheduleKey>,
    /// `None` for the hold of a receipt, which another process holds. Here it fills a gap: beside
    /// the mutex it would make every hold larger by eight bytes.
    pub(super) observed: Option<ObservedLock>,
    /// How many renewals of this hold count towards the client's limit.
    turns: u8,
    /// A thread is executing the machine's outputs.
    draining: bool,
}

/// Which thread drains a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainedBy {
    /// The keeper or the second line.
    Keeper,
    Caller,
}

/// One output of the machine.
enum Output {
    Event(HoldEvent),
    Transmit(Transmit),
}

impl HoldState {
    pub(super) fn new(machine: Machine, task: HolderTask, observed: Option<ObservedLock>) -> Self {
        Self {
            machine,
            task,
            scheduled: None,
            observed,
            turns: 0,
            draining: false,
        }
    }

    /// The keeper has removed the hold from the schedule if it was due by `now`.
    pub(super) fn was_due(&mut self, now: Timestamp) {
        self.scheduled = self.scheduled.filter(|key| key.at() > now);
    }

    /// Counts a renewal towards the client's limit, if it `began`.
    pub(super) fn take_turn(&mut self, began: bool) {
        self.turns += u8::from(began);
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

impl HeldLock {
    /// Makes a hold of an attempt that won. Also returns the present time.
    pub(crate) fn new(
        runtime: &Arc<ClientRuntime>,
        won: WonAttempt,
        policy: HoldPolicy,
        observed: ObservedLock,
    ) -> (Arc<Self>, Timestamp) {
        let WonAttempt {
            round,
            id,
            deadline,
        } = won;
        let (clock, policy) = (runtime.sender.read_clock(), runtime.policies.share(policy));
        let (kind, now) = (id.kind, clock.now);
        let machine = round.with(|won| Machine::new(won, deadline, policy, kind, now));
        let awaits_replies = machine.awaits_acquire();
        let hold = Self::with(runtime, id, Some(observed), machine, HolderTask::current());
        if awaits_replies {
            round.set_hold(&hold);
            // Replies that arrived before `set_hold`.
            hold.observe_acquire(&round);
        }
        hold.drain(lock(&hold.state), DrainedBy::Caller);
        (hold, now)
    }

    /// The hold of a receipt, to be extended once.
    pub(crate) fn resume(
        runtime: &Arc<ClientRuntime>,
        id: GrantId,
        policy: HoldPolicy,
    ) -> Arc<Self> {
        let (now, policy) = (runtime.sender.clock.now(), runtime.policies.share(policy));
        let machine = Machine::resume(policy, runtime.sender.nodes.len(), id.kind, now);
        Self::with(runtime, id, None, machine, HolderTask::default())
    }

    pub(super) fn with(
        runtime: &Arc<ClientRuntime>,
        id: GrantId,
        observed: Option<ObservedLock>,
        machine: Machine,
        task: HolderTask,
    ) -> Arc<Self> {
        if let Some(observed) = observed {
            runtime.sender.observation.held(observed);
        }
        Arc::new(Self {
            runtime: Arc::clone(runtime),
            id,
            state: Mutex::new(HoldState::new(machine, task, observed)),
            changed: Notify::new(),
        })
    }

    pub(crate) fn id(&self) -> &GrantId {
        &self.id
    }

    /// The task that acquired the lock, for the log.
    pub(super) fn task(&self) -> HolderTask {
        lock(&self.state).task
    }

    /// When `max_hold` ends the hold.
    pub(crate) fn max_hold(&self) -> Option<Timestamp> {
        self.look(Machine::max_hold)
    }

    /// Whether the hold is one of `runtime` and keeps others from one of `claims`.
    pub(crate) fn excludes(&self, runtime: &Arc<ClientRuntime>, claims: &[Claim]) -> bool {
        let clash = |a: &Claim, b: &Claim| {
            a.name == b.name && (a.mode, b.mode) != (Mode::Shared, Mode::Shared)
        };
        let ours = &self.id.claims;
        Arc::ptr_eq(&self.runtime, runtime)
            && ours.iter().any(|a| claims.iter().any(|b| clash(a, b)))
    }

    /// Handles a reply to the winning attempt that arrived after the verdict.
    pub(super) fn observe_acquire(&self, round: &PendingRound<Attempt>) {
        let mut state = lock(&self.state);
        round.with(|won| state.machine.handle_acquired(won));
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&lock(&self.state).machine)
    }

    /// Feeds the machine and executes its outputs. The clock is read under the mutex, so that the
    /// machine never sees time go backwards.
    pub(super) fn feed<T>(
        self: &Arc<Self>,
        feed: impl FnOnce(&mut Machine, ClockReading) -> T,
    ) -> T {
        self.feed_state(|state, clock| feed(&mut state.machine, clock))
    }

    /// Like [`feed`](Self::feed), for what also needs to know how the lock is observed.
    pub(super) fn feed_state<T>(
        self: &Arc<Self>,
        feed: impl FnOnce(&mut HoldState, ClockReading) -> T,
    ) -> T {
        let mut state = lock(&self.state);
        let clock = self.runtime.sender.read_clock();
        let made = feed(&mut state, clock);
        self.drain(state, DrainedBy::Caller);
        made
    }

    /// Executes the machine's outputs, unless another thread, or an outer call on this thread,
    /// does it already.
    pub(super) fn drain<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, HoldState>,
        by: DrainedBy,
    ) {
        if state.draining {
            return;
        }
        let (mut drainer, mut shared, mut renewed) = (None, None, false);
        while let Some(output) = state.next_output(|| self.runtime.sender.read_clock()) {
            state.draining = true;
            drop(state);
            drainer.get_or_insert_with(|| Drainer(self));
            match output {
                Output::Event(event) => {
                    renewed |= matches!(event, HoldEvent::Concluded { renewal: true, .. });
                    self.execute(event, by);
                }
                Output::Transmit(transmit) => self.send(transmit, &mut shared),
            }
            state = lock(&self.state);
        }
        self.reschedule(&mut state);
        if renewed {
            self.runtime.schedule.postpone();
        }
        state.draining = false;
        std::mem::forget(drainer);
    }

    fn execute(self: &Arc<Self>, event: HoldEvent, by: DrainedBy) {
        match event {
            HoldEvent::Concluded {
                verdict,
                renewal,
                failures,
                awaited,
                silent,
                ..
            } => {
                if awaited {
                    self.changed.notify_waiters();
                }
                if verdict == ExtensionVerdict::Unsure && failures > 0 {
                    tracing::debug!(
                        target: "ringfence",
                        token = %self.id.token,
                        failures,
                        "renewal got no majority; retrying"
                    );
                }
                if renewal && silent && verdict == ExtensionVerdict::Unsure {
                    // The connections may be stuck although the keeper runs. The retry goes over
                    // others.
                    self.runtime.schedule.want_second();
                }
                if renewal {
                    let observed = lock(&self.state).observed;
                    let observation = &self.runtime.sender.observation;
                    observation.renewed(&self.id, observed, verdict);
                    self.runtime.renewals.finish();
                }
            }
            HoldEvent::Ended(why) => {
                self.changed.notify_waiters();
                // A release is reported where it begins.
                if why != Lost::Released {
                    let sender = &self.runtime.sender;
                    let state = lock(&self.state);
                    let (since, observed) = (state.machine.since(), state.observed);
                    drop(state);
                    let held = sender.clock.now().since(since);
                    sender.observation.lost(&self.id, observed, why, held);
                }
            }
            HoldEvent::RenewalDue => {
                let now = self.runtime.sender.clock.now();
                self.runtime.renewals.want(Arc::clone(self), now);
                // The keeper begins waiting renewals right after it drained the holds.
                if by != DrainedBy::Keeper {
                    self.runtime.schedule.nudge();
                }
            }
        }
    }

    /// Schedules the hold for the machine's next timeout.
    fn reschedule(self: &Arc<Self>, state: &mut HoldState) {
        let at = state.machine.poll_timeout();
        if state.scheduled.map(ScheduleKey::at) == at {
            return;
        }
        let schedule = &self.runtime.schedule;
        if let Some(key) = state.scheduled.take() {
            schedule.remove_hold(key);
        }
        let ttl = state.machine.policy().ttl;
        state.scheduled = at.map(|at| schedule.insert_hold(at, ttl, Arc::clone(self)));
    }
}

/// Marks that this thread drains a hold. A panic in a node drops it, and another thread may drain.
struct Drainer<'a>(&'a HeldLock);

impl Drop for Drainer<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).draining = false;
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let turns = lock(&self.state).turns;
        for _ in 0..turns {
            self.runtime.renewals.finish();
        }
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLock")
            .field("token", &self.id.token)
            .field("ballot", &self.id.ballot)
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}

/// Shares equal policies between the holds of one client. There may be a hundred thousand holds,
/// and most have the same policy.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    last: Mutex<Weak<HoldPolicy>>,
}

impl Policies {
    /// `policy`, or the equal one of the last hold.
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

/// The task that acquired a lock, or the thread if there is no task: of a task that waits for long
/// for a lock that it took itself, the log tells. A hash, to be small; a collision costs a needless
/// line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HolderTask(u32);

impl HolderTask {
    /// The task or thread that runs now.
    pub(crate) fn current() -> Self {
        let mut hasher = DefaultHasher::new();
        match tokio::task::try_id() {
            Some(task) => (true, task).hash(&mut hasher),
            None => (false, std::thread::current().id()).hash(&mut hasher),
        }
        // Never equal to the default, which stands for no task.
        Self(hasher.finish() as u32 | 1)
    }
}

#[cfg(test)]
mod tests;
