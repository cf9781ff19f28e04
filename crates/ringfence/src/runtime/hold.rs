//! A held lock: its machine ([`protocol::Hold`](crate::protocol::Hold)) behind a mutex, and the
//! execution of the machine's outputs. No rule is decided here.
//!
//! Any thread may feed the machine. One thread at a time drains it, so that its outputs are
//! executed in the order in which they were produced; other threads leave their outputs to that
//! thread. No lock is held during a send, because a node may answer inside it.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::message::{Claim, Mode};
use crate::observation::{HoldEnd, LockKind, ObservedLock};
use crate::protocol::{
    Attempt, ClockReading, ExtensionVerdict, GrantId, Hold as Machine, HoldEvent, HoldPolicy, Line,
    Lost, RoundId, Transmit, Vote,
};
use crate::time::Timestamp;

use super::acquire::WonAttempt;
use super::extending::Extending;
use super::releasing::Releasing;
use super::schedule::ScheduleKey;
use super::sender::PendingRound;
use super::{ClientRuntime, lock, wait_for};

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
    /// `None` for the hold of a receipt, which another process holds. Placed here to use padding:
    /// beside the mutex it would make every hold larger by eight bytes.
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

/// The operations of guards and of the keeper. Each one calls the machine and drains it.
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
