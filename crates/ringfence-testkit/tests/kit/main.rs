//! Tests of the kit with real processes and real sockets.

mod certificates;
mod fleet;
mod hostile;
mod network;
mod postgres;
mod proxy;
mod sentinel;
mod server;
