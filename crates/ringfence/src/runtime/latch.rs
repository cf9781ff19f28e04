//! One call on a latch: a loop of rounds, with a wait between two rounds. What a round means is
//! decided by `protocol::LatchCall`.

use std::sync::Arc;

use crate::message::{Claim, Reply, Ticket};
use crate::node::{CallError, Deliver};
use crate::protocol::{
    LatchCall, LatchFailureKind, LatchNext, LatchRound, LatchTerms, Queue, RoundMachine,
};

use super::ClientRuntime;
use super::closing::Refusal;
use super::sender::PendingRound;
use super::waiter::Waiter;

/// Which latch a caller uses, and on which terms.
#[derive(Debug, Clone)]
pub(crate) struct LatchRequest {
    /// The latch's only claim.
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) terms: LatchTerms,
    /// The label of a caller that waits, for people.
    pub(crate) label: Arc<str>,
}

/// `party` arrives. Returns how many parties have arrived. Dropping the future undoes nothing: the
/// arrival may count, and repeating it changes nothing.
pub(crate) async fn arrive(
    runtime: &Arc<ClientRuntime>,
    wanted: &LatchRequest,
    party: &Arc<str>,
) -> Result<u64, Refusal<LatchFailureKind>> {
    let now = runtime.sender.clock.now();
    let call = LatchCall::arriving(wanted.terms, Arc::clone(party), now, runtime.entropy.seed());
    run(runtime, wanted, call, None).await
}

/// Waits until enough parties have arrived. Returns how many have. Dropping the future leaves a
/// ticket that delays no other caller and expires by itself.
pub(crate) async fn wait(
    runtime: &Arc<ClientRuntime>,
    wanted: &LatchRequest,
) -> Result<u64, Refusal<LatchFailureKind>> {
    let call = LatchCall::waiting(
        wanted.terms,
        runtime.sender.clock.now(),
        runtime.entropy.seed(),
    );
    let waits = wanted.terms.wait.is_none_or(|wait| !wait.is_zero());
    let waiting = waits.then(|| LatchWaiter::begin(runtime, wanted));
    run(runtime, wanted, call, waiting.as_ref()).await
}

async fn run(
    runtime: &Arc<ClientRuntime>,
    wanted: &LatchRequest,
    mut call: LatchCall,
    waiting: Option<&LatchWaiter<'_>>,
) -> Result<u64, Refusal<LatchFailureKind>> {
    let clock = &runtime.sender.clock;
    loop {
        if runtime.closing.is_closed() {
            return Err(runtime.closing.refusal());
        }
        if let Some(waiting) = waiting {
            waiting.waiter.begin();
        }
        let round = call.begin(&runtime.sender.cluster(), clock.now());
        let round = send(
            runtime,
            wanted,
            round,
            waiting.map(|waiting| &waiting.ticket),
        );
        if round.verdict().await.is_none() {
            return Err(runtime.closing.refusal());
        }
        let next = round.with(|round| {
            if let Some(waiting) = waiting {
                waiting.waiter.set_arrivals(round.arrived());
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
                    match waiting {
                        Some(waiting) => {
                            waiting.waiter.wait_for_wake(runtime, at, clock.now()).await;
                        }
                        None => runtime.schedule.sleep_until(at, clock).await,
                    }
                } => {}
                () = runtime.closing.begun() => return Err(runtime.closing.refusal()),
            },
        }
    }
}

/// Sends the round's request to every node.
fn send(
    runtime: &Arc<ClientRuntime>,
    wanted: &LatchRequest,
    round: LatchRound,
    ticket: Option<&Ticket>,
) -> Arc<PendingRound<LatchRound>> {
    let request = round.request(&wanted.claims, &wanted.terms, ticket);
    let t0 = round.t0();
    let expires = round.poll_timeout().unwrap_or(t0);
    let round = Arc::new(PendingRound::new(runtime, round, t0));
    let to = Arc::clone(&round) as Arc<dyn Deliver<_>>;
    runtime.sender.send_all(request, expires, &to);
    round
}

impl Deliver<Reply> for PendingRound<LatchRound> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        self.handle_reply(tag as usize, outcome, |_, _| ());
    }
}

/// A caller that waits at a latch, in its client's waiting room. Dropping it leaves the room.
struct LatchWaiter<'a> {
    runtime: &'a ClientRuntime,
    waiter: Arc<Waiter>,
    ticket: Ticket,
}

impl<'a> LatchWaiter<'a> {
    fn begin(runtime: &'a Arc<ClientRuntime>, wanted: &LatchRequest) -> Self {
        let ticket = Ticket {
            // A latch wakes all its waiters at once: their order does not matter.
            since_us: 0,
            id: runtime.room.new_ticket_id(),
            first: false,
            label: Arc::clone(&wanted.label),
        };
        let queue = Queue::Latch {
            ttl_ms: wanted.terms.ttl.as_millis() as u64,
        };
        let room = &runtime.room;
        let waiter = room.enter(runtime, &wanted.claims, ticket.clone(), queue);
        Self {
            runtime,
            waiter,
            ticket,
        }
    }
}

impl Drop for LatchWaiter<'_> {
    fn drop(&mut self) {
        self.runtime.room.leave(&self.waiter);
    }
}
