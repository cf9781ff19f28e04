//! A node whose post may come late and out of order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::clock::SteppedClock;
use ringfence::node::memory::MemoryNode;
use ringfence::node::{Call, Completion, Facts, Hear, InitMode, Node};
use ringfence_core::group::Group;
use ringfence_core::message::Op;
use ringfence_core::time::Timestamp;

/// Stands before a node. Counts what the node is asked, may keep acquires back, and may take its
/// time to send.
#[derive(Debug, Clone)]
pub(crate) struct Postman(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: MemoryNode,
    keeps: AtomicBool,
    keeps_restores: AtomicBool,
    kept: Mutex<Vec<Call>>,
    asked: AtomicUsize,
    slow: Mutex<Option<(SteppedClock, Duration)>>,
}

impl Postman {
    pub(crate) fn before(node: &MemoryNode) -> Self {
        Self(Arc::new(Shared {
            node: node.clone(),
            keeps: AtomicBool::new(false),
            keeps_restores: AtomicBool::new(false),
            kept: Mutex::default(),
            asked: AtomicUsize::new(0),
            slow: Mutex::default(),
        }))
    }

    /// From now on acquires are kept back; everything else overtakes them.
    pub(crate) fn keep_acquires(&self) {
        self.0.keeps.store(true, Ordering::SeqCst);
    }

    /// The same for restores, or no longer.
    pub(crate) fn keep_restores(&self, keep: bool) {
        self.0.keeps_restores.store(keep, Ordering::SeqCst);
    }

    /// How many calls are kept back.
    pub(crate) fn kept(&self) -> usize {
        self.0.kept.lock().unwrap().len()
    }

    /// Delivers what was kept back, and keeps nothing any more.
    pub(crate) fn deliver(&self) {
        self.0.keeps.store(false, Ordering::SeqCst);
        self.keep_restores(false);
        let kept = std::mem::take(&mut *self.0.kept.lock().unwrap());
        kept.into_iter().for_each(|call| self.0.node.send(call));
    }

    /// How often the node was asked anything, handshakes included.
    pub(crate) fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// From now on it takes `span` to get one call out of the door.
    pub(crate) fn be_slow(&self, clock: &SteppedClock, span: Duration) {
        *self.0.slow.lock().unwrap() = Some((clock.clone(), span));
    }
}

impl Node for Postman {
    fn name(&self) -> &str {
        self.0.node.name()
    }

    fn send(&self, mut call: Call) {
        // When it expires is the sender's matter, on the sender's clock; on its way it does not.
        call.expires = Timestamp::from_nanos(u64::MAX);
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        if let Some((clock, span)) = &*self.0.slow.lock().unwrap() {
            clock.step(*span);
        }
        let acquires = matches!(
            call.request.op,
            Op::Acquire { .. } | Op::PlainAcquire { .. }
        );
        let restores = matches!(call.request.op, Op::Restore { .. });
        if acquires && self.0.keeps.load(Ordering::SeqCst)
            || restores && self.0.keeps_restores.load(Ordering::SeqCst)
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
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        self.0.node.probe(done);
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        self.0.node.join(group, done);
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.0.node.init(group, mode, done);
    }
}
