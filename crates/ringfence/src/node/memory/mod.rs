//! The in-memory node: the ledger over a map. For one process, and for tests without a server.
//!
//! It answers inside [`Node::send`], on the caller's thread, unless a test has switched a fault on
//! (`faults.rs`).

#[cfg(not(any(test, feature = "test-util")))]
mod faultless;
#[cfg(any(test, feature = "test-util"))]
mod faults;
mod store;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;
use crate::group::Group;
#[cfg(any(test, feature = "test-util"))]
use crate::ledger::Entry;
#[cfg(any(test, feature = "test-util"))]
use crate::name::Name;

use super::embedded::{Answered, Job, Listeners};
use super::{Call, Completion, Facts, Hear, InitMode, Node, NodeClock, Tier};

#[cfg(any(test, feature = "test-util"))]
use faults::Faults;
#[cfg(any(test, feature = "test-util"))]
pub use faults::Operation;
use store::MemoryStore;

/// A lock node inside this process. Clones share everything.
#[derive(Clone)]
pub struct MemoryNode(Arc<SharedStore>);

struct SharedStore {
    name: String,
    clock: NodeClock,
    state: Mutex<MemoryState>,
    listeners: Listeners,
}

struct MemoryState {
    store: MemoryStore,
    #[cfg(any(test, feature = "test-util"))]
    faults: Faults,
}

impl MemoryNode {
    /// A new, empty node on the machine's clock.
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_clock(name, NodeClock::system())
    }

    /// A new, empty node on `clock`.
    pub fn with_clock(name: impl Into<String>, clock: NodeClock) -> Self {
        Self(Arc::new(SharedStore {
            name: name.into(),
            state: Mutex::new(MemoryState {
                store: MemoryStore::new(clock.clone()),
                #[cfg(any(test, feature = "test-util"))]
                faults: Faults::default(),
            }),
            listeners: Listeners::default(),
            clock,
        }))
    }

    /// The node of this process with this `label`, as the URL `memory:label` names it: the same
    /// node every time. It lives as long as the process.
    pub fn shared(label: &str) -> Self {
        Self::shared_on(label, &Clock::System)
    }

    /// The node with this `label` for clients on this `clock`. A client on a stepped clock and one
    /// on the machine's clock cannot share a node: time does not pass at the same rate for them.
    pub(crate) fn shared_on(label: &str, clock: &Clock) -> Self {
        type Nodes = HashMap<(String, Option<usize>), MemoryNode>;
        static NODES: LazyLock<Mutex<Nodes>> = LazyLock::new(Mutex::default);
        let stepped = match clock {
            Clock::System => None,
            // The node keeps the clock alive, so no other clock can get the same number.
            #[cfg(any(test, feature = "test-util"))]
            Clock::Stepped(clock) => Some(clock.number()),
        };
        let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
        let node = nodes
            .entry((label.to_owned(), stepped))
            .or_insert_with(|| Self::with_clock(format!("memory:{label}"), NodeClock::of(clock)));
        node.clone()
    }

    /// The node's clock. Stepping it changes the time of this node alone.
    pub fn clock(&self) -> &NodeClock {
        &self.0.clock
    }

    /// All entries of the node, by name. Expired entries may be among them.
    #[cfg(any(test, feature = "test-util"))]
    pub fn entries(&self) -> Vec<(Name, Entry)> {
        self.lock().store.entries()
    }

    /// The entry of `name`; the empty entry if there is none.
    #[cfg(any(test, feature = "test-util"))]
    pub fn entry(&self, name: &Name) -> Entry {
        self.lock().store.entry(name)
    }

    fn take(&self, job: Job) {
        let mut state = self.lock();
        let answered = state.take(job, &self.0.clock);
        self.deliver(state, answered);
    }

    /// Unlocks `state`, then delivers its answers and wakes.
    fn deliver(
        &self,
        mut state: MutexGuard<'_, MemoryState>,
        answered: impl IntoIterator<Item = Answered>,
    ) {
        let wakes = state.take_wakes();
        drop(state);
        for wake in wakes {
            // A ticket whose client has no listener retries by itself.
            let _ = self.0.listeners.deliver(wake);
        }
        answered.into_iter().for_each(Answered::deliver);
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // The ledger stores nothing before it has decided, so a panic leaves no partial change.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn send(&self, call: Call) {
        self.take(Job::Call(call));
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.0.listeners.add(client, to);
    }

    fn tier(&self) -> Option<Tier> {
        Some(self.lock().store.tier())
    }

    fn probe(&self, done: Completion<Facts>) {
        self.take(Job::Probe(done));
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.take(Job::Join(group, done));
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.take(Job::Init(group, mode, done));
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryNode").field(&self.0.name).finish()
    }
}
