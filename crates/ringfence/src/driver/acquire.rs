//! One `lock()` call: attempt after attempt, each of them taken back unless it is won, whatever
//! happens to the caller.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::message::{Claim, Kind, Place, ReleaseKind, Reply, Request, Slots};
use crate::node::Deliver;
use crate::protocol::{Acquisition, Asked, Attempt, Failure, Line, Next, Terms};
use crate::time::Timestamp;

use super::Driver;
use super::flight::Flight;
use super::strays::Strays;
use super::taker::Taker;
use super::ticket::TicketReplies;
use super::waiting::{Waiter, WaitsFor, Woken};
use super::withdraw::{Traces, Withdrawing};

/// What is to be acquired.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) label: Arc<str>,
    /// For how much longer than the TTL the nodes keep it from others.
    pub(crate) delay: Duration,
    pub(crate) terms: Terms,
}

/// An attempt that was won. Late votes still arrive in its flight.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) flight: Arc<Flight<Attempt>>,
    pub(crate) traces: Traces,
    pub(crate) deadline: Timestamp,
}

/// Why there is no grant.
#[derive(Debug)]
pub(crate) enum Refusal {
    Failed(Failure),
    Closed,
    /// The client's runtime has ended.
    RuntimeGone,
    NoEntropy(getrandom::Error),
}

impl Refusal {
    /// The client was closed, one way or the other.
    fn closed(driver: &Driver) -> Self {
        match driver.is_runtime_gone() {
            false => Self::Closed,
            true => Self::RuntimeGone,
        }
    }
}

/// Acquires `wanted`. Dropping the future takes back what may have been set.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    wanted: &Wanted,
    mut on_lost: impl FnMut(&Attempt, Timestamp),
) -> Result<Won, Refusal> {
    let clock = &driver.clock;
    let entropy = &driver.entropy;
    let (seed, token) = entropy.seed_and_token().map_err(Refusal::NoEntropy)?;
    // Dropped last, when what was set has been taken back.
    let mut leaving = Leaving {
        driver,
        granted: false,
    };
    let mut first = Some(token);
    let mut acquisition = Acquisition::new(wanted.terms, clock.now(), seed);
    let has_record = wanted.terms.kind.has_record();
    let others = has_record.then(|| driver.crowd.join(&wanted.claims));
    if wanted.waits_in_line() {
        let in_company = others.as_ref().is_some_and(|asking| asking.in_company);
        let line = match in_company && wanted.terms.kind != Kind::Slot {
            true => Line::Awaited,
            false => Line::Unknown,
        };
        acquisition = acquisition.in_line(driver.room.ticket(), line);
    }
    let mut line = InLine::new(driver, wanted);
    loop {
        if driver.is_closed() {
            return Err(Refusal::closed(driver));
        }
        let fresh = match first.take() {
            Some(token) => token,
            None => entropy.token().map_err(Refusal::NoEntropy)?,
        };
        // t0 is read here, before the first send of each attempt.
        let attempt = acquisition.begin(&mut driver.cluster(), clock.now(), fresh);
        line.step_up(attempt.place());
        let mut trial = Trial::begin(driver, wanted, attempt, line.waiter.as_ref());
        tokio::select! {
            biased;
            _ = trial.flight.verdict(|| trial.flight.time_out()) => {}
            () = driver.closing() => return Err(Refusal::closed(driver)),
        }
        let next = trial.flight.with(|attempt| {
            let now = clock.now();
            let next = acquisition.conclude(attempt, &driver.cluster(), now);
            if let Next::Retry { at, .. } = next {
                on_lost(attempt, at);
            }
            next
        });
        match next {
            Next::Granted { deadline } => {
                leaving.granted = true;
                return Ok(trial.keep(deadline));
            }
            Next::GiveUp(failure) => return Err(Refusal::Failed(failure)),
            Next::Retry { at, wake_at, stays } => {
                trial.stays = stays;
                line.step_back(stays);
                tokio::select! {
                    biased;
                    woken = line.turn(at, wake_at, trial) => if let Some(Woken { slot }) = woken {
                        acquisition.woken_for(slot);
                    },
                    () = driver.closing() => return Err(Refusal::closed(driver)),
                }
            }
        }
    }
}

impl Wanted {
    /// How long the nodes keep it. What the holder may count on is the TTL alone.
    pub(crate) fn lease(&self) -> Duration {
        self.terms.ttl.saturating_add(self.delay)
    }

    /// Whoever may try once only has nothing to wait for.
    fn waits_in_line(&self) -> bool {
        let waits = self.terms.wait.is_none_or(|wait| !wait.is_zero());
        waits && self.terms.kind.has_record() && self.terms.attempts != Some(1)
    }
}

/// A caller that leaves without a grant, or is dropped: what it had set is taken back even if the
/// process ends right after.
struct Leaving<'a> {
    driver: &'a Arc<Driver>,
    granted: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.granted && self.driver.withdrawing.load(Ordering::SeqCst) > 0 {
            self.driver.flush();
        }
    }
}

/// The caller's place in line between two attempts. Dropped, it is given up.
struct InLine<'a> {
    driver: &'a Arc<Driver>,
    wanted: &'a Wanted,
    waiter: Option<Arc<Waiter>>,
    /// Who waited at a place that is given up. Its ticket is to be forgotten once the undo of the last
    /// attempt has been sent, which tells most nodes.
    left: Option<Arc<Waiter>>,
}

impl<'a> InLine<'a> {
    fn new(driver: &'a Arc<Driver>, wanted: &'a Wanted) -> Self {
        Self {
            driver,
            wanted,
            waiter: None,
            left: None,
        }
    }

    /// An attempt begins: from now on it answers for the place.
    fn step_up(&mut self, place: Option<&Place>) {
        self.forget_left();
        let Some(place) = place else { return };
        match &self.waiter {
            Some(waiter) if waiter.is_at(place) => waiter.begin(),
            _ => {
                self.leave_room();
                let claims = &self.wanted.claims;
                let what = match self.wanted.terms.kind {
                    Kind::Slot => WaitsFor::Slot,
                    Kind::Exclusive | Kind::Shared | Kind::Plain => WaitsFor::Lock,
                };
                let room = &self.driver.room;
                let waiter = room.enter(self.driver, claims, place.clone(), what);
                self.waiter = Some(waiter);
            }
        }
    }

    /// The attempt was lost.
    fn step_back(&mut self, stays: bool) {
        if let Some(waiter) = &self.waiter {
            waiter.end();
        }
        if !stays {
            self.leave_room();
        }
    }

    /// Waits until `at`, or until woken, but then not before `wake_at`: by which wake, if it was one.
    /// What the attempt before has left is taken back meanwhile, and in any case before the next.
    async fn turn(&mut self, at: Timestamp, wake_at: Timestamp, lost: Trial<'_>) -> Option<Woken> {
        let (clock, waiter) = (&self.driver.clock, self.waiter.clone());
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
        if let Some(until) = lost.flight.with(|attempt| attempt.undo_waits_until(now)) {
            tokio::select! {
                biased;
                woken = &mut turn => return woken,
                () = lost.flight.answered() => {}
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

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.leave_room();
        self.forget_left();
    }
}

/// An attempt under way. Dropped, it is undone.
struct Trial<'a> {
    driver: &'a Arc<Driver>,
    wanted: &'a Wanted,
    flight: Arc<Flight<Attempt>>,
    /// Where the replies go if a node may keep more of ours than the slot that is won.
    strays: Option<Arc<Strays>>,
    /// Whose ticket it carries, if it carries one.
    waiter: Option<Arc<Waiter>>,
    kept: bool,
    /// Lost, but to be tried again: the place in line is kept.
    stays: bool,
}

impl<'a> Trial<'a> {
    fn begin(
        driver: &'a Arc<Driver>,
        wanted: &'a Wanted,
        attempt: Attempt,
        waiter: Option<&Arc<Waiter>>,
    ) -> Self {
        let request = Arc::new(Request {
            claims: Arc::clone(&wanted.claims),
            token: attempt.token().clone(),
            op: attempt.op(wanted.lease(), &wanted.label),
        });
        let t0 = attempt.t0();
        let expires = attempt.poll_timeout().unwrap_or(t0);
        let strays = attempt.asked() == Some(Asked::Any)
            || attempt.asked().is_some() && attempt.place().is_some();
        let waiter = waiter.filter(|_| attempt.place().is_some()).cloned();
        let flight = Arc::new(Flight::new(driver, attempt, t0));
        let strays = strays.then(|| Arc::new(Strays::new(driver, &flight, expires)));
        // Made before the first send, so that not even a panic in a node leaves something behind.
        let trial = Self {
            driver,
            wanted,
            flight,
            strays,
            waiter,
            kept: false,
            stays: false,
        };
        driver.attempting.fetch_add(1, Ordering::SeqCst);
        let mut to = match &trial.strays {
            Some(strays) => Arc::clone(strays) as Arc<dyn Deliver<Reply>>,
            None => Arc::clone(&trial.flight) as Arc<dyn Deliver<Reply>>,
        };
        if let Some(waiter) = &trial.waiter {
            let takes_back = trial.strays.is_some();
            to = Arc::new(TicketReplies::new(driver, waiter, to, takes_back));
        }
        for node in 0..driver.nodes.len() {
            driver.send(node, &request, expires, Arc::clone(&to));
        }
        trial
    }

    fn keep(mut self, deadline: Timestamp) -> Won {
        self.kept = true;
        self.flight.won();
        let mut traces = self.traces();
        traces.taker = Taker::current();
        let slot = self.flight.with(|attempt| attempt.slot());
        if let Some(waiter) = &self.waiter {
            let strays = match &self.strays {
                Some(_) => self.flight.with(|attempt| attempt.strays()),
                None => Vec::new(),
            };
            waiter.granted(self.driver, &strays, self.wanted.terms.call_timeout);
        }
        if let Some(slot) = slot {
            let of = |slots| Some(Box::new((Arc::clone(&self.wanted.claims), slots)));
            if let Some(strays) = &self.strays {
                traces.slots = of(Slots::AllBut(slot));
                strays.won(traces.clone(), self.wanted);
            }
            traces.slots = of(Slots::Only(slot));
            // The gate comes first.
            traces.claims = Arc::from([self.wanted.claims[slot as usize + 1].clone()]);
        }
        Won {
            flight: Arc::clone(&self.flight),
            traces,
            deadline,
        }
    }

    fn undo(&self) {
        let targets = self.flight.with(|attempt| {
            if self.stays || attempt.place().is_none() {
                attempt.remains()
            } else {
                attempt.remains_in_line()
            }
        });
        if let Some(waiter) = self.waiter.as_ref().filter(|_| !self.stays) {
            waiter.is_told_to(&targets);
        }
        let terms = &self.wanted.terms;
        Withdrawing::begin_staying(
            self.driver,
            ReleaseKind::Undo,
            &self.traces(),
            targets,
            self.wanted.lease(),
            terms.call_timeout,
            self.waiter.clone().filter(|_| self.stays),
        );
    }

    fn traces(&self) -> Traces {
        self.flight.with(|attempt| Traces {
            claims: Arc::clone(&self.wanted.claims),
            token: attempt.token().clone(),
            ballot: attempt.ballot(),
            kind: self.wanted.terms.kind,
            taker: Taker::default(),
            place: attempt.place().cloned().map(Box::new),
            slots: attempt.asked().map(|asked| {
                let slots = match asked {
                    Asked::Any => Slots::All,
                    Asked::Slot(slot) => Slots::Only(slot),
                };
                Box::new((Arc::clone(&self.wanted.claims), slots))
            }),
        })
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.undo();
        }
        // Last, so that whoever waits for the attempt to end finds its withdrawal begun.
        if self.driver.attempting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.driver.given_up.notify_waiters();
        }
    }
}
