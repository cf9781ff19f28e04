//! Breaks a lock: rounds of a [`BreakCall`] until one is decided.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Break, Claim, Reply};
use crate::node::{CallError, Deliver};
use crate::protocol::{BreakCall, BreakNext, BreakRound, RoundMachine, Vote};

use super::ClientRuntime;
use super::sender::PendingRound;

/// Breaks `claims` as `what` says. Returns the outcome and the votes of the last round; `None` if
/// the client was closed meanwhile.
pub(crate) async fn break_claims(
    runtime: &Arc<ClientRuntime>,
    claims: &Arc<[Claim]>,
    what: &Break,
    patience: Duration,
) -> Option<(BreakNext, Vec<Vote>)> {
    let mut call = BreakCall::new(runtime.sender.nodes.len());
    loop {
        let now = runtime.sender.clock.now();
        let round = call.begin(&mut runtime.sender.cluster(), now, patience);
        let (request, t0) = (round.request(claims, what), round.t0());
        let expires = round.poll_timeout().unwrap_or(t0);
        let round = Arc::new(PendingRound::new(runtime, round, t0));
        let to = Arc::clone(&round) as Arc<dyn Deliver<_>>;
        runtime.sender.send_all(request, expires, &to);
        round.verdict().await?;
        let next = round.with(|round| {
            let votes = round.votes().cloned().collect();
            (call.conclude(round), votes)
        });
        if next.0 != BreakNext::Again {
            return Some(next);
        }
    }
}

impl Deliver<Reply> for PendingRound<BreakRound> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        self.handle_reply(tag as usize, outcome, |_, _| ());
    }
}
