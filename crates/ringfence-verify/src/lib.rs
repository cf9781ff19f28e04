//! Proof that ringfence keeps its promises. It has three parts: a simulator that runs the product's
//! own client and ledger, a model of the protocol's core that is searched completely, and runs of
//! real clients on real servers under faults. The same invariants judge all three.

pub mod faults;
pub mod history;
pub mod invariants;
pub mod model;
pub mod mutants;
pub mod simulator;

mod random;
