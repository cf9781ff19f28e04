//! The product's own client, protocol and ledger in a simulated world: every schedule follows from a
//! seed, what happened is judged by the [invariants](crate::invariants), and a schedule that breaks
//! one is made short and can be run again.
//!
//! Nothing of the product is restated here. Clients are [`ringfence::Locks`] as users have them, each
//! in a runtime that runs when the world says so; servers run [`ringfence_core::ledger`]; only what lies
//! between them (`link.rs`, `network.rs`) and the clocks (`dial.rs`) are made up.

mod campaign;
mod client;
mod dial;
mod given_back;
mod held;
mod keep;
mod life;
mod link;
mod moves;
mod network;
mod plan;
mod port;
mod resource;
mod server;
mod shrink;
mod watching;
mod weather;
mod world;

pub use campaign::{Campaign, Failure, Report};
pub use plan::{ClientPlan, End, Fault, Moved, NodePlan, Parts, Plan, Step, Trouble, Want, Ways};
pub use shrink::shrink;
pub use weather::{Clocks, plan};
pub use world::{Changes, Run, run};
