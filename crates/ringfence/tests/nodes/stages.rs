//! Fresh nodes of every kind for the contract.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::memory::MemoryNode;
use ringfence::node::{CallError, Node, NodeClock};
use ringfence_core::group::Group;
use ringfence_core::message::Op;

use crate::nodes::support::*;

/// A fresh node that has joined a group of one, and the means to let its time pass.
pub(crate) struct Stage {
    node: Arc<dyn Node>,
    pass: Box<dyn Fn(Duration)>,
    /// What the node needs while it is used.
    _keep: Box<dyn Any>,
}

impl Stage {
    pub(crate) fn node(&self) -> &dyn Node {
        &*self.node
    }

    /// The node, for a test that keeps it.
    pub(crate) fn share(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node)
    }

    pub(crate) fn pass_ms(&self, ms: u64) {
        (self.pass)(Duration::from_millis(ms));
    }
}

pub(crate) fn memory() -> Stage {
    let (time, clock) = stepped_clock();
    let node = MemoryNode::with_clock("memory", clock);
    joined(Arc::new(node), move |by| time.step(by), ())
}

#[cfg(feature = "sqlite")]
pub(crate) fn sqlite() -> Stage {
    let scratch = Scratch::new();
    let (time, clock) = stepped_clock();
    let node = ringfence::node::sqlite::SqliteNode::open(scratch.path("locks.db"), clock);
    joined(Arc::new(node.unwrap()), move |by| time.step(by), scratch)
}

#[cfg(feature = "redis")]
pub(crate) fn redis() -> Stage {
    server(ringfence_testkit::Flavor::Redis)
}

#[cfg(feature = "redis")]
pub(crate) fn valkey() -> Stage {
    server(ringfence_testkit::Flavor::Valkey)
}

#[cfg(feature = "redis")]
fn server(flavor: ringfence_testkit::Flavor) -> Stage {
    let server = ringfence_testkit::Server::start(flavor);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = {
        let _inside = runtime.enter();
        crate::nodes::redis_node::node(&server.url())
    };
    joined(Arc::new(node), std::thread::sleep, (runtime, server))
}

fn stepped_clock() -> (SteppedClock, NodeClock) {
    let time = SteppedClock::starting_at(Duration::from_secs(1_000));
    let clock = NodeClock::following(Clock::Stepped(time.clone()), 1_700_000_000_000_000);
    (time, clock)
}

/// A stage for `node`, which has not joined yet. For a server, time passes by waiting.
fn joined(node: Arc<dyn Node>, pass: impl Fn(Duration) + 'static, keep: impl Any) -> Stage {
    // Part of the contract, too: no call is sent before the node has joined.
    let before = send(&*node, request(&["x"], ALICE, Op::Inspect), NEVER).wait();
    assert!(matches!(before, Err(CallError::NotSent(_))), "{before:?}");
    join(&*node, Group::new(1)).wait().unwrap();
    Stage {
        node,
        pass: Box::new(pass),
        _keep: Box::new(keep),
    }
}
