//! One refresh of waiting tickets on all nodes: keeps the tickets alive, and wakes the waiters
//! that the replies entitle to try.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Answer, Claim, Reply};
use crate::node::{CallError, Deliver};
use crate::protocol::{Queue, TicketFate, refresh};
use crate::time::Timestamp;

use super::ClientRuntime;
use super::waiter::Waiter;

/// The interval between refreshes. A ticket lives for more than three of them.
pub(super) const REFRESH: Duration = Duration::from_millis(900);

/// See the module.
pub(super) struct Refreshing {
    runtime: Arc<ClientRuntime>,
    waiters: Vec<Arc<Waiter>>,
    sent: Timestamp,
}

impl Refreshing {
    pub(super) fn begin(
        runtime: &Arc<ClientRuntime>,
        claims: &Arc<[Claim]>,
        queue: Queue,
        waiters: Vec<Arc<Waiter>>,
    ) {
        let tickets = waiters.iter().map(|waiter| &waiter.ticket);
        let request = refresh(claims, queue, tickets);
        let sent = runtime.sender.clock.now();
        let this: Arc<dyn Deliver<Reply>> = Arc::new(Self {
            runtime: Arc::clone(runtime),
            waiters,
            sent,
        });
        runtime.sender.send_all(request, sent + REFRESH, &this);
    }
}

impl Deliver<Reply> for Refreshing {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let (node, now) = (tag as usize, self.runtime.sender.clock.now());
        // A caller on another thread may have got its grant since the refresh was sent.
        let fate = TicketFate::after_refresh(&outcome);
        for waiter in &self.waiters {
            waiter.note(&self.runtime, node, fate);
        }
        if self
            .runtime
            .sender
            .observe_reply(node, &outcome, self.sent, now)
            .is_some()
        {
            return;
        }
        match outcome.map(|reply| reply.answer) {
            Ok(Answer::Turns(turns)) => {
                for (waiter, turn) in self.waiters.iter().zip(turns) {
                    if waiter.observe_turn(node, turn) {
                        waiter.wake(now, None);
                    }
                }
            }
            Ok(Answer::Arrivals(arrivals)) => {
                for waiter in &self.waiters {
                    if waiter.observe_arrivals(node, arrivals.arrived) {
                        waiter.wake(now, None);
                    }
                }
            }
            _ => {}
        }
    }
}
