//! Releases and undos on their way. Detached from everybody: once begun, a withdrawal goes on
//! until every node that may hold something has said that it no longer does, or the TTL is over.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::message::{Ballot, Claim, Kind, Place, Release, ReleaseKind, Reply, Request, Slots};
use crate::node::{CallError, Deliver};
use crate::protocol::{FinalRelease, Target, Withdrawal, WithdrawalVerdict};
use crate::time::Timestamp;
use crate::token::Token;

use super::flight::Flight;
use super::schedule::{Due, Key};
use super::taker::Taker;
use super::ticket::TicketFate;
use super::waiting::Waiter;
use super::{Driver, lock};

/// Whose traces are to be wiped. Every hold has one: what few of them have is in a box.
#[derive(Debug, Clone)]
pub(crate) struct Traces {
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) token: Token,
    pub(crate) ballot: Ballot,
    pub(crate) kind: Kind,
    /// Which task took it, for warnings.
    pub(crate) taker: Taker,
    /// The place in line under which it was asked for.
    pub(crate) place: Option<Box<Place>>,
    /// For slots of a semaphore: all its claims, and which of the slots.
    pub(crate) slots: Option<Box<(Arc<[Claim]>, Slots)>>,
}

/// How something is taken back.
struct Manner {
    kind: ReleaseKind,
    /// Who goes on waiting: its place in line is kept.
    stays: Option<Arc<Waiter>>,
    keep_until: Option<Timestamp>,
    /// A majority is to keep it, also if its lease ends before they are told.
    keeps_on: bool,
}

/// A release or undo on its way.
pub(crate) struct Withdrawing {
    this: Weak<Self>,
    flight: Flight<Withdrawal>,
    /// The request to nodes of which the acquire's fate is known.
    known: Arc<Request>,
    /// The request to the others.
    unknown: OnceLock<Arc<Request>>,
    /// When the last lease of what is given back has ended.
    until: Timestamp,
    call_timeout: Duration,
    /// Until when what is given back is kept from others.
    keep_until: Option<Timestamp>,
    /// Who goes on waiting, for an undo that keeps its place in line.
    stays: Option<Arc<Waiter>>,
    counted: AtomicBool,
    /// It counts among those that no majority has confirmed.
    unconfirmed: AtomicBool,
    /// Where it stands on the schedule: in one place at most, however often it has failed.
    scheduled: Mutex<Option<Key>>,
}

impl Withdrawing {
    /// Begins to take back `traces` from `targets`; for at most `ttl`, after which none can be
    /// left. Never blocks; needs no runtime.
    pub(crate) fn begin(
        driver: &Arc<Driver>,
        kind: ReleaseKind,
        traces: &Traces,
        targets: Vec<Target>,
        ttl: Duration,
        call_timeout: Duration,
    ) -> Arc<Self> {
        Self::begin_staying(driver, kind, traces, targets, ttl, call_timeout, None)
    }

    /// As [`begin`](Self::begin), of an attempt that is to be tried again: the place in line of who
    /// `stays` is kept, as long as it waits.
    pub(crate) fn begin_staying(
        driver: &Arc<Driver>,
        kind: ReleaseKind,
        traces: &Traces,
        targets: Vec<Target>,
        ttl: Duration,
        call_timeout: Duration,
        stays: Option<Arc<Waiter>>,
    ) -> Arc<Self> {
        let manner = Manner {
            kind,
            stays,
            keep_until: None,
            keeps_on: false,
        };
        Self::start(driver, traces, targets, ttl, call_timeout, manner)
    }

    /// The final release of a holder.
    pub(crate) fn begin_final(
        driver: &Arc<Driver>,
        traces: &Traces,
        release: FinalRelease,
    ) -> Arc<Self> {
        let manner = Manner {
            kind: ReleaseKind::Final,
            stays: None,
            keep_until: release.keep_until,
            keeps_on: release.keeps_on,
        };
        let (targets, ttl) = (release.targets, release.lease_left);
        Self::start(driver, traces, targets, ttl, release.call_timeout, manner)
    }

    fn start(
        driver: &Arc<Driver>,
        traces: &Traces,
        targets: Vec<Target>,
        ttl: Duration,
        call_timeout: Duration,
        manner: Manner,
    ) -> Arc<Self> {
        let Manner {
            kind,
            stays,
            keep_until,
            keeps_on,
        } = manner;
        let waiter = stays;
        let stays = waiter.is_some();
        let now = driver.clock.now();
        let until = now + ttl;
        let (claims, slots) = match traces.slots.as_deref() {
            Some((claims, slots)) => (claims, *slots),
            None => (&traces.claims, Slots::All),
        };
        let release = Release {
            ballot: traces.ballot,
            kind,
            fate_unknown: false,
            place: traces.place.as_deref().cloned(),
            stays,
            keep_ms: None,
        };
        let known = Arc::new(Request {
            claims: Arc::clone(claims),
            token: traces.token.clone(),
            op: traces.kind.release(slots, release),
        });
        let machine = Withdrawal::new(kind, targets, now, until, call_timeout)
            .keeping(keep_until.filter(|_| keeps_on));
        let (settled, confirmed) = (machine.is_settled(), machine.is_confirmed());
        let this = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            flight: Flight::new(driver, machine, now),
            known,
            unknown: OnceLock::new(),
            until,
            call_timeout,
            keep_until,
            stays: waiter,
            counted: AtomicBool::new(!settled),
            unconfirmed: AtomicBool::new(!confirmed),
            scheduled: Mutex::new(None),
        });
        if !settled {
            driver.withdrawing.fetch_add(1, Ordering::SeqCst);
            if !confirmed {
                driver.unconfirmed.fetch_add(1, Ordering::SeqCst);
            }
            this.go_on();
        }
        this
    }

    /// Waits for what a final release amounts to. It is on the schedule until there is nothing left to
    /// be told again, so whoever waits needs no timer.
    pub(crate) async fn verdict(&self) -> WithdrawalVerdict {
        let timeout = self.flight.driver.clock.now() + self.call_timeout;
        tokio::select! {
            biased;
            verdict = self.flight.concluded() => verdict,
            // Nobody says it again.
            () = self.flight.driver.outlives_runtime(timeout) => WithdrawalVerdict::Unconfirmed,
        }
    }

    /// Time has passed: says again what has to be said again.
    pub(crate) fn time_out(self: &Arc<Self>) {
        self.flight.time_out();
        if self.until <= self.flight.driver.clock.now() {
            // What is left is to keep the name from others: `Locks::close` does not wait for that.
            self.discount();
        }
        self.go_on();
    }

    /// Sends what is due and puts itself on the schedule for the rest.
    fn go_on(self: &Arc<Self>) {
        let driver = &self.flight.driver;
        let now = driver.clock.now();
        // One at a time: a node may answer while it is being told.
        while let Some((node, fate_unknown)) = self.flight.with(|machine| machine.poll_send(now)) {
            let request = self.request(fate_unknown, now);
            let to = Arc::clone(self) as Arc<dyn Deliver<Reply>>;
            let expires = self
                .keep_until
                .map_or(self.until, |keep| keep.max(self.until));
            driver.send(node, &request, expires, to);
        }
        let (timeout, settled) = self
            .flight
            .with(|machine| (machine.poll_timeout(), machine.is_settled()));
        if settled {
            self.settle();
        } else if let Some(at) = timeout {
            self.reschedule(at);
        }
    }

    /// What to say at `now`: said again later, it keeps for a shorter time.
    fn request(&self, fate_unknown: bool, now: Timestamp) -> Arc<Request> {
        let request = match fate_unknown && !self.known.op.is_plain() {
            false => &self.known,
            true => {
                let unknown = || Arc::new(of_unknown_fate(&self.known));
                self.unknown.get_or_init(unknown)
            }
        };
        let left = self
            .keep_until
            .map_or(Duration::ZERO, |until| until.since(now));
        // Whoever waits no longer needs no place: entered again it would outlive its use.
        let leaves = self.stays.as_ref().is_some_and(|waiter| waiter.is_over());
        if left.is_zero() && !leaves {
            return Arc::clone(request);
        }
        let mut request = Request::clone(request);
        if let Some(release) = request.op.release_mut() {
            release.stays &= !leaves;
            let keep_ms = left.as_nanos().div_ceil(1_000_000) as u64;
            release.keep_ms = Some(keep_ms).filter(|ms| *ms > 0);
        }
        Arc::new(request)
    }

    fn reschedule(&self, at: Timestamp) {
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let schedule = &self.flight.driver.schedule;
        let mut scheduled = lock(&self.scheduled);
        if let Some(key) = scheduled.take() {
            schedule.remove(key);
        }
        *scheduled = Some(schedule.insert(at, Due::Withdrawal(this)));
    }

    /// A majority has confirmed.
    fn confirm(&self) {
        if self.unconfirmed.swap(false, Ordering::SeqCst) {
            let driver = &self.flight.driver;
            if driver.unconfirmed.fetch_sub(1, Ordering::SeqCst) == 1 {
                driver.withdrawn.notify_waiters();
            }
        }
    }

    fn settle(&self) {
        if let Some(key) = lock(&self.scheduled).take() {
            self.flight.driver.schedule.remove(key);
        }
        self.discount();
    }

    /// No longer among those that `Locks::close` waits for.
    fn discount(&self) {
        self.confirm();
        if self.counted.swap(false, Ordering::SeqCst) {
            let driver = &self.flight.driver;
            if driver.withdrawing.fetch_sub(1, Ordering::SeqCst) == 1 {
                driver.withdrawn.notify_waiters();
            }
        }
    }
}

/// The same as `request`, to a node that may get the acquire later, or never.
fn of_unknown_fate(request: &Request) -> Request {
    let mut request = request.clone();
    if let Some(release) = request.op.release_mut() {
        release.fate_unknown = true;
    }
    request
}

impl Deliver<Reply> for Withdrawing {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let failed = outcome.is_err();
        if let Some(waiter) = &self.stays {
            let fate = TicketFate::after_undo(&outcome);
            waiter.note(&self.flight.driver, tag as usize, fate);
        }
        let (settled, confirmed, again) =
            self.flight.take(tag as usize, outcome, |machine, now| {
                let again = machine.poll_timeout().filter(|_| failed);
                let again = again.map(|at| at.max(now));
                (machine.is_settled(), machine.is_confirmed(), again)
            });
        if confirmed {
            self.confirm();
        }
        if settled {
            self.settle();
        } else if let Some(at) = again {
            // It could not be told: sooner again than its timeout would have it.
            self.reschedule(at);
        }
    }
}

impl fmt::Debug for Withdrawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Withdrawing({})", self.known.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::message::Mode;
    use crate::name::Name;
    use crate::node::memory::MemoryNode;
    use crate::node::{NodeClock, Trouble, TroubleKind};
    use crate::token::TOKEN_ENTROPY_BYTES;

    #[test]
    fn a_release_that_fails_for_long_stands_on_the_schedule_once() {
        let time = SteppedClock::starting_at(Duration::from_secs(1));
        let clock = Clock::Stepped(time.clone());
        let node = MemoryNode::with_clock("m", NodeClock::following(clock.clone(), 1 << 50));
        let down = Trouble::new(TroubleKind::Unreachable, "down");
        node.fail_with(Some(CallError::NotSent(down)));
        let driver = Driver::of_group(vec![Arc::new(node)], clock);
        let traces = Traces {
            claims: Arc::from([Claim {
                name: Name::new("", "x").unwrap(),
                mode: Mode::Exclusive,
            }]),
            token: Token::from_entropy([1; TOKEN_ENTROPY_BYTES]),
            ballot: Ballot::new(1),
            kind: Kind::Exclusive,
            taker: Taker::default(),
            place: None,
            slots: None,
        };
        let hour = Duration::from_secs(3600);
        let timeout = Duration::from_secs(1);
        Withdrawing::begin(
            &driver,
            ReleaseKind::Final,
            &traces,
            vec![Target::Holds],
            hour,
            timeout,
        );
        for _ in 0..3599 {
            time.step(Duration::from_secs(1));
            let due = std::iter::from_fn(|| driver.schedule.pop(time.now()));
            let due: Vec<Due> = due.take(10).collect();
            assert!(due.len() <= 1, "{} at once", due.len());
            for one in due {
                let Due::Withdrawal(withdrawing) = one else {
                    panic!("nobody holds anything");
                };
                withdrawing.time_out();
            }
        }
        time.step(timeout);
        while let Some(Due::Withdrawal(withdrawing)) = driver.schedule.pop(time.now()) {
            withdrawing.time_out();
        }
        assert_eq!(
            driver.schedule.next(),
            None,
            "and not at all once the TTL is over"
        );
    }
}
