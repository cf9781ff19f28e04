//! One state of the model, in so few words that millions of them fit into memory: what the nodes
//! keep, what is under way, and which machines the clients have. Machines, messages and entries are
//! numbers here; what they stand for is in the `Tables`.

use std::fmt;
use std::sync::Arc;

use ringfence_core::message::Ballot;

use super::scope::Ticks;
use super::tables::Tables;

/// How many nodes there are. Two of them are a majority.
pub const NODES: usize = 3;
/// How many clients there are at most.
pub const CLIENTS: usize = 3;

/// All orders of three nodes or three clients: what stands at `i` moves to `ORDERS[n][i]`.
pub(super) const ORDERS: [[u8; 3]; 6] = [
    [0, 1, 2],
    [1, 0, 2],
    [0, 2, 1],
    [2, 1, 0],
    [1, 2, 0],
    [2, 0, 1],
];

/// One state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// The time, where it is the same for all.
    pub now: Ticks,
    /// The nodes.
    pub nodes: [Node; NODES],
    /// The clients.
    pub clients: [Client; CLIENTS],
    /// What is under way, sorted. It may arrive at any time, in any order, or never: that is how a
    /// message is lost.
    pub mail: Vec<Mail>,
    /// Every fence that was ever granted, in ascending order.
    pub fences: [Ballot; CLIENTS],
    /// How many more nodes may forget everything.
    pub crashes_left: u8,
    /// How many more clocks may be set back.
    pub steps_left: u8,
    /// A fence was granted twice.
    pub duplicate: bool,
    /// A grant has no higher fence than one that was granted before it was asked for.
    pub disorder: bool,
    /// Two clients held at once, each by its own word.
    pub doubled: bool,
    /// A node held for a client that has no use for it, and no undo or release was on its way
    /// there.
    pub left_behind: bool,
    /// A client held again after its lock was lost.
    pub revived: bool,
    pub(super) tables: Aside<Arc<Tables>>,
}

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Its time, if it has a time of its own.
    pub clock: Option<Ticks>,
    /// When it forgot everything, if it did.
    pub born: Option<Ticks>,
    /// What it keeps of the name: the number of an entry.
    pub entry: u32,
}

/// One client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// The number of its machines.
    pub machine: u32,
    /// The highest fence that had been granted to any client when its present attempt began.
    pub after: Ballot,
}

/// One message under way between a client and a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mail {
    /// To or from which node.
    pub node: u8,
    /// From or to which client.
    pub client: u8,
    /// Whether it goes to the client.
    pub is_reply: bool,
    /// The number of its content.
    pub message: u32,
}

/// What belongs to a state, and does not make it another state.
#[derive(Clone)]
pub struct Aside<T>(pub T);

impl<T> PartialEq for Aside<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Aside<T> {}

impl<T> PartialOrd for Aside<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Aside<T> {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl<T> std::hash::Hash for Aside<T> {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl<T> fmt::Debug for Aside<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl World {
    /// Puts a message on its way.
    pub fn post(&mut self, mail: Mail) {
        if let Err(at) = self.mail.binary_search(&mail) {
            self.mail.insert(at, mail);
        }
    }

    /// Takes a message off its way.
    pub fn take(&mut self, mail: Mail) {
        if let Ok(at) = self.mail.binary_search(&mail) {
            self.mail.remove(at);
        }
    }

    /// The highest fence that was ever granted.
    pub fn highest_fence(&self) -> Ballot {
        self.fences[CLIENTS - 1]
    }

    /// Remembers a fence that was granted.
    pub fn put_fence(&mut self, fence: Ballot) {
        // Every client is granted one lock at most, so there is room.
        self.fences[0] = fence;
        self.fences.sort_unstable();
    }

    /// The state that stands for this one and all that differ from it only by which node is which,
    /// and which of the clients that are alike is which.
    #[must_use]
    pub fn representative(&self) -> Self {
        let orders = match self.tables.0.setting.scope.alike() {
            0 | 1 => &ORDERS[..1],
            2 => &ORDERS[..2],
            _ => &ORDERS[..],
        };
        let all = orders.iter().map(|order| self.with_clients(order));
        let all = all.map(|world| world.with_nodes_in_order());
        all.min().unwrap_or_else(|| self.clone())
    }

    /// The same with the clients in another order.
    fn with_clients(&self, order: &[u8; CLIENTS]) -> Self {
        let mut world = self.clone();
        if *order == ORDERS[0] {
            return world;
        }
        for (client, to) in self.clients.iter().zip(order) {
            world.clients[usize::from(*to)] = *client;
        }
        for node in &mut world.nodes {
            node.entry = self.tables.0.renamed(node.entry, order);
        }
        for mail in &mut world.mail {
            mail.client = order[usize::from(mail.client)];
        }
        world.mail.sort_unstable();
        world
    }

    /// The same with the nodes in ascending order. Of nodes that are the same, with all that is
    /// under way to and from them, the one comes first that makes the clients come first.
    fn with_nodes_in_order(self) -> Self {
        let mut nodes: [Vec<Mail>; NODES] = Default::default();
        for mail in &self.mail {
            nodes[usize::from(mail.node)].push(Mail { node: 0, ..*mail });
        }
        let least = (0..ORDERS.len()).map(|n| {
            let mut order = [0; NODES];
            for (from, to) in ORDERS[n].iter().enumerate() {
                order[usize::from(*to)] = from;
            }
            let seen = order.map(|node| (&self.nodes[node], &nodes[node]));
            (seen, n)
        });
        let least: Vec<_> = least.collect();
        let first = least.iter().map(|(seen, _)| seen).min();
        let tied = least.iter().filter(|(seen, _)| Some(seen) == first);
        let mirrored = tied.map(|(_, n)| {
            let machines = self.clients.map(|c| self.tables.0.mirrored(c.machine, *n));
            (machines, *n)
        });
        let Some((machines, n)) = mirrored.min() else {
            return self;
        };
        self.mirrored(machines, n)
    }

    fn mirrored(&self, machines: [u32; CLIENTS], n: usize) -> Self {
        let mut world = self.clone();
        for (node, to) in self.nodes.iter().zip(ORDERS[n]) {
            world.nodes[usize::from(to)] = *node;
        }
        for (client, machine) in world.clients.iter_mut().zip(machines) {
            client.machine = machine;
        }
        for mail in &mut world.mail {
            mail.node = ORDERS[n][usize::from(mail.node)];
        }
        world.mail.sort_unstable();
        world
    }
}
