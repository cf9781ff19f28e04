//! Proof that ringfence keeps its promises: the product's own client and ledger in a simulated world,
//! a model of the protocol's core searched to the end, and real clients on real servers under faults,
//! all judged by the same invariants.

pub mod faults;
pub mod history;
pub mod invariants;
pub mod model;
pub mod mutants;
pub mod simulator;

mod random;
