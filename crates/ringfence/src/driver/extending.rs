//! A round of a hold from outside: where its replies come in, and how a caller waits for its verdict.

use std::sync::Arc;

use crate::message::{Answer, Reply};
use crate::node::{CallError, Deliver};
use crate::protocol::{ExtensionVerdict, RoundId, Vote};
use crate::time::Timestamp;

use super::hold::Hold;

/// A round whose verdict a caller may wait for. Dropped, nobody does.
pub(crate) struct Extending {
    hold: Arc<Hold>,
    round: RoundId,
}

impl Extending {
    pub(super) fn new(hold: &Arc<Hold>, round: RoundId) -> Self {
        Self {
            hold: Arc::clone(hold),
            round,
        }
    }

    /// Waits for what it comes to. The keeper says when time is over, unless its runtime is gone.
    pub(crate) async fn verdict(&self) -> ExtensionVerdict {
        let driver = &self.hold.driver;
        let timeout = self.hold.timeout_of(self.round);
        let timeout = timeout.unwrap_or_else(|| driver.sender.clock.now());
        tokio::select! {
            biased;
            verdict = self.hold.concluded(self.round) => verdict,
            () = driver.closing.outlives_runtime(timeout, &driver.sender.clock) => {
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

/// Where the replies to a round go.
pub(super) struct RoundReplies {
    pub(super) hold: Arc<Hold>,
    pub(super) round: RoundId,
    pub(super) t0: Timestamp,
}

impl Deliver<Reply> for RoundReplies {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let (node, driver) = (tag as usize, &self.hold.driver);
        let discount = driver
            .sender
            .hear(node, &outcome, self.t0, driver.sender.clock.now());
        self.hold.feed(|machine, clock| {
            machine.handle_reply(self.round, node, outcome, discount, clock);
        });
    }
}

/// Where the reply to a restore goes.
pub(super) struct RestoreReply(pub(super) Arc<Hold>);

impl Deliver<Reply> for RestoreReply {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let node = tag as usize;
        self.0
            .feed(|machine, _| machine.handle_restored(node, &outcome));
        if let Ok(reply) = &outcome
            && reply.answer == Answer::Restored
        {
            tracing::debug!(target: "ringfence", token = %self.0.id().token, node, "the lock is back");
        }
    }
}
