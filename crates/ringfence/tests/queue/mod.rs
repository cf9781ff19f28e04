//! The wait queue with many processes on real servers, some of them killed, stopped or restarted.
//!
//! The processes are this test program, started again: see `worker`.

mod crew;
mod witness;
mod worker;

mod clocks;
mod deaths;
mod idle;
mod order;
mod restarts;
