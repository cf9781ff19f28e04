//! What one client does with N nodes: which nodes to ask, how to count their answers, how long a
//! grant is valid, what to undo or release, and when to try again.
//!
//! Pure: time, answers and seeds are arguments; requests are return values. The runtime of the
//! library executes this code. So do the simulator, which runs the whole client, and the exhaustive
//! model (`ringfence-verify model`), which steps the machines themselves: they are
//! `Clone + Eq + Hash`. Nothing here depends on the kind of a node.

mod acquisition;
mod attempt;
mod breaking;
mod cluster;
mod confirmation;
mod extension;
mod group_values;
mod hold;
mod latch;
mod latch_round;
mod release;
mod request;
mod round;
mod scan;
mod slots;
mod ticket;
mod validity;

pub use acquisition::{
    AcquireFailure, AcquireTerms, Acquisition, FailureKind, Next, QueueHint, majority_votes_in,
};
pub use attempt::{Attempt, AttemptVerdict, Loss, Target};
pub use breaking::{BreakCall, BreakNext, BreakRound, BreakVerdict};
pub use cluster::{Choice, ClockEvent, Cluster, Confirmation};
pub use confirmation::{
    ConfirmedMaster, MasterAddress, SentinelAnswer, SentinelGroupView, Unconfirmed,
};
pub use extension::{Extension, ExtensionVerdict};
pub use group_values::{ExplicitValues, refuse_unsafe, settled};
pub use hold::{
    ClockReading, FinalRelease, Hold, HoldAction, HoldEvent, HoldPolicy, Line, Lost, RoundId,
    Transmit,
};
pub use latch::{LatchCall, LatchFailure, LatchFailureKind, LatchNext, LatchTerms};
pub use latch_round::{LatchRound, LatchTally, Question};
pub use release::{PendingRelease, ReleaseVerdict};
pub use request::{GrantId, Queue, ReleaseRequests, inspect, refresh};
pub use round::{ClockJump, Failure, RoundMachine, Vote, VoteWord, ceil_secs, duplicates, quorum};
pub use scan::Scan;
pub use slots::Asked;
pub use ticket::{TicketFate, TicketNodes};
pub use validity::{Drift, DriftError, deadline};

#[cfg(test)]
mod tests;
