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
pub mod node;
pub mod protocol;
pub mod splitmix;
mod values;

/// Lock names, checked once. What a name becomes on a node is the node's business.
pub mod name {
    pub use crate::values::{NAME_MAX_BYTES, NAMES_MAX, Name, NameError, hash_tag, side_key_tag};
}

/// Points in time as plain values. No clock is read here.
pub mod time {
    pub use crate::values::Timestamp;
}

/// The identity of one hold: `id.secret`. A client that knows the token can extend and release the
/// lock, so the secret half is never shown; the id half may be.
pub mod token {
    pub use crate::values::{TOKEN_ENTROPY_BYTES, Token, TokenError, public_half};
    pub(crate) use crate::values::{is_tombstone, tombstone};
}
