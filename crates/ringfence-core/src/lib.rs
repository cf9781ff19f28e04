//! The rules of `ringfence` as two pure state machines. [`ledger`] is what one node does;
//! [`protocol`] is what one client does with N nodes; [`message`] is the requests and replies
//! between them.
//!
//! This crate is published for the crate `ringfence` only, which depends on exactly one version of
//! it. Applications use `ringfence`; this API may change with every release.
//!
//! Nothing here does I/O, reads a clock, draws a random number or is async. Time, replies and seeds
//! are arguments; requests are return values. There are no features.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod group;
pub mod ledger;
pub mod message;
pub mod node;
pub mod protocol;
mod values;

/// Lock names, checked once. Each kind of node decides under which keys it stores a name.
pub mod name {
    pub use crate::values::{NAME_MAX_BYTES, NAMES_MAX, Name, NameError, hash_tag, side_key_tag};
}

/// Pseudo-random numbers from a seed.
pub mod splitmix {
    pub use crate::values::SplitMix64;
}

/// Points in time as plain values. No clock is read here.
pub mod time {
    pub use crate::values::Timestamp;
}

/// The identity of one hold: `id.secret`. A client that knows the token can extend and release the
/// lock. The id may be shown to people; the secret is never shown.
pub mod token {
    pub use crate::values::{TOKEN_ENTROPY_BYTES, Token, TokenError, public_half};
    pub(crate) use crate::values::{is_tombstone, tombstone};
}
