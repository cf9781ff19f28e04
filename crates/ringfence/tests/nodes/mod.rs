//! Each kind of node: the contract that all of them keep, and what is special to each.

mod stages;
mod support;

mod contract;
mod keep;
#[cfg(any(feature = "redis", feature = "sqlite"))]
mod latch_ledger;
#[cfg(any(feature = "redis", feature = "sqlite"))]
mod readers_ledger;
#[cfg(feature = "redis")]
mod redis_ledger;
#[cfg(feature = "redis")]
mod redis_node;
#[cfg(any(feature = "redis", feature = "sqlite"))]
mod slots_ledger;
#[cfg(feature = "sqlite")]
mod sqlite_ledger;
#[cfg(feature = "sqlite")]
mod sqlite_node;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite_place;
#[cfg(feature = "sqlite")]
mod sqlite_power;
#[cfg(feature = "sqlite")]
mod sqlite_processes;
#[cfg(feature = "sqlite")]
mod sqlite_users;
