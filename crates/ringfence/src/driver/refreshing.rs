//! Showing the nodes who waits, once: a refresh under way, and what they say to it.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Attend, Claim, Op, Place, Refresh, RefreshSlots, Reply, Request};
use crate::node::{CallError, Deliver};
use crate::time::Timestamp;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

use super::Driver;
use super::ticket::TicketFate;
use super::waiting::{Waiter, WaitsFor};

/// How often places are refreshed: a ticket outlives three of these.
pub(super) const REFRESH: Duration = Duration::from_millis(900);

/// See the module.
pub(super) struct Refreshing {
    driver: Arc<Driver>,
    waiters: Vec<Arc<Waiter>>,
    sent: Timestamp,
}

impl Refreshing {
    pub(super) fn begin(
        driver: &Arc<Driver>,
        claims: &Arc<[Claim]>,
        what: WaitsFor,
        waiters: Vec<Arc<Waiter>>,
    ) {
        let places = waiters.iter().map(|waiter| Place {
            first: false,
            ..waiter.place().clone()
        });
        let places = places.collect();
        let request = Arc::new(Request {
            claims: Arc::clone(claims),
            // Nobody's: those who wait hold nothing.
            token: Token::from_entropy([0; TOKEN_ENTROPY_BYTES]),
            op: match what {
                WaitsFor::Lock => Op::Refresh(Refresh { places }),
                WaitsFor::Slot => Op::RefreshSlots(RefreshSlots { places }),
                WaitsFor::Latch { ttl_ms } => Op::Attend(Attend {
                    places,
                    list: false,
                    ttl_ms,
                }),
            },
        });
        let sent = driver.clock.now();
        let this = Arc::new(Self {
            driver: Arc::clone(driver),
            waiters,
            sent,
        });
        for node in 0..driver.nodes.len() {
            let to = Arc::clone(&this) as Arc<dyn Deliver<Reply>>;
            driver.send(node, &request, sent + REFRESH, to);
        }
    }
}

impl Deliver<Reply> for Refreshing {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let (node, now) = (tag as usize, self.driver.clock.now());
        // A caller on another thread may have got its grant since this was sent.
        let fate = TicketFate::after_refresh(&outcome);
        for waiter in &self.waiters {
            waiter.note(&self.driver, node, fate);
        }
        if self.driver.hear(node, &outcome, self.sent, now).is_some() {
            return;
        }
        match outcome.map(|reply| reply.answer) {
            Ok(Answer::Turns(turns)) => {
                for (waiter, turn) in self.waiters.iter().zip(turns) {
                    if waiter.stands(node, turn) {
                        waiter.wake(now, None);
                    }
                }
            }
            Ok(Answer::Arrivals(arrivals)) => {
                for waiter in &self.waiters {
                    if waiter.hears_of(node, arrivals.arrived) {
                        waiter.wake(now, None);
                    }
                }
            }
            _ => {}
        }
    }
}
