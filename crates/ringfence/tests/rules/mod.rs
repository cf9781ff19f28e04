//! The client's rules, one by one, over nodes inside this process.
//!
//! Each test is named after the rule and the behaviour of the public API that it checks. Time
//! stands still until a test steps it; no test waits for real time to pass.

mod bench;
mod blocking;
mod breaking;
mod cancel;
mod close;
mod contention;
mod deadline;
mod debug;
mod delaying_node;
mod election;
mod errors;
mod extend;
mod fence;
mod flush;
mod groups;
mod held;
mod hold;
mod input;
mod inspect;
mod jumps;
mod keep;
mod kinds;
mod latch;
mod list;
pub(crate) mod log;
mod loss;
mod observation;
mod overlap;
mod readers;
mod ready;
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
