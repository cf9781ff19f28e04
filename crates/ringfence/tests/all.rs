//! The tests of the library over its nodes, in one program: the library is linked once.
//!
//! `cargo test --all-features --test all rules::` runs one part. Only `exits` is a program of its own,
//! because it needs a machine that is not busy.

#[cfg(all(
    feature = "redis",
    feature = "blocking",
    feature = "sqlite",
    feature = "test-util"
))]
mod examples;
#[cfg(all(feature = "redis", feature = "test-util"))]
mod fleet;
#[cfg(all(feature = "redis", feature = "blocking", feature = "sqlite"))]
mod forks;
#[cfg(all(feature = "redis", feature = "metrics"))]
mod metrics;
#[cfg(feature = "redis")]
mod newcomer;
#[cfg(feature = "test-util")]
mod nodes;
#[cfg(all(feature = "redis", feature = "test-util"))]
mod queue;
#[cfg(all(feature = "redis", feature = "sqlite", feature = "test-util"))]
mod resource;
#[cfg(all(feature = "blocking", feature = "test-util"))]
mod rules;
#[cfg(all(feature = "redis", feature = "test-util"))]
mod scenarios;
#[cfg(all(feature = "redis", feature = "blocking", feature = "test-util"))]
mod sentinel;
