//! The client's rules, one by one, over nodes inside this process.
//!
//! Each test is named after the rule and the behaviour that it holds the public API to. Time stands
//! still until a test steps it; nothing here waits for a clock on the wall.

mod bench;
mod blocking;
mod cancel;
mod close;
mod crowds;
mod deadline;
mod debug;
mod election;
mod errors;
mod extend;
mod fence;
mod flush;
mod groups;
mod held;
mod hold;
mod input;
mod jumps;
mod keep;
mod kinds;
mod latch;
mod log;
mod overlap;
mod postman;
mod readers;
mod receipts;
mod reentrant;
mod release;
mod renew;
mod retry;
mod rounds;
mod secrets;
mod semaphore;
mod tickets;
mod time;
mod trace;
mod wishes;
mod wrapper;
