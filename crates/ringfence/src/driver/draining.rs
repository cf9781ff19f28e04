//! Executes what the machine of a hold wants.
//!
//! Any thread feeds the machine. One thread at a time drains it, so that its outputs are executed in
//! the order in which they were produced; the others leave theirs to that thread. No lock is held
//! during a send, because a node may answer inside it.

use std::sync::{Arc, MutexGuard};

use crate::message::{Reply, Request};
use crate::node::Deliver;
use crate::protocol::{
    ClockReading, ExtensionVerdict, Hold as Machine, HoldAction, HoldEvent, Lost, Transmit,
};
use crate::time::Timestamp;

use super::extending::{RestoreReply, RoundReplies};
use super::hold::{Hold, Names};
use super::lock;
use super::schedule::{Due, Key};
use super::taker::Taker;

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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::driver::Driver;
    use crate::group::Group;
    use crate::message::{Answer, Ballot, Claim, Extend, Kind, Mode, Op, Standing};
    use crate::name::Name;
    use crate::node::{Call, Completion, Facts, Hear, InitMode, Node};
    use crate::protocol::{Drift, GrantId, HoldPolicy};
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};

    /// What all nodes of a test share: in which order they are asked for which TTL, and what happens
    /// inside a send.
    #[derive(Default)]
    struct Stage {
        sent: Mutex<Vec<(usize, u64)>>,
        sending: AtomicBool,
        /// A send began before the one before it had ended. Only noted: a send may take place while a
        /// panic is on its way, and a second panic would end the whole program.
        overlapped: AtomicBool,
        hold: OnceLock<Arc<Hold>>,
        inside: Mutex<Option<Inside>>,
    }

    type Inside = Box<dyn FnOnce(&Arc<Hold>) + Send>;

    /// A node that answers inside the send.
    struct Staged(usize, Arc<Stage>);

    impl Node for Staged {
        fn name(&self) -> &str {
            "staged"
        }

        fn send(&self, call: Call) {
            let Self(node, stage) = self;
            if stage.sending.swap(true, Ordering::SeqCst) {
                stage.overlapped.store(true, Ordering::SeqCst);
            }
            let Op::Extend(Extend { ttl_ms, .. }) = call.request.op else {
                panic!("{:?}", call.request.op);
            };
            lock(&stage.sent).push((*node, ttl_ms));
            let inside = lock(&stage.inside).take_if(|_| *node == 1);
            if let (Some(inside), Some(hold)) = (inside, stage.hold.get()) {
                inside(hold);
            }
            call.done.complete(Ok(Reply {
                stamp: None,
                standing: Standing::default(),
                answer: Answer::Extended,
            }));
            thread::yield_now();
            stage.sending.store(false, Ordering::SeqCst);
        }

        fn listen(&self, _: &str, _: Arc<dyn Hear>) {}
        fn probe(&self, _: Completion<Facts>) {}
        fn join(&self, _: Group, _: Completion<Facts>) {}
        fn init(&self, _: Group, _: InitMode, _: Completion<Facts>) {}
    }

    impl std::fmt::Debug for Staged {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "Staged({})", self.0)
        }
    }

    fn hold_on(stage: &Arc<Stage>) -> Arc<Hold> {
        let node = |node| Arc::new(Staged(node, Arc::clone(stage))) as Arc<dyn Node>;
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let driver = Driver::of_group((0..3).map(node).collect(), clock);
        let claims: Arc<[Claim]> = Arc::from([Claim {
            name: Name::new("", "x").unwrap(),
            mode: Mode::Exclusive,
        }]);
        let token = Token::from_entropy([1; TOKEN_ENTROPY_BYTES]);
        let id = GrantId::of_receipt(claims, token, Ballot::new(1), Kind::Exclusive);
        let policy = HoldPolicy {
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            call_timeout: Duration::from_secs(1),
            drift: Drift::default(),
            renew: false,
            max_hold: None,
            label: Arc::from(""),
        };
        let hold = Hold::resume(&driver, id, policy);
        let _ = stage.hold.set(Arc::clone(&hold));
        hold
    }

    fn to_all(ttl_ms: u64) -> [(usize, u64); 3] {
        [(0, ttl_ms), (1, ttl_ms), (2, ttl_ms)]
    }

    #[test]
    fn what_is_wanted_inside_a_send_is_sent_after_what_was_wanted_before() {
        let stage: Arc<Stage> = Arc::default();
        let hold = hold_on(&stage);
        *lock(&stage.inside) = Some(Box::new(|hold| {
            let round = hold.extend(Duration::from_secs(5));
            assert_eq!(hold.look(|machine| machine.lost()), None);
            drop(round);
        }));
        drop(hold.extend(Duration::from_secs(7)));
        assert_eq!(*lock(&stage.sent), [to_all(7_000), to_all(5_000)].concat());
        assert!(!stage.overlapped.load(Ordering::SeqCst), "a send in a send");
    }

    #[test]
    fn of_many_threads_that_feed_one_hold_one_sends_at_a_time() {
        let stage: Arc<Stage> = Arc::default();
        let hold = hold_on(&stage);
        thread::scope(|scope| {
            for number in 0..4 {
                let hold = &hold;
                scope.spawn(move || {
                    for round in 0..250 {
                        let ttl = Duration::from_millis(1_000 + number * 1_000 + round);
                        drop(hold.extend(ttl));
                    }
                });
            }
        });
        let overlapped = stage.overlapped.load(Ordering::SeqCst);
        assert!(!overlapped, "two threads send for the same hold");
        let sent = lock(&stage.sent);
        assert_eq!(sent.len(), 3 * 4 * 250, "nothing is left over");
        let (rounds, _) = sent.as_chunks::<3>();
        for round in rounds {
            assert_eq!(*round, to_all(round[0].1));
        }
        let idle = hold.look(|machine| machine.poll_timeout());
        assert_eq!(idle, None, "every round is over");
    }

    #[test]
    fn a_node_that_panics_does_not_silence_the_hold() {
        let stage = Arc::default();
        let hold = hold_on(&stage);
        *lock(&stage.inside) = Some(Box::new(|_| panic!("a node of another's making")));
        let panicked = catch_unwind(AssertUnwindSafe(|| hold.extend(Duration::from_secs(7))));
        assert!(panicked.is_err());
        stage.sending.store(false, Ordering::SeqCst);
        drop(hold.extend(Duration::from_secs(5)));
        assert_eq!(lock(&stage.sent)[3..], to_all(5_000));
    }
}
