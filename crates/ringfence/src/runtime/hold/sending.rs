//! Sends what the machine of a hold wants to send.

use std::sync::Arc;

use crate::message::{Reply, Request};
use crate::node::{Completion, Deliver, Node};
use crate::protocol::{HoldAction, Line, Transmit};

use super::HeldLock;
use crate::runtime::extending::{RestoreReply, RoundReplies};
use crate::runtime::sender::Sender;

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
