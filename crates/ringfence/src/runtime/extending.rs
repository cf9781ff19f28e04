//! One round of extending a hold, from outside the machine: receives its replies, and lets a caller
//! wait for its verdict.

use std::sync::Arc;

use crate::message::{Answer, Reply};
use crate::node::{CallError, Deliver, Node};
use crate::protocol::{ExtensionVerdict, RoundId, Vote};
use crate::time::Timestamp;

use super::hold::HeldLock;

/// A round whose verdict a caller may wait for. Dropping it ends the wait, not the round.
pub(crate) struct Extending {
    hold: Arc<HeldLock>,
    round: RoundId,
}

impl Extending {
    pub(super) fn new(hold: &Arc<HeldLock>, round: RoundId) -> Self {
        Self {
            hold: Arc::clone(hold),
            round,
        }
    }

    /// Waits for the verdict. The keeper handles the timeout, unless its tokio runtime has ended.
    pub(crate) async fn verdict(&self) -> ExtensionVerdict {
        let runtime = &self.hold.runtime;
        let timeout = self.hold.timeout_of(self.round);
        let timeout = timeout.unwrap_or_else(|| runtime.sender.clock.now());
        tokio::select! {
            biased;
            verdict = self.hold.concluded(self.round) => verdict,
            () = runtime.closing.after_runtime_end(timeout, &runtime.sender.clock) => {
                self.hold.time_out();
                self.hold.concluded(self.round).await
            }
        }
    }

    pub(crate) fn votes(&self) -> Vec<Vote> {
        self.hold.votes_in(self.round)
    }
}

impl Drop for Extending {
    fn drop(&mut self) {
        self.hold.close_round(self.round);
    }
}

/// Receives the replies to a round.
pub(super) struct RoundReplies {
    pub(super) hold: Arc<HeldLock>,
    pub(super) round: RoundId,
    pub(super) t0: Timestamp,
    /// The nodes that were asked, if not the client's own.
    pub(super) second: Option<Arc<[Arc<dyn Node>]>>,
}

impl Deliver<Reply> for RoundReplies {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let (node, runtime) = (tag as usize, &self.hold.runtime);
        let (sender, now) = (&runtime.sender, runtime.sender.clock.now());
        let deadline = self.hold.look(|machine| machine.carried_until());
        let second = self.second.as_deref();
        let discount = sender.observe_reply_to(second, node, &outcome, self.t0, now, deadline);
        let observation = &sender.observation;
        observation.voted(node, &outcome, discount, self.t0, now);
        self.hold.feed(|machine, clock| {
            machine.handle_reply(self.round, node, outcome, discount, clock);
        });
    }
}

/// Receives the reply to a restore.
pub(super) struct RestoreReply(pub(super) Arc<HeldLock>);

impl Deliver<Reply> for RestoreReply {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let node = tag as usize;
        self.0
            .feed(|machine, _| machine.handle_restored(node, &outcome));
        if let Ok(reply) = &outcome
            && reply.answer == Answer::Restored
        {
            tracing::debug!(target: "ringfence", token = %self.0.id().token, node, "lock restored");
        }
    }
}
