//! What one client does with N nodes: whom to ask, what their answers amount to, how long a grant
//! is valid, what to take back and when to try again.
//!
//! Pure: time, answers and seeds come in as values; what is to be sent comes out as values. The
//! driver runs this code. So does the simulator, which runs the whole client, and the exhaustive model
//! (`ringfence-verify model`), which steps the machines themselves: they are `Clone + Eq + Hash`.
//! Nothing here knows what a node is made of.

mod acquisition;
mod attempt;
mod cluster;
mod extension;
mod group_values;
mod hold;
mod jitter;
mod latch;
mod latch_round;
mod request;
mod slots;
mod ticket;
mod validity;
mod vote;
mod withdrawal;

pub use acquisition::{Acquisition, Failure, FailureKind, Line, Next, Terms, majority_grows_up};
pub use attempt::{Attempt, Loss, Verdict};
pub use cluster::{Choice, ClockEvent, Cluster};
pub use extension::{Extension, ExtensionVerdict};
pub use group_values::{Wishes, settled, vetted};
pub use hold::{
    ClockReading, FinalRelease, Hold, HoldAction, HoldEvent, HoldPolicy, Lost, RoundId, Transmit,
};
pub use latch::{LatchCall, LatchFailure, LatchFailureKind, LatchNext, LatchTerms};
pub use latch_round::{LatchRound, LatchTally, Question};
pub use request::{GrantId, Queue, ReleaseRequests, inspect, refresh};
pub use slots::Asked;
pub use ticket::{TicketFate, TicketNodes};
pub use validity::{Drift, DriftError, deadline};
pub use vote::{Discount, Leap, Vote, ceil_secs, duplicates, quorum};
pub use withdrawal::{Target, Withdrawal, WithdrawalVerdict};

#[cfg(test)]
mod tests;
