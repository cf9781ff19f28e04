//! Groups with real Sentinels: failovers, Sentinels that are wrong or gone, and what users get wrong.

#[allow(dead_code, reason = "the tests of the rules use all of it")]
#[path = "../rules/log.rs"]
mod log;

#[allow(dead_code, reason = "the tests of fleets use all of it")]
#[path = "../fleet/blocking_code.rs"]
mod blocking_code;

mod blocked;
mod discovery;
mod failovers;
mod mistakes;
mod stage;
mod witnesses;
