//! Bytes to and from one server: how connections are made, what goes out and comes in over them, and
//! how much a server may send. What the bytes mean is not known here.

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
