//! Waiting in line: many processes on real servers, some of them killed, stopped or down.
//!
//! The processes are this very binary, started again: see `worker`.

mod crew;
mod witness;
mod worker;

mod clocks;
mod deaths;
mod idle;
mod order;
mod restarts;
