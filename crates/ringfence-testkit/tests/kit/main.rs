//! The kit's promises, kept by real processes and real sockets.

mod certificates;
mod fleet;
mod hostile;
mod postgres;
mod proxy;
mod server;
