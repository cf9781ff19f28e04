//! What happened in one run, in the form in which it is judged: the calls of all clients and their
//! results, on one time scale that does not depend on any client's clock. The simulator and the
//! runs on real servers record the same events, and the same [invariants](crate::invariants) are
//! checked on both.
//!
//! A call whose result is not known is [`What::Unknown`], never a refusal.

mod holds;
mod json;
#[cfg(test)]
pub(crate) mod made;

use serde::{Deserialize, Serialize};

pub use holds::Hold;
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
        /// The kind of hold that the client wants.
        #[serde(flatten)]
        mode: Mode,
        /// The names; all are granted, or none. A semaphore has one name.
        names: Vec<String>,
        /// Whether it waits in the queue.
        waits: bool,
        /// The owner that the call belongs to, if it has one: all holds of one owner are one hold.
        owner: Option<u64>,
    },
    /// A majority of the nodes has the call's ticket in its wait queue.
    Queued {
        /// The call.
        op: u64,
    },
    /// A majority of the nodes granted the call this ballot, whether or not the client knows it.
    Seated {
        /// The call.
        op: u64,
        /// Its ballot; in an election, the term.
        ballot: u64,
    },
    /// The client was granted the lock and relies on it until `until_us`.
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
    /// The client now relies on the lock until `until_us`.
    Deadline {
        /// The call.
        op: u64,
        /// As in [`What::Granted`].
        until_us: u64,
    },
    /// From now on the hold is shared.
    Downgraded {
        /// The call.
        op: u64,
    },
    /// The client no longer relies on the lock: it released it, learned of its loss, or is gone.
    Ended {
        /// The call.
        op: u64,
    },
    /// After the hold, the nodes are to refuse its names to other clients for a while.
    Kept {
        /// The call.
        op: u64,
        /// From this time on,
        from_us: u64,
        /// and at least until this time.
        until_us: u64,
    },
    /// The call ended without a grant.
    Refused {
        /// The call.
        op: u64,
        /// The reason, for people.
        why: String,
    },
    /// The result of the call is not known: its client is gone.
    Unknown {
        /// The call.
        op: u64,
    },
    /// An observer of an election learns which candidate leads.
    Told {
        /// The observer.
        op: u64,
        /// The election.
        name: String,
        /// The call that is reported as the leader.
        leader: u64,
        /// The term that is reported.
        term: u64,
    },
    /// An observer of an election learns that no candidate leads.
    Vacant {
        /// The observer.
        op: u64,
        /// The election.
        name: String,
    },
    /// A client calls a latch: it arrives, waits or looks.
    Turned {
        /// The call.
        op: u64,
        /// Which client.
        client: u64,
        /// The latch.
        latch: String,
        /// For how many arrivals it waits.
        count: u64,
        /// The party that arrives; `None` if the client only waits or looks.
        party: Option<String>,
    },
    /// The latch call returned. If its client arrived, the arrival counts.
    Found {
        /// The call.
        op: u64,
        /// How many parties have arrived, if the reply said so.
        arrived: Option<u64>,
        /// Whether the latch is open.
        open: bool,
    },
    /// An operator breaks what is held under `name` with the fence `up_to` or a lower one. From now
    /// on these holds exclude nobody, whatever the result of the call.
    Breaks {
        /// The call.
        op: u64,
        /// Which client.
        client: u64,
        /// The lock, which is never held together with other names.
        name: String,
        /// The slot of a semaphore.
        slot: Option<u32>,
        /// The highest fence that it breaks.
        up_to: u64,
    },
    /// A majority of the nodes broke it.
    Broken {
        /// The call.
        op: u64,
        /// The fence of the name from now on.
        fence: u64,
        /// The latest deadline that a holder can have whose last renewal began before now.
        until_us: u64,
    },
    /// A resource accepted a write. Recorded in the order in which the resource accepted.
    Updated {
        /// Which resource.
        resource: String,
        /// The call on whose behalf it was written.
        op: u64,
        /// Its fence.
        fence: u64,
        /// The value that the writer had read.
        saw: u64,
        /// The value that it wrote.
        wrote: u64,
    },
    /// A request removed a holder from a node. (An expired lease is not recorded.)
    Removed {
        /// Which node.
        node: usize,
        /// The name of the lock.
        name: String,
        /// The holder that was removed: the public half of its token.
        holder: String,
        /// The sender of the request: the public half of its token.
        by: String,
    },
    /// A request made a holder hold again on a node where it had released before.
    Returned {
        /// Which node.
        node: usize,
        /// The name of the lock.
        name: String,
        /// The public half of its token.
        holder: String,
    },
    /// A node still had something after all clients were gone.
    Remains {
        /// Which node.
        node: usize,
        /// The name of the lock.
        name: String,
        /// What it still had, for people.
        what: String,
    },
    /// A fault was injected.
    Fault {
        /// Which fault, for people.
        what: String,
        /// From here on clocks need not run alike: only fences exclude.
        timing: bool,
    },
    /// There are no faults from here on.
    Healed,
    /// Every call had enough time to end.
    Over,
}

/// A kind of hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Mode {
    /// One holder at a time.
    Exclusive,
    /// Together with other holders that share.
    Shared,
    /// One permit of a semaphore.
    Permit {
        /// How many permits the semaphore has.
        #[serde(rename = "permits")]
        of: u32,
    },
}

impl History {
    /// Adds an event at `at_us`.
    pub fn push(&mut self, at_us: u64, what: What) {
        self.events.push(Event { at_us, what });
    }

    /// When clocks stopped keeping what exclusion needs; `u64::MAX` if they never did.
    pub fn timing_until_us(&self) -> u64 {
        let broken = |event: &&Event| matches!(event.what, What::Fault { timing: true, .. });
        let first = self.events.iter().find(broken);
        first.map_or(u64::MAX, |event| event.at_us)
    }

    /// Whether there was no fault at all.
    pub fn is_calm(&self) -> bool {
        let fault = |event: &Event| matches!(event.what, What::Fault { .. });
        !self.events.iter().any(fault)
    }
}
