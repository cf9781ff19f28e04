//! Waiting in line: many processes on real servers, some of them killed, stopped or down.
//!
//! The processes are this very binary, started again: see `crew`.

mod crew;
mod deaths;
mod order;
