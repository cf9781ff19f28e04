//! The names that any client has written lately, as the nodes tell of them.
//!
//! A list that is searched round by round finds a new lock late if the nodes have many keys. With
//! these names it can inspect the new lock at once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::name::Name;
use crate::node::{HearChange, Node};
use crate::protocol::quorum;

use super::Locks;

/// The most names that are remembered. A caller that takes longer misses some.
const NAMES_MAX: usize = 4_096;

/// The names that any client has written lately. [`Locks::changed_names`] makes it. Dropping it ends
/// the reports of the nodes.
pub struct ChangedNames {
    locks: Locks,
    inbox: Arc<Inbox>,
    /// One for each node, which has a weak reference to it.
    _of_nodes: Vec<Arc<NodeChanges>>,
}

/// What the nodes have told, and nobody has read.
#[derive(Default)]
struct Inbox {
    told: Mutex<Told>,
    arrived: Notify,
}

#[derive(Default)]
struct Told {
    names: BTreeSet<Name>,
    /// The nodes that tell of all changes.
    covered: BTreeSet<usize>,
}

/// Receives the changes of one node.
struct NodeChanges {
    node: usize,
    inbox: Arc<Inbox>,
}

impl Locks {
    /// Watches which names any client writes: it takes, renews or releases a lock, enters or leaves
    /// a queue, arrives at a latch.
    ///
    /// This is a hint, for programs that show locks. Servers tell of changes only if they know RESP3
    /// and the user may run `CLIENT TRACKING`, and only while there are not too many: more than about
    /// 400 in a second would cost the server too much. [`Locks::list`] finds every lock.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = ringfence::Locks::connect("redis://localhost").await?;
    /// let changed = locks.changed_names();
    /// loop {
    ///     for name in changed.next().await {
    ///         println!("{name:?}: {}", locks.inspect(&name).await?.state);
    ///     }
    /// }
    /// # }
    /// ```
    pub fn changed_names(&self) -> ChangedNames {
        let inbox = Arc::<Inbox>::default();
        // A forked child watches nothing.
        let nodes: &[Arc<dyn Node>] = match self.is_ours() {
            true => &self.runtime().sender.nodes,
            false => &[],
        };
        let of_nodes = nodes.iter().enumerate().map(|(number, node)| {
            let changes = Arc::new(NodeChanges {
                node: number,
                inbox: Arc::clone(&inbox),
            });
            let hears: Weak<NodeChanges> = Arc::downgrade(&changes);
            node.watch_changes(hears);
            changes
        });
        ChangedNames {
            _of_nodes: of_nodes.collect(),
            locks: self.clone(),
            inbox,
        }
    }
}

impl ChangedNames {
    /// Waits for changes, and returns them as [`take`](Self::take) does. A forked child has none.
    /// Safe to cancel.
    pub async fn next(&self) -> BTreeSet<String> {
        let waiting = async {
            loop {
                let names = self.take();
                if !names.is_empty() {
                    return names;
                }
                self.inbox.arrived.notified().await;
            }
        };
        let process = self.locks.runtime().process;
        process.call(waiting, BTreeSet::new).await
    }

    /// The names that were written since the last call, without the prefix of the client. They come
    /// from other programs: escape them before they reach a terminal.
    pub fn take(&self) -> BTreeSet<String> {
        if !self.locks.is_ours() {
            return BTreeSet::new();
        }
        let names = std::mem::take(&mut self.inbox.told().names);
        let names = names.iter().filter_map(|key| self.locks.name_of_user(key));
        names.map(|name| name.given).collect()
    }

    /// Whether every lock that is taken now will be told of: a majority stores it, and enough nodes
    /// tell of their changes at present.
    pub fn covers_all(&self) -> bool {
        let nodes = self.locks.node_names().len();
        self.locks.is_ours() && self.inbox.told().covered.len() + quorum(nodes) > nodes
    }
}

impl Inbox {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HearChange for NodeChanges {
    fn hear_change(&self, key: Name) {
        let names = &mut self.inbox.told().names;
        if names.len() < NAMES_MAX {
            names.insert(key);
        }
        self.inbox.arrived.notify_one();
    }

    fn hear_coverage(&self, covered: bool) {
        let nodes = &mut self.inbox.told().covered;
        if covered {
            nodes.insert(self.node);
        } else {
            nodes.remove(&self.node);
        }
    }
}

impl fmt::Debug for ChangedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangedNames")
            .field("covers_all", &self.covers_all())
            .finish_non_exhaustive()
    }
}
