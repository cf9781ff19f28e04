//! What others do for a fence, and why it is none: every node counts its grants, and the highest
//! count of a majority is the fence; or that is written back to a majority first.

use std::fmt;

use stateright::{Model, Property};

use super::properties::UNIQUE;
use super::world::{CLIENTS, NODES};

/// The counts that are searched; beyond, nothing new happens.
const COUNT_MAX: u8 = 2;

/// A way to make fences of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// The highest count of a majority.
    Max,
    /// The same, once a majority has taken it over as its own count.
    WriteBack,
}

/// Three nodes that count, and three clients.
#[derive(Debug, Clone, Copy)]
pub struct Counters(pub Scheme);

/// One state of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tally {
    counts: [u8; NODES],
    holders: [Option<u8>; NODES],
    clients: [Asker; CLIENTS],
    fences: u16,
    duplicate: bool,
}

/// One client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Asker {
    /// The nodes that granted.
    granted: [bool; NODES],
    /// The nodes that took the fence over.
    written: [bool; NODES],
    /// The highest count that it was told.
    highest: u8,
    done: bool,
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// A client asks a node, which counts and answers.
    Ask {
        /// Which client.
        client: usize,
        /// Which node.
        node: usize,
        /// The answer gets lost.
        mute: bool,
    },
    /// A client has a node take its fence over.
    Write {
        /// Which client.
        client: usize,
        /// Which node.
        node: usize,
    },
    /// The lease on a node ends.
    Lapse {
        /// Which node.
        node: usize,
    },
    /// A client gives back what it holds.
    Release {
        /// Which client.
        client: usize,
    },
}

impl Counters {
    fn settle(self, tally: &mut Tally, client: usize) {
        let asker = &mut tally.clients[client];
        let votes = match self.0 {
            Scheme::Max => asker.granted,
            Scheme::WriteBack => asker.written,
        };
        if !asker.done && votes.into_iter().filter(|yes| *yes).count() >= 2 {
            asker.done = true;
            tally.duplicate |= tally.fences & (1 << asker.highest) != 0;
            tally.fences |= 1 << asker.highest;
        }
    }
}

impl Model for Counters {
    type State = Tally;
    type Action = Move;

    fn init_states(&self) -> Vec<Tally> {
        vec![Tally {
            counts: [0; NODES],
            holders: [None; NODES],
            clients: [Asker::default(); CLIENTS],
            fences: 0,
            duplicate: false,
        }]
    }

    fn actions(&self, tally: &Tally, moves: &mut Vec<Move>) {
        for (client, asker) in tally.clients.iter().enumerate() {
            let ready = asker.granted.iter().filter(|yes| **yes).count() >= 2;
            for node in 0..NODES {
                let may_ask = !asker.granted[node] && tally.counts[node] < COUNT_MAX;
                if !asker.done && may_ask && tally.holders[node].is_none() {
                    moves.push(Move::Ask {
                        client,
                        node,
                        mute: false,
                    });
                    if self.0 == Scheme::WriteBack {
                        moves.push(Move::Ask {
                            client,
                            node,
                            mute: true,
                        });
                    }
                }
                let writes = self.0 == Scheme::WriteBack && ready && !asker.done;
                if writes && !asker.written[node] {
                    moves.push(Move::Write { client, node });
                }
            }
            if asker.done && tally.holders.contains(&Some(client as u8)) {
                moves.push(Move::Release { client });
            }
        }
        // The first scheme needs no fault at all to fail.
        if self.0 == Scheme::WriteBack {
            let held = (0..NODES).filter(|node| tally.holders[*node].is_some());
            moves.extend(held.map(|node| Move::Lapse { node }));
        }
    }

    fn next_state(&self, last: &Tally, step: Move) -> Option<Tally> {
        let mut tally = *last;
        match step {
            Move::Ask { client, node, mute } => {
                tally.counts[node] += 1;
                tally.holders[node] = Some(client as u8);
                if !mute {
                    let asker = &mut tally.clients[client];
                    asker.granted[node] = true;
                    asker.highest = asker.highest.max(tally.counts[node]);
                    self.settle(&mut tally, client);
                }
            }
            Move::Write { client, node } => {
                let asker = &mut tally.clients[client];
                asker.written[node] = true;
                tally.counts[node] = tally.counts[node].max(asker.highest);
                self.settle(&mut tally, client);
            }
            Move::Lapse { node } => tally.holders[node] = None,
            Move::Release { client } => {
                let ours = |holder: &&mut Option<u8>| **holder == Some(client as u8);
                for holder in tally.holders.iter_mut().filter(ours) {
                    *holder = None;
                }
            }
        }
        Some(tally)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(UNIQUE, |_, tally: &Tally| !tally.duplicate),
            Property::sometimes("a lock is granted", |_, tally: &Tally| tally.fences != 0),
        ]
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: usize| ["A", "B", "C"][node];
        match *self {
            Self::Ask { client, node, mute } => {
                let lost = if mute { "; its answer is lost" } else { "" };
                write!(f, "{} counts and grants client {client}{lost}", name(node))
            }
            Self::Write { client, node } => {
                write!(f, "{} takes over the fence of client {client}", name(node))
            }
            Self::Lapse { node } => write!(f, "the lease on {} ends", name(node)),
            Self::Release { client } => write!(f, "client {client} releases"),
        }
    }
}
