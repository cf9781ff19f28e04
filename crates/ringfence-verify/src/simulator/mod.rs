//! Runs the product's own client, protocol and ledger in a simulated world. A seed decides every
//! schedule, the [invariants](crate::invariants) judge what happened, and a schedule that breaks
//! one is shrunk and can be repeated.
//!
//! No rule of the product is repeated here. Clients are [`ringfence::Locks`] as users have them,
//! each in a tokio runtime that runs only when the world lets it; servers run
//! [`ringfence_core::ledger`]. Only the connections between them (`link.rs`, `network.rs`) and the
//! clocks (`dial.rs`) are simulated.

mod campaign;
mod client;
mod dial;
mod held;
mod keep;
mod life;
mod link;
mod moves;
mod network;
mod plan;
mod planner;
mod port;
mod released;
mod resource;
mod server;
mod shrink;
mod watching;
mod world;

pub use campaign::{Campaign, Report, ViolatedSchedule};
pub use plan::{
    ClientPlan, End, Fault, FaultAction, Moved, NodePlan, Parts, Plan, SentinelsPlan, Step, Want,
    Ways,
};
pub use planner::{Clocks, Layout, behind_sentinels, one_endpoint, plan};
pub use shrink::shrink;
pub use world::{Changes, Run, run};
