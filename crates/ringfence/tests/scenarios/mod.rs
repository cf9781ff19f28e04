//! The failures of the Redlock debate and similar ones, on real servers. Each scenario applies one
//! failure to two pairs of clients: one pair runs the original algorithm (`redlock.rs`), and the
//! test shows where it breaks; the other pair runs ringfence, which must not break.
//!
//! `docs/guarantees.md` has the list.

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
mod one_endpoint;
mod power_cut;
mod restart;
mod rolling_upgrade;
mod total_restart;
