//! Redis and Valkey nodes on real servers, in one binary.

#[path = "../servers/mod.rs"]
mod support;

mod access;
mod connection;
mod handshake;
mod strangers;
