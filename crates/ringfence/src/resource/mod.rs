//! Fenced resources: the data that a lock protects checks the fence itself.
//!
//! A lock alone cannot stop a holder that pauses after its last check, loses the lock, wakes up and
//! writes. The resource can: every guard has a `fence()`, later holders have higher fences, and a
//! resource that remembers the highest fence refuses lower ones.
//!
//! A resource keeps two [`Marks`], because reads matter too. If an earlier holder could write
//! between the read and the write of a later holder, its write would be lost. So a reader raises
//! a mark as well, and the fence of a writer must not be below either mark.
//!
//! | the data is in | use |
//! |---|---|
//! | Redis or Valkey | [`redis`]: one script around any command on one key |
//! | PostgreSQL or SQLite | [`sql`]: a small table, and the first statement of a transaction |
//! | anything that compares numbers | [`Marks`]: the rule itself |
//! | anything that knows equality only | [`Stamp`]: compare-and-set |
//!
//! This module sends nothing and uses no type of a database client: it has the rule, a script and
//! SQL text, for any client that the application already uses.
//!
//! # Which fence, which marks
//!
//! Fences are ordered within one lock. So **every access to a resource holds the same lock**, and
//! each resource has its own marks.
//!
//! - A guard of several names has one fence. It is valid for the resource of each name.
//! - A guard that shares a lock with other readers may only read: `admit_read`.
//! - A semaphore orders fences per slot. Marks and the resource that they protect belong to one
//!   slot (`pool/0`, `pool/1`, …).
//! - The fence of `ringfence run` is in the environment: `RINGFENCE_FENCE`.
//! - A `plain_mutex` has no fence.
//!
//! The guide [`resources`](crate::guide::resources) describes the same for other languages.

mod marks;
pub mod redis;
pub mod sql;
mod stamp;

pub use marks::{Marks, Refused};
pub use stamp::{Displaced, Stamp};
