//! One call about a latch: question after question, and a rest between two looks.

use std::sync::Arc;

use crate::message::{Claim, Place, Reply};
use crate::node::{CallError, Deliver};
use crate::protocol::{
    Discount, LatchCall, LatchFailure, LatchNext, LatchRound, LatchTerms, Queue,
};

use crate::time::Timestamp;

use super::Driver;
use super::sender::{PendingRound, Round};
use super::waiter::Waiter;

/// A latch, and on what terms.
#[derive(Debug, Clone)]
pub(crate) struct LatchWanted {
    /// The latch's one claim.
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) terms: LatchTerms,
}

/// Why a call about a latch came to nothing.
#[derive(Debug)]
pub(crate) enum Refusal {
    Failed(LatchFailure),
    Closed,
    /// The client's runtime has ended.
    RuntimeGone,
}

impl Refusal {
    /// The client was closed, one way or the other.
    fn closed(driver: &Driver) -> Self {
        match driver.closing.is_runtime_gone() {
            false => Self::Closed,
            true => Self::RuntimeGone,
        }
    }
}

/// `party` arrives; how many have. Dropping the future takes nothing back: the arrival may count, and
/// repeating it changes nothing.
pub(crate) async fn arrive(
    driver: &Arc<Driver>,
    wanted: &LatchWanted,
    party: &Arc<str>,
) -> Result<u64, Refusal> {
    let now = driver.sender.clock.now();
    let call = LatchCall::arriving(wanted.terms, Arc::clone(party), now, driver.entropy.seed());
    run(driver, wanted, call, None).await
}

/// Waits until enough have arrived; how many have. Dropping the future leaves a ticket that is in
/// nobody's way and lapses by itself.
pub(crate) async fn wait(driver: &Arc<Driver>, wanted: &LatchWanted) -> Result<u64, Refusal> {
    let call = LatchCall::waiting(
        wanted.terms,
        driver.sender.clock.now(),
        driver.entropy.seed(),
    );
    let waits = wanted.terms.wait.is_none_or(|wait| !wait.is_zero());
    let attendance = waits.then(|| Attendance::begin(driver, wanted));
    run(driver, wanted, call, attendance.as_ref()).await
}

async fn run(
    driver: &Arc<Driver>,
    wanted: &LatchWanted,
    mut call: LatchCall,
    attendance: Option<&Attendance<'_>>,
) -> Result<u64, Refusal> {
    let clock = &driver.sender.clock;
    loop {
        if driver.closing.is_closed() {
            return Err(Refusal::closed(driver));
        }
        if let Some(attendance) = attendance {
            attendance.waiter.begin();
        }
        let round = call.begin(&driver.sender.cluster(), clock.now());
        let round = send(driver, wanted, round, attendance.map(|a| &a.place));
        if round.verdict().await.is_none() {
            return Err(Refusal::closed(driver));
        }
        let next = round.with(|round| {
            if let Some(attendance) = attendance {
                attendance.waiter.looked(round.arrived());
            }
            call.conclude(round, clock.now())
        });
        match next {
            LatchNext::Ask => {}
            LatchNext::Done { arrived } => return Ok(arrived),
            LatchNext::GiveUp(failure) => return Err(Refusal::Failed(failure)),
            LatchNext::Rest { at } => tokio::select! {
                biased;
                () = async {
                    match attendance {
                        Some(attendance) => {
                            attendance.waiter.turn(clock, at, clock.now()).await;
                        }
                        None => clock.sleep_until(at).await,
                    }
                } => {}
                () = driver.closing.begun() => return Err(Refusal::closed(driver)),
            },
        }
    }
}

/// Puts the round's question to every node.
fn send(
    driver: &Arc<Driver>,
    wanted: &LatchWanted,
    round: LatchRound,
    place: Option<&Place>,
) -> Arc<PendingRound<LatchRound>> {
    let request = round.request(&wanted.claims, &wanted.terms, place);
    let t0 = round.t0();
    let expires = round.poll_timeout().unwrap_or(t0);
    let round = Arc::new(PendingRound::new(driver, round, t0));
    let to = Arc::clone(&round) as Arc<dyn Deliver<_>>;
    driver.sender.send_all(request, expires, &to);
    round
}

impl Round for LatchRound {
    type Verdict = ();

    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Discount>,
        now: Timestamp,
    ) {
        Self::handle_reply(self, node, outcome, discount, now);
    }

    fn handle_timeout(&mut self, now: Timestamp) -> Vec<usize> {
        Self::handle_timeout(self, now);
        self.silent()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        Self::poll_timeout(self)
    }

    fn verdict(&self) -> Option<()> {
        self.is_over().then_some(())
    }
}

impl Deliver<Reply> for PendingRound<LatchRound> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        self.take(tag as usize, outcome, |_, _| ());
    }
}

/// Somebody who waits, among all others of this client who do. Dropped, it waits no longer.
struct Attendance<'a> {
    driver: &'a Driver,
    waiter: Arc<Waiter>,
    place: Place,
}

impl<'a> Attendance<'a> {
    fn begin(driver: &'a Arc<Driver>, wanted: &LatchWanted) -> Self {
        let place = Place {
            // All are told at once: no place is better than another.
            since_us: 0,
            id: driver.room.ticket(),
            first: false,
        };
        let queue = Queue::Latch {
            ttl_ms: wanted.terms.ttl.as_millis() as u64,
        };
        let room = &driver.room;
        let waiter = room.enter(driver, &wanted.claims, place.clone(), queue);
        Self {
            driver,
            waiter,
            place,
        }
    }
}

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        self.driver.room.leave(&self.waiter);
    }
}
