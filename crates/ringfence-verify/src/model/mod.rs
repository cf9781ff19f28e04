//! The protocol's core, searched to the end: three nodes that run the product's own ledger, two or three
//! clients, and everything between them that can go wrong at any moment. A rule of the ledger that is broken
//! turns the search red. The clients are restated here (`rounds.rs`, `world.rs`): a rule that is broken in
//! the product's `protocol/` is not seen by this search, but by the simulator.
//!
//! What is left out is what others show: lines, several names, shared locks and the driver's timing are
//! the simulator's.

mod counter;
mod forget;
pub mod ledger;
mod mishaps;
pub mod properties;
mod protocol;
mod rounds;
mod scope;
mod search;
mod size;
mod step;
pub mod world;
mod wrong;

pub use counter::{Counters, Scheme};
pub use protocol::Protocol;
pub use scope::{Scope, Time, Variant};
pub use search::{Finding, Report, search, search_watched};
pub use size::Size;
pub use step::Step;
pub use world::World;
pub use wrong::Wrong;
