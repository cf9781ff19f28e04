//! The kit's promises, kept by real processes and real sockets.

mod certificates;
mod fleet;
mod proxy;
mod server;
