//! Where the data is: resources that check the fence.
//!
//! A lock alone cannot stop a holder that pauses after its last look at the clock, loses the lock, wakes
//! up and writes. The resource can: every guard has a `fence()`, later holders have higher ones, and a
//! resource that remembers the highest it has seen refuses whatever is lower.
//!
//! It keeps two [`Marks`], because reading matters too. If a late holder could still write between a
//! later holder's reading and its writing, that write would be lost. So a reader raises a mark as well,
//! and a writer has to be above both.
//!
//! | the data is in | use |
//! |---|---|
//! | Redis or Valkey | [`redis`]: one script around any command on one key |
//! | PostgreSQL or SQLite | [`sql`]: a small table, and one statement at the head of a transaction |
//! | anything that compares numbers | [`Marks`]: the rule itself |
//! | anything that knows equality only | [`Stamp`]: compare-and-set |
//!
//! Nothing here talks to a server, and no type of a driver appears: it is the rule, a script and SQL
//! text, for whatever client is there already.
//!
//! # Which fence, which marks
//!
//! Fences are ordered within one lock, so **every access to a resource holds the same lock**, and each
//! resource has marks of its own.
//!
//! - A guard of several names has one fence, which is good for the resource of each.
//! - A guard that shares a lock with other readers may only read: `admit_read`.
//! - A semaphore orders fences per slot. Marks belong to one slot of it (`pool/0`, `pool/1`, …), and so
//!   does the resource that they guard.
//! - The fence of `ringfence run` is in the environment: `RINGFENCE_FENCE`.
//! - A `plain_mutex` has no fence.
//!
//! The guide `docs/resources.md` has the same for other languages.

mod marks;
pub mod redis;
pub mod sql;
mod stamp;

pub use marks::{Marks, Refused};
pub use stamp::{Displaced, Stamp};

/// The guide's examples are compiled with the tests.
#[cfg(all(doctest, feature = "redis", feature = "sqlite"))]
#[doc = include_str!("../../../../docs/resources.md")]
struct Guide;
