//! A Redis or Valkey server as a node. The server runs the ledger in Lua, one file per operation.
//!
//! A call goes through `node` (the queue of calls), `link` (one state machine per server, in a task
//! that all links of a client share), `codec` (an operation as words, and back) and `wire` (bytes).
//! Each of these uses only those behind it.

mod changes;
mod codec;
mod confirming;
mod detached;
mod link;
mod node;
mod session;
mod session_maker;
mod wire;

mod access;
mod examine;
#[cfg(any(test, fuzzing))]
pub mod fuzz_inputs;
mod handshake;
mod report;
mod scripts;
mod sentinel;

pub use self::access::acl_line;
pub(crate) use self::examine::Examiner;
pub use self::node::RedisNode;
pub use self::wire::tls::TlsError;
