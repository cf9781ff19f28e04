//! Distributed locks you can trust, on the Redis or Valkey you already run.
//!
//! Modules stand in reading order: a call goes from the client through the protocol and the driver
//! to a node and comes back as a guard. Without features only the two pure machines are built.

pub mod group;
pub mod message;
pub mod name;
pub mod time;
pub mod token;

pub mod ledger;

#[cfg(feature = "client")]
pub mod clock;
#[cfg(feature = "client")]
mod entropy;
#[cfg(feature = "client")]
pub mod url;

pub mod node;
