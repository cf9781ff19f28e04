//! The protocol's core, searched to the end: three nodes, two or three clients, and everything
//! between them that can go wrong at any moment. A rule that is broken in the product's `protocol/`
//! or `ledger/` turns the search red.
//!
//! What is real: every node runs [`ledger::apply`](ringfence_core::ledger::apply). Every client is
//! made of the product's machines: `Acquisition`, `Attempt`, `Hold` and `Cluster` are stepped with
//! time in ticks, and `PendingRelease` says what an undo or a release sends first. The requests are
//! theirs, too. They are values that can be compared and hashed, so they are part of a state
//! (`tables.rs` keeps each of them once).
//!
//! What is not: `client.rs` connects the machines, in place of the runtime of `ringfence`. A
//! message that is under way may arrive at any later time, so an undo or release is not sent again.
//! There is one name and no wait queue; all clocks run alike (no drift, no jump that a client could
//! notice); no call fails, it is only never answered. From its last attempt on, a client forgets
//! what it had learnt of the nodes.
//!
//! The thresholds of quarantine and retention are about the clock of one node. There
//! ([`Clocks::Apart`]) only that clock runs: the other nodes accept every ballot above their
//! record, which is more than real ones do, and their leases end at any moment. So that every order
//! of ballots is searched, a client is shown made-up clocks when it begins, from which its machines
//! choose the ballot that is wanted. Votes are counted, and quarantined ones discounted, by the
//! machines as everywhere.
//!
//! What is left out is what others show: queues, several names, shared locks and the runtime's
//! timing are the simulator's.

mod client;
mod counter;
mod failover;
mod forget;
mod happen;
mod ledger;
mod message;
pub mod properties;
mod protocol;
mod scope;
mod search;
mod setting;
mod size;
mod step;
mod table;
mod tables;
mod view;
pub mod world;
mod wrong;

pub use counter::{Counters, Scheme};
pub use failover::{FailoverScope, Weakness, search_failover, search_failover_for};
pub use message::{MessageKind, What, Word};
pub use protocol::Protocol;
pub use scope::{Clocks, NodeTime, Scope, Span, Ticks, Variant};
pub use search::{Finding, Report, search, search_watched};
pub use size::Size;
pub use step::Step;
pub use world::World;
pub use wrong::Wrong;
