//! What happened, as it is judged: the calls of all clients and what came of them, on one time
//! scale that no clock of theirs decides. The simulator and the runs on real servers record the same
//! events, and the same [invariants](crate::invariants) are checked on both.
//!
//! A call of which nobody knows the outcome is [`What::Unknown`], never a refusal.

mod json;
#[cfg(test)]
pub(crate) mod made;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub use json::BadLine;

/// Everything that happened in one run, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The events, by time.
    pub events: Vec<Event>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in microseconds of true time.
    pub at_us: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened. `op` numbers the calls of all clients, each once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A client asks for a lock.
    Invoked {
        /// The call.
        op: u64,
        /// Which client.
        client: u64,
        /// How the names are wanted.
        #[serde(flatten)]
        mode: Mode,
        /// The names, all or none; of a semaphore its one name.
        names: Vec<String>,
        /// Whether it waits in line.
        waits: bool,
        /// Whose it is, if it is an owner's: all holds of one owner are one.
        owner: Option<u64>,
    },
    /// The call's place in line is known to a majority of the nodes.
    Queued {
        /// The call.
        op: u64,
    },
    /// A majority of the nodes granted the call this ballot, whether its client knows or not.
    Seated {
        /// The call.
        op: u64,
        /// Its ballot: the term of an election, if it is one.
        ballot: u64,
    },
    /// The client has it, and counts on it until `until_us`.
    Granted {
        /// The call.
        op: u64,
        /// Its fence; a plain lock has none.
        fence: Option<u64>,
        /// The slot of a semaphore.
        slot: Option<u32>,
        /// When, in true time, the client's own clock will show its deadline.
        until_us: u64,
    },
    /// The client counts on it until `until_us` now.
    Deadline {
        /// The call.
        op: u64,
        /// As in [`What::Granted`].
        until_us: u64,
    },
    /// From now on it is a share of the names.
    Downgraded {
        /// The call.
        op: u64,
    },
    /// The client no longer counts on it: it gives it back, was told of its loss, or is gone.
    Ended {
        /// The call.
        op: u64,
    },
    /// After the hold its names are to be kept from others for a while.
    Kept {
        /// The call.
        op: u64,
        /// From here on,
        from_us: u64,
        /// and at least until then.
        until_us: u64,
    },
    /// The call ended without a grant.
    Refused {
        /// The call.
        op: u64,
        /// Why, for people.
        why: String,
    },
    /// Nobody knows what came of the call: its client is gone.
    Unknown {
        /// The call.
        op: u64,
    },
    /// Somebody who watches an election is told who leads.
    Told {
        /// Who watches.
        op: u64,
        /// Which election.
        name: String,
        /// The call that is said to lead.
        leader: u64,
        /// In which term.
        term: u64,
    },
    /// A client turns to a latch.
    Turned {
        /// The call.
        op: u64,
        /// Which client.
        client: u64,
        /// Which latch.
        latch: String,
        /// How many it waits for.
        count: u64,
        /// Who arrives; nobody, if it only waits.
        party: Option<String>,
    },
    /// The client was told how the latch is. If it arrived, it has.
    Found {
        /// The call.
        op: u64,
        /// How many have arrived, if that was told.
        arrived: Option<u64>,
        /// Whether it is open.
        open: bool,
    },
    /// A resource accepted a write. Told in the order in which the resource did.
    Updated {
        /// Which resource.
        resource: String,
        /// On behalf of which call.
        op: u64,
        /// With which fence.
        fence: u64,
        /// The value that the writer had read.
        saw: u64,
        /// The value that it wrote.
        wrote: u64,
    },
    /// A request took a holder off a node, other than by letting its time run out.
    Removed {
        /// Which node.
        node: usize,
        /// From which name.
        name: String,
        /// Who held there: the public half of its token.
        holder: String,
        /// Whose request it was.
        by: String,
    },
    /// A request put a holder on a node again that had given it back there.
    Returned {
        /// Which node.
        node: usize,
        /// Under which name.
        name: String,
        /// The public half of its token.
        holder: String,
    },
    /// After everybody was gone, a node still had this.
    Remains {
        /// Which node.
        node: usize,
        /// Under which name.
        name: String,
        /// What, for people.
        what: String,
    },
    /// Something went wrong with the world.
    Fault {
        /// What, for people.
        what: String,
        /// From here on clocks need not run alike: exclusion rests on fences alone.
        timing: bool,
    },
    /// No fault from here on.
    Healed,
    /// All had the time to end that they can ask for.
    Over,
}

/// How names are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Mode {
    /// One holder, nobody beside it.
    Exclusive,
    /// Beside others who share.
    Shared,
    /// One permit of a semaphore with so many.
    Permit {
        /// How many permits there are.
        #[serde(rename = "permits")]
        of: u32,
    },
}

/// A stretch of time in which a client counted on what it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold<'a> {
    /// The call.
    pub op: u64,
    /// Whose it was.
    pub client: u64,
    /// What was held.
    pub names: &'a [String],
    /// How.
    pub mode: Mode,
    /// Under which fence.
    pub fence: Option<u64>,
    /// In which slot of a semaphore.
    pub slot: Option<u32>,
    /// Whose it is, if it is an owner's.
    pub owner: Option<u64>,
    /// When it was asked for.
    pub invoked_us: u64,
    /// When the client learnt that it has it.
    pub granted_us: u64,
    /// The stretch begins.
    pub from_us: u64,
    /// The stretch is over.
    pub to_us: u64,
}

impl Hold<'_> {
    /// Whether both are holds of one owner.
    pub fn is_owned_with(&self, other: &Self) -> bool {
        self.owner.is_some() && self.owner == other.owner
    }
}

impl History {
    /// Adds what happened at `at_us`.
    pub fn push(&mut self, at_us: u64, what: What) {
        self.events.push(Event { at_us, what });
    }

    /// When clocks ceased to be what exclusion needs; never, if they did not.
    pub fn timing_until_us(&self) -> u64 {
        let broken = |event: &&Event| matches!(event.what, What::Fault { timing: true, .. });
        let first = self.events.iter().find(broken);
        first.map_or(u64::MAX, |event| event.at_us)
    }

    /// Whether nothing went wrong at all.
    pub fn is_calm(&self) -> bool {
        let fault = |event: &Event| matches!(event.what, What::Fault { .. });
        !self.events.iter().any(fault)
    }

    /// All holds, in the order in which they were granted. A downgrade makes two of one.
    pub fn holds(&self) -> Vec<Hold<'_>> {
        let mut asked: HashMap<u64, Hold<'_>> = HashMap::new();
        let mut open: HashMap<u64, usize> = HashMap::new();
        let mut holds: Vec<Hold<'_>> = Vec::new();
        for Event { at_us, what } in &self.events {
            match what {
                What::Invoked {
                    op,
                    client,
                    mode,
                    names,
                    owner,
                    ..
                } => {
                    let hold = Hold {
                        op: *op,
                        client: *client,
                        names,
                        mode: *mode,
                        fence: None,
                        slot: None,
                        owner: *owner,
                        invoked_us: *at_us,
                        granted_us: *at_us,
                        from_us: *at_us,
                        to_us: *at_us,
                    };
                    asked.insert(*op, hold);
                }
                What::Granted {
                    op,
                    fence,
                    slot,
                    until_us,
                } => {
                    let Some(hold) = asked.get(op) else { continue };
                    open.insert(*op, holds.len());
                    holds.push(Hold {
                        fence: *fence,
                        slot: *slot,
                        granted_us: *at_us,
                        from_us: *at_us,
                        to_us: *until_us,
                        ..hold.clone()
                    });
                }
                What::Deadline { op, until_us } => {
                    if let Some(&at) = open.get(op) {
                        holds[at].to_us = *until_us;
                    }
                }
                What::Downgraded { op } => {
                    let Some(at) = open.insert(*op, holds.len()) else {
                        continue;
                    };
                    let to_us = holds[at].to_us;
                    holds[at].to_us = to_us.min(*at_us);
                    let shared = Hold {
                        mode: Mode::Shared,
                        from_us: *at_us,
                        to_us,
                        ..holds[at].clone()
                    };
                    holds.push(shared);
                }
                What::Ended { op } => {
                    if let Some(at) = open.remove(op) {
                        holds[at].to_us = holds[at].to_us.min(*at_us);
                    }
                }
                _ => {}
            }
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::made::{History as Made, exclusive, grant};
    use super::*;

    #[test]
    fn a_hold_ends_at_its_deadline_or_when_its_client_says_so() {
        let mut history = Made::default();
        history.invoke(0, 1, exclusive("x"));
        history.push(5, grant(1, 10, 100));
        history.push(
            50,
            What::Deadline {
                op: 1,
                until_us: 200,
            },
        );
        assert_eq!(history.holds()[0].to_us, 200);
        history.push(120, What::Ended { op: 1 });
        assert_eq!(history.holds()[0].to_us, 120);
    }

    #[test]
    fn a_downgrade_makes_two_holds_of_one() {
        let mut history = Made::default();
        history.invoke(0, 1, exclusive("x"));
        history.push(5, grant(1, 10, 100));
        history.push(40, What::Downgraded { op: 1 });
        history.push(70, What::Ended { op: 1 });
        let holds = history.holds();
        let spans: Vec<_> = holds.iter().map(|h| (h.mode, h.from_us, h.to_us)).collect();
        assert_eq!(
            spans,
            [(Mode::Exclusive, 5, 40), (Mode::Shared, 40, 70)],
            "{holds:?}"
        );
    }
}
