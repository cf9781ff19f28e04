//! A node of your own: it wraps another one and counts what is sent to it. A node of another kind
//! of server implements the same trait.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringfence::Locks;
use ringfence::node::memory::MemoryNode;
use ringfence::node::{Call, Completion, Facts, Group, Hear, InitMode, Node, Tier};

#[derive(Debug)]
struct Counting {
    inner: MemoryNode,
    sent: Arc<AtomicU64>,
}

impl Node for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// Must return at once. The answer goes to `call.done`; a call that is dropped is answered
    /// *unknown*.
    fn send(&self, call: Call) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.inner.send(call);
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.inner.listen(client, to);
    }

    fn probe(&self, done: Completion<Facts>) {
        self.inner.probe(done);
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.inner.join(group, done);
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.inner.init(group, mode, done);
    }

    fn tier(&self) -> Option<Tier> {
        self.inner.tier()
    }

    fn leases_follow_clock(&self) -> bool {
        self.inner.leases_follow_clock()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let sent = Arc::new(AtomicU64::new(0));
    let node = Counting {
        inner: MemoryNode::new("counted"),
        sent: Arc::clone(&sent),
    };
    let locks = Locks::builder().node(node).connect().await?;
    locks.mutex("orders:42").lock().await?.release().await?;
    locks.close().await;
    println!("{} calls", sent.load(Ordering::Relaxed));
    Ok(())
}
