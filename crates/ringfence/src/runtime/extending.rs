//! The rounds that extend or restore a hold: sends the requests that the machine wants, receives the
//! replies, and lets a caller wait for the verdict.

use std::sync::Arc;

use crate::message::{Answer, Reply, Request};
use crate::node::{CallError, Completion, Deliver, Node};
use crate::protocol::{ExtensionVerdict, HoldAction, Line, RoundId, Transmit, Vote};
use crate::time::Timestamp;

use super::hold::HeldLock;
use super::sender::Sender;

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
struct RoundReplies {
    hold: Arc<HeldLock>,
    round: RoundId,
    t0: Timestamp,
    /// The nodes that were asked, if not the client's own.
    second: Option<Arc<[Arc<dyn Node>]>>,
}

impl Deliver<Reply> for RoundReplies {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let (node, runtime) = (tag as usize, &self.hold.runtime);
        let (sender, now) = (&runtime.sender, runtime.sender.clock.now());
        let deadline = self.hold.look(|machine| machine.carried_until());
        let second = self.second.as_deref();
        let discount = sender.observe_reply_to(second, node, &outcome, self.t0, now, deadline);
        let observation = &sender.observation;
        observation.voted(node, &outcome, discount.as_ref(), self.t0, now);
        self.hold.feed(|machine, clock| {
            machine.handle_reply(self.round, node, outcome, discount, clock);
        });
    }
}

/// Receives the reply to a restore.
struct RestoreReply(Arc<HeldLock>);

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

/// A request that all nodes of a round share, and the receiver of their replies.
pub(super) struct SharedRequest {
    of: Transmit,
    request: Arc<Request>,
    to: Arc<dyn Deliver<Reply>>,
    /// The nodes to ask, if not the client's own.
    second: Option<Arc<[Arc<dyn Node>]>>,
}

impl HeldLock {
    /// Sends one request. All nodes of a round share the request that is built for the first one.
    pub(super) fn send(self: &Arc<Self>, transmit: Transmit, shared: &mut Option<SharedRequest>) {
        let node = transmit.node;
        let same = |known: &&SharedRequest| {
            known.of
                == Transmit {
                    node: known.of.node,
                    ..transmit
                }
        };
        if shared.as_ref().filter(same).is_none() {
            *shared = Some(self.prepare(transmit));
        }
        if transmit.action == HoldAction::Restore {
            tracing::debug!(
                target: "ringfence",
                node = self.runtime.sender.nodes[node].name(),
                token = %self.id.token,
                "restoring the lock on a node that lost it"
            );
        }
        if let Some(SharedRequest {
            request,
            to,
            second,
            ..
        }) = shared
        {
            let nodes = second.as_deref().unwrap_or(&self.runtime.sender.nodes);
            let done = Completion::new(Arc::clone(to), node as u64);
            Sender::ask_of(&*nodes[node], request, transmit.expires, done);
        }
    }

    fn prepare(self: &Arc<Self>, transmit: Transmit) -> SharedRequest {
        let (round, t0, hold) = (transmit.round, transmit.t0, Arc::clone(self));
        let second = match transmit.line {
            Line::First => None,
            // Without such nodes the client's own are the better ones.
            Line::Second => self.runtime.sender.second.used(transmit.t0),
        };
        SharedRequest {
            of: transmit,
            request: Arc::new(transmit.request(&self.id, &self.policy().label)),
            to: match transmit.action {
                HoldAction::Restore => Arc::new(RestoreReply(hold)),
                HoldAction::Extend | HoldAction::Downgrade => {
                    let second = second.clone();
                    Arc::new(RoundReplies {
                        hold,
                        round,
                        t0,
                        second,
                    })
                }
            },
            second,
        }
    }
}
