//! Groups with real Sentinels: failovers, Sentinels that are wrong or gone, and what users get wrong.

mod blocked;
mod discovery;
mod failovers;
mod mistakes;
mod stage;
mod witnesses;
