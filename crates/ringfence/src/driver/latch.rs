//! One call about a latch: question after question, and a rest between two looks.

use std::sync::Arc;

use crate::message::{Arrive, Attend, Claim, Op, Place, Request};
use crate::node::Deliver;
use crate::protocol::{LatchCall, LatchFailure, LatchNext, LatchRound, LatchTerms, Question};
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

use super::Driver;
use super::flight::Flight;
use super::waiting::{Waiter, WaitsFor};

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
        match driver.is_runtime_gone() {
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
    let now = driver.clock.now();
    let call = LatchCall::arriving(wanted.terms, Arc::clone(party), now, driver.entropy.seed());
    run(driver, wanted, call, None).await
}

/// Waits until enough have arrived; how many have. Dropping the future leaves a ticket that is in
/// nobody's way and lapses by itself.
pub(crate) async fn wait(driver: &Arc<Driver>, wanted: &LatchWanted) -> Result<u64, Refusal> {
    let call = LatchCall::waiting(wanted.terms, driver.clock.now(), driver.entropy.seed());
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
    let clock = &driver.clock;
    loop {
        if driver.is_closed() {
            return Err(Refusal::closed(driver));
        }
        if let Some(attendance) = attendance {
            attendance.waiter.begin();
        }
        let round = call.begin(&driver.cluster(), clock.now());
        let flight = send(driver, wanted, round, attendance.map(|a| &a.place));
        tokio::select! {
            biased;
            () = flight.verdict(|| flight.time_out()) => {}
            () = driver.closing() => return Err(Refusal::closed(driver)),
        }
        let next = flight.with(|round| {
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
                () = driver.closing() => return Err(Refusal::closed(driver)),
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
) -> Arc<Flight<LatchRound>> {
    let ttl_ms = wanted.terms.ttl.as_millis() as u64;
    let request = Arc::new(Request {
        claims: Arc::clone(&wanted.claims),
        // Nobody's: a latch is held by nobody.
        token: Token::from_entropy([0; TOKEN_ENTROPY_BYTES]),
        op: match round.question() {
            Question::Look => Op::Attend(Attend {
                places: place.cloned().into_iter().collect(),
                list: true,
                ttl_ms,
            }),
            Question::Add { parties, since_us } => Op::Arrive(Arrive {
                parties: Arc::clone(parties),
                since_us: *since_us,
                count: wanted.terms.count,
                ttl_ms,
            }),
        },
    });
    let t0 = round.t0();
    let expires = round.poll_timeout().unwrap_or(t0);
    let flight = Arc::new(Flight::new(driver, round, t0));
    for node in 0..driver.nodes.len() {
        let to = Arc::clone(&flight) as Arc<dyn Deliver<_>>;
        driver.send(node, &request, expires, to);
    }
    flight
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
        let what = WaitsFor::Latch {
            ttl_ms: wanted.terms.ttl.as_millis() as u64,
        };
        let room = &driver.room;
        let waiter = room.enter(driver, &wanted.claims, place.clone(), what);
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
