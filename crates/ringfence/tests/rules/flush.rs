//! Rule 11, `Drop`: dropping a guard or a future writes its release or undo to the nodes before the
//! drop returns, since the process may end right after.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence::Locks;
use ringfence::node::Node;
use ringfence::node::memory::MemoryNode;

use crate::rules::bench::{at_once, waits};
use crate::rules::wrapper::delegate;

/// A node that counts how often it is flushed.
#[derive(Debug, Clone)]
struct Flushed {
    node: MemoryNode,
    times: Arc<AtomicUsize>,
}

impl Flushed {
    fn new() -> Self {
        Self {
            node: MemoryNode::new("m"),
            times: Arc::default(),
        }
    }

    /// How often the node was flushed since the last call.
    fn times(&self) -> usize {
        self.times.swap(0, Ordering::SeqCst)
    }

    async fn client(&self) -> Locks {
        let builder = Locks::builder().node(self.clone());
        builder.connect().await.expect("a client")
    }
}

impl Node for Flushed {
    delegate!(node: name send listen probe join init);

    fn flush(&self) {
        self.times.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn rule_11_dropping_a_guard_flushes_its_release_but_an_awaited_release_does_not_flush() {
    let node = Flushed::new();
    let locks = node.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    assert_eq!(node.times(), 0);
    drop(guard);
    assert_eq!(node.times(), 1);
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    at_once(guard.release()).await.unwrap();
    assert_eq!(node.times(), 0);
    drop(at_once(locks.rw_lock("x").read()).await.unwrap());
    drop(at_once(locks.semaphore("x", 2).acquire()).await.unwrap());
    drop(at_once(locks.plain_mutex("y").lock()).await.unwrap());
    drop(at_once(locks.election("x").campaign()).await.unwrap());
    assert_eq!(node.times(), 4);
}

#[tokio::test]
async fn rule_11_a_dropped_future_flushes_its_undo() {
    let node = Flushed::new();
    let locks = node.client().await;
    node.node.hang(true);
    {
        let lock = locks.mutex("x");
        let locking = lock.lock();
        let mut locking = pin!(locking);
        assert!(waits(locking.as_mut()).await);
        assert_eq!(node.times(), 0);
    }
    assert_eq!(node.times(), 1);
}
