//! The library against real fleets: servers that die, hang, lie, lose data and disagree, and
//! clients that give up half-way.

pub(crate) mod stage;

mod access;
mod births;
mod blocked;
pub(crate) mod blocking_code;
mod changes;
mod clocks;
mod crashes;
mod drops;
mod duplicates;
mod groups;
mod hangs;
mod hostile;
mod jumps;
mod latches;
mod listing;
mod load;
mod loss;
mod minorities;
mod readers;
mod returns;
mod rights;
mod runtimes;
mod semaphores;
mod several;
mod storms;
mod tiers;
mod tombstones;
