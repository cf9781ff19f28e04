//! A node that receives calls late and out of order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::clock::SteppedClock;
use ringfence::node::memory::MemoryNode;
use ringfence::node::{Call, Completion, Facts, Hear, InitMode, Node};
use ringfence_core::group::Group;
use ringfence_core::message::Op;
use ringfence_core::time::Timestamp;

/// Wraps a node. Counts the calls to it, can hold back acquires and restores, can queue all calls
/// as a node with a busy connection does, and can make every send take time.
#[derive(Debug, Clone)]
pub(crate) struct DelayingNode(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: MemoryNode,
    keeps_acquires: AtomicBool,
    keeps_restores: AtomicBool,
    queues_all: AtomicBool,
    kept: Mutex<Vec<Call>>,
    calls: AtomicUsize,
    slow: Mutex<Option<(SteppedClock, Duration)>>,
}

impl DelayingNode {
    pub(crate) fn before(node: &MemoryNode) -> Self {
        Self(Arc::new(Shared {
            node: node.clone(),
            keeps_acquires: AtomicBool::new(false),
            keeps_restores: AtomicBool::new(false),
            queues_all: AtomicBool::new(false),
            kept: Mutex::default(),
            calls: AtomicUsize::new(0),
            slow: Mutex::default(),
        }))
    }

    /// From now on acquires are held back; every other call overtakes them.
    pub(crate) fn keep_acquires(&self) {
        self.0.keeps_acquires.store(true, Ordering::SeqCst);
    }

    /// The same for restores; `false` ends it.
    pub(crate) fn keep_restores(&self, keep: bool) {
        self.0.keeps_restores.store(keep, Ordering::SeqCst);
    }

    /// From now on all calls are queued, in their order.
    pub(crate) fn queue_all(&self) {
        self.0.queues_all.store(true, Ordering::SeqCst);
    }

    /// The number of calls that are held back.
    pub(crate) fn kept(&self) -> usize {
        self.0.kept.lock().unwrap().len()
    }

    /// Delivers the calls that were held back, and holds back no more. Withdraws queued calls that
    /// are not wanted any more.
    pub(crate) fn deliver(&self) {
        self.0.keeps_acquires.store(false, Ordering::SeqCst);
        self.keep_restores(false);
        let queued = self.0.queues_all.swap(false, Ordering::SeqCst);
        let kept = std::mem::take(&mut *self.0.kept.lock().unwrap());
        for call in kept {
            match queued && !call.done.is_wanted() {
                false => self.0.node.send(call),
                true => call.done.withdraw(),
            }
        }
    }

    /// The number of calls to the node, handshakes included.
    pub(crate) fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// From now on every send takes `span`.
    pub(crate) fn be_slow(&self, clock: &SteppedClock, span: Duration) {
        *self.0.slow.lock().unwrap() = Some((clock.clone(), span));
    }
}

impl Node for DelayingNode {
    fn name(&self) -> &str {
        self.0.node.name()
    }

    fn send(&self, mut call: Call) {
        // The call expires on the sender's clock, not while it is held back here.
        call.expires = Timestamp::from_nanos(u64::MAX);
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        if let Some((clock, span)) = &*self.0.slow.lock().unwrap() {
            clock.step(*span);
        }
        let acquires = matches!(
            call.request.op,
            Op::Acquire { .. } | Op::PlainAcquire { .. }
        );
        let restores = matches!(call.request.op, Op::Restore { .. });
        if acquires && self.0.keeps_acquires.load(Ordering::SeqCst)
            || restores && self.0.keeps_restores.load(Ordering::SeqCst)
            || self.0.queues_all.load(Ordering::SeqCst)
        {
            self.0.kept.lock().unwrap().push(call);
        } else {
            self.0.node.send(call);
        }
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.0.node.listen(client, to);
    }

    fn probe(&self, done: Completion<Facts>) {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        self.0.node.probe(done);
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        self.0.node.join(group, done);
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.0.node.init(group, mode, done);
    }
}
