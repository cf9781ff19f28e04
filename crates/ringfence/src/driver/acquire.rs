//! One `lock()` call: attempt after attempt, each of them taken back unless it is won, whatever
//! happens to the caller.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::entropy;
use crate::message::{Claim, Op, ReleaseKind, Reply, Request};
use crate::node::Deliver;
use crate::protocol::{Acquisition, Attempt, Failure, Next, Terms};
use crate::time::Timestamp;

use super::Driver;
use super::flight::Flight;
use super::withdraw::{Traces, Withdrawing};

/// What is to be acquired.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) label: Arc<str>,
    pub(crate) terms: Terms,
}

/// An attempt that was won. Late votes still arrive in its flight.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) flight: Arc<Flight<Attempt>>,
    pub(crate) traces: Traces,
    pub(crate) deadline: Timestamp,
    pub(crate) t0: Timestamp,
}

/// Why there is no grant.
#[derive(Debug)]
pub(crate) enum Refusal {
    Failed(Failure),
    Closed,
    NoEntropy(getrandom::Error),
}

/// Acquires `wanted`. Dropping the future takes back what may have been set.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    wanted: &Wanted,
    mut on_lost: impl FnMut(&Attempt, Timestamp),
) -> Result<Won, Refusal> {
    let clock = &driver.clock;
    let mut acquisition = Acquisition::new(wanted.terms, clock.now(), entropy::seed());
    loop {
        if driver.is_closed() {
            return Err(Refusal::Closed);
        }
        let fresh = entropy::token().map_err(Refusal::NoEntropy)?;
        // t0 is read here, before the first send of each attempt.
        let attempt = acquisition.begin(&mut driver.cluster(), clock.now(), fresh);
        let trial = Trial::begin(driver, wanted, attempt);
        tokio::select! {
            biased;
            _ = trial.flight.verdict(|| trial.flight.time_out()) => {}
            () = driver.closing() => return Err(Refusal::Closed),
        }
        let next = trial.flight.with(|attempt| {
            let now = clock.now();
            let next = acquisition.conclude(attempt, &driver.cluster(), now);
            if let Next::Retry { at } = next {
                on_lost(attempt, at);
            }
            next
        });
        match next {
            Next::Granted { deadline } => return Ok(trial.keep(deadline)),
            Next::GiveUp(failure) => return Err(Refusal::Failed(failure)),
            Next::Retry { at } => {
                drop(trial);
                tokio::select! {
                    biased;
                    () = clock.sleep_until(at) => {}
                    () = driver.closing() => return Err(Refusal::Closed),
                }
            }
        }
    }
}

/// An attempt under way. Dropped, it is undone.
struct Trial<'a> {
    driver: &'a Arc<Driver>,
    wanted: &'a Wanted,
    flight: Arc<Flight<Attempt>>,
    kept: bool,
}

impl<'a> Trial<'a> {
    fn begin(driver: &'a Arc<Driver>, wanted: &'a Wanted, attempt: Attempt) -> Self {
        let ttl_ms = wanted.terms.ttl.as_millis() as u64;
        let request = Arc::new(Request {
            claims: Arc::clone(&wanted.claims),
            token: attempt.token().clone(),
            op: if attempt.only_looks() {
                Op::Inspect
            } else if wanted.terms.plain {
                Op::PlainAcquire { ttl_ms }
            } else {
                Op::Acquire {
                    ballot: attempt.ballot(),
                    ttl_ms,
                    label: Arc::clone(&wanted.label),
                }
            },
        });
        let t0 = attempt.t0();
        let expires = attempt.poll_timeout().unwrap_or(t0);
        let flight = Arc::new(Flight::new(driver, attempt, t0));
        // Made before the first send, so that not even a panic in a node leaves something behind.
        let trial = Self {
            driver,
            wanted,
            flight,
            kept: false,
        };
        driver.attempting.fetch_add(1, Ordering::SeqCst);
        for node in 0..driver.nodes.len() {
            let to = Arc::clone(&trial.flight) as Arc<dyn Deliver<Reply>>;
            driver.send(node, &request, expires, to);
        }
        trial
    }

    fn keep(mut self, deadline: Timestamp) -> Won {
        self.kept = true;
        Won {
            flight: Arc::clone(&self.flight),
            traces: self.traces(),
            deadline,
            t0: self.flight.with(|attempt| attempt.t0()),
        }
    }

    fn undo(&self) {
        let targets = self.flight.with(|attempt| attempt.remains());
        let terms = &self.wanted.terms;
        Withdrawing::begin(
            self.driver,
            ReleaseKind::Undo,
            &self.traces(),
            targets,
            terms.ttl,
            terms.call_timeout,
        );
    }

    fn traces(&self) -> Traces {
        self.flight.with(|attempt| Traces {
            claims: Arc::clone(&self.wanted.claims),
            token: attempt.token().clone(),
            ballot: attempt.ballot(),
            plain: self.wanted.terms.plain,
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
