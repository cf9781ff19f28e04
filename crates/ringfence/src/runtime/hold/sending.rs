//! Sends what the machine of a hold wants to send.

use std::sync::Arc;

use crate::message::{Reply, Request};
use crate::node::Deliver;
use crate::protocol::{HoldAction, Transmit};

use super::HeldLock;
use crate::runtime::extending::{RestoreReply, RoundReplies};

/// A request that all nodes of a round share, and the receiver of their replies.
pub(super) struct SharedRequest {
    of: Transmit,
    request: Arc<Request>,
    to: Arc<dyn Deliver<Reply>>,
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
        if let Some(SharedRequest { request, to, .. }) = shared {
            let to = Arc::clone(to);
            self.runtime
                .sender
                .send(node, request, transmit.expires, to);
        }
    }

    fn prepare(self: &Arc<Self>, transmit: Transmit) -> SharedRequest {
        let (round, t0, hold) = (transmit.round, transmit.t0, Arc::clone(self));
        SharedRequest {
            of: transmit,
            request: Arc::new(transmit.request(&self.id, &self.policy().label)),
            to: match transmit.action {
                HoldAction::Restore => Arc::new(RestoreReply(hold)),
                HoldAction::Extend | HoldAction::Downgrade => {
                    Arc::new(RoundReplies { hold, round, t0 })
                }
            },
        }
    }
}
