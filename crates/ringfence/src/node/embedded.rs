//! What the nodes inside this process share: what they are asked, kept until it is answered, and
//! answers, kept until they may be delivered.

use crate::group::Group;
use crate::message::{Reply, Request};

use super::{Call, CallError, Completion, Facts, InitMode, NodeClock, Trouble, TroubleKind};

/// A node's store, asked for one thing at a time.
pub(super) trait Store {
    fn carry_out(&mut self, request: &Request) -> Result<Reply, CallError>;
    fn probe(&mut self) -> Result<Facts, CallError>;
    fn join(&mut self, group: Group) -> Result<Facts, CallError>;
    fn init(&mut self, group: Group, mode: InitMode) -> Result<Facts, CallError>;
}

/// One thing that a node is asked.
#[derive(Debug)]
pub(super) enum Job {
    Call(Call),
    Probe(Completion<Facts>),
    Join(Group, Completion<Facts>),
    Init(Group, InitMode, Completion<Facts>),
}

impl Job {
    pub(super) fn run(self, store: &mut impl Store) -> Answered {
        match self {
            Self::Call(call) => Answered::Call(call.done, store.carry_out(&call.request)),
            Self::Probe(done) => Answered::Facts(done, store.probe()),
            Self::Join(group, done) => Answered::Facts(done, store.join(group)),
            Self::Init(group, mode, done) => Answered::Facts(done, store.init(group, mode)),
        }
    }

    /// Whether there is no point in starting it any more.
    pub(super) fn has_expired(&self, clock: &NodeClock) -> bool {
        matches!(self, Self::Call(call) if call.expires < clock.now())
    }

    /// The answer to a call that came too late to be started.
    pub(super) fn expire(self) -> Answered {
        let trouble = Trouble::new(
            TroubleKind::Timeout,
            "the call expired before its turn came",
        );
        self.fail(CallError::NotSent(trouble))
    }

    pub(super) fn fail(self, error: CallError) -> Answered {
        match self {
            Self::Call(call) => Answered::Call(call.done, Err(error)),
            Self::Probe(done) | Self::Join(_, done) | Self::Init(_, _, done) => {
                Answered::Facts(done, Err(error))
            }
        }
    }
}

/// An answer beside the one who waits for it.
#[derive(Debug)]
pub(super) enum Answered {
    Call(Completion<Reply>, Result<Reply, CallError>),
    Facts(Completion<Facts>, Result<Facts, CallError>),
}

impl Answered {
    /// Must not be called under a lock: the receiver may ask the node again at once.
    pub(super) fn deliver(self) {
        match self {
            Self::Call(done, outcome) => done.complete(outcome),
            Self::Facts(done, outcome) => done.complete(outcome),
        }
    }

    /// The same with `error` in place of an answer; an error that was there stays.
    pub(super) fn but(self, error: &CallError) -> Self {
        let but = || error.clone();
        match self {
            Self::Call(done, outcome) => Self::Call(done, outcome.and_then(|_| Err(but()))),
            Self::Facts(done, outcome) => Self::Facts(done, outcome.and_then(|_| Err(but()))),
        }
    }
}

/// The answer of a node that is asked for locks before it belongs to a group.
pub(super) fn not_joined() -> CallError {
    CallError::NotSent(Trouble::new(
        TroubleKind::Newborn,
        "the node has not joined a group yet",
    ))
}

/// The answer to an `init` that might double holders.
pub(super) fn not_new(why: &str) -> CallError {
    CallError::Refused(Trouble::new(
        TroubleKind::Group,
        format!("the node is not new: {why}"),
    ))
}
