//! The rules of `ringfence` as two state machines: [`ledger`] is what one node does, [`protocol`] is
//! what one client does with N nodes. [`message`] is what they say to each other.
//!
//! This crate is published for the crate `ringfence` alone, which depends on exactly one version of
//! it. Applications use `ringfence`; this API may change with every release.
//!
//! Nothing here does I/O, reads a clock, draws a random number or is async: time, replies and seeds
//! come in as values, and requests go out as values. There are no features.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod group;
pub mod ledger;
pub mod message;
pub mod name;
pub mod node;
pub mod protocol;
pub mod splitmix;
pub mod time;
pub mod token;
