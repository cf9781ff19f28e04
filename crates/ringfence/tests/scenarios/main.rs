//! The failures that the debate about Redlock is about, and their kin, on real servers. Each scenario
//! strikes two pairs of clients at once: one pair runs the original algorithm (`redlock.rs`), which
//! is shown to break where it does; the other runs ringfence, which has to hold.
//!
//! `docs/guarantees.md` has the list.

#[path = "../fleet/stage.rs"]
#[allow(dead_code, reason = "each binary uses its part of the stage")]
mod stage;

mod partition;
mod redlock;
mod short_quarantine;
mod witness;

mod clock_jump;
mod comeback;
mod eviction;
mod failback;
mod failover;
mod flush;
mod late_acquire;
mod power_cut;
mod restart;
mod rolling_upgrade;
mod total_restart;
