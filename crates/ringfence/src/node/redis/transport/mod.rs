//! Bytes to and from one server: makes connections, writes commands, reads replies, and limits how
//! much a server may send. Other modules interpret the replies.

pub(crate) mod connection_set;

pub(crate) mod connection;
pub(crate) mod library;
pub(crate) mod resp;
pub(crate) mod stream;

pub(crate) mod allowance;
pub(crate) mod backoff;
pub(crate) mod dial;
pub(crate) mod limits;
pub(crate) mod tls;
pub(crate) mod wake_listeners;
