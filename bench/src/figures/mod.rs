//! The figures, one file for each.

pub(crate) mod builds;
pub(crate) mod drain;
pub(crate) mod embedded;
pub(crate) mod file_queue;
pub(crate) mod growth;
pub(crate) mod hand_over;
pub(crate) mod hung_node;
pub(crate) mod idle;
pub(crate) mod latency;
pub(crate) mod limit;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod quorums;
pub(crate) mod renewal;
pub(crate) mod sentinel;
pub(crate) mod storm;
pub(crate) mod throughput;
pub(crate) mod turns;
