//! What each of the library's errors means for the exit code, and how it is told.

use std::error::Error;
use std::time::Duration;

use ringfence::node::TroubleKind;
use ringfence::{
    AcquireError, ConfigError, ConnectError, ExtendError, InitError, InspectError, NodeVote,
    ReleaseError, ReleaseReceiptError, Vote, Votes,
};

use crate::exit::{self, Exit};
use crate::report::Failure;

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let exit = match &error {
            AcquireError::Held { .. } => Exit::Conflict(exit::CONFLICT),
            AcquireError::Invalid(_) => Exit::Usage,
            AcquireError::Cancelled { .. } | AcquireError::NoEntropy(_) => Exit::Internal,
            // Too few nodes, too slow, too young, wrongly set up: in each case no majority.
            _ => Exit::NoQuorum,
        };
        let mut failure = told(exit, &error, error.votes());
        if let AcquireError::Invalid(config) = &error {
            failure.message += hint(config);
        }
        failure
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match &error {
            ConnectError::Config(_) => told(Exit::Usage, &error, None),
            ConnectError::Misconfigured { votes } => told(Exit::NoQuorum, &error, Some(votes)),
            _ => told(Exit::NoQuorum, &error, None),
        }
    }
}

impl From<InitError> for Failure {
    fn from(error: InitError) -> Self {
        match error {
            InitError::Connect(error) => error.into(),
            InitError::Unreachable { ref votes } => told(Exit::NoQuorum, &error, Some(votes)),
            InitError::Refused { ref votes } => {
                let mut failure = told(Exit::Usage, &error, Some(votes));
                failure.message += "; --force overrides, if you know that no lock is held";
                failure
            }
            InitError::InUse { ref votes } => told(Exit::Usage, &error, Some(votes)),
            _ => told(Exit::Internal, &error, None),
        }
    }
}

impl From<ExtendError> for Failure {
    fn from(error: ExtendError) -> Self {
        match &error {
            ExtendError::Lost { votes, .. } => told(Exit::Lost(exit::LOST), &error, Some(votes)),
            ExtendError::Invalid(config) => {
                let mut failure = told(Exit::Usage, &error, None);
                failure.message += hint(config);
                failure
            }
            ExtendError::Unconfirmed { votes } => told(Exit::NoQuorum, &error, Some(votes)),
            _ => told(Exit::Internal, &error, None),
        }
    }
}

impl From<ReleaseReceiptError> for Failure {
    fn from(error: ReleaseReceiptError) -> Self {
        let exit = match &error {
            ReleaseReceiptError::Invalid(_) => Exit::Usage,
            ReleaseReceiptError::Release(ReleaseError::Expired | ReleaseError::Taken) => {
                Exit::Lost(exit::LOST)
            }
            ReleaseReceiptError::Release(ReleaseError::Unconfirmed) => Exit::NoQuorum,
            _ => Exit::Internal,
        };
        told(exit, &error, None)
    }
}

impl From<InspectError> for Failure {
    fn from(error: InspectError) -> Self {
        match &error {
            InspectError::NoQuorum { votes, .. } => told(Exit::NoQuorum, &error, Some(votes)),
            InspectError::Invalid(_) => told(Exit::Usage, &error, None),
            _ => told(Exit::Internal, &error, None),
        }
    }
}

/// The failure that `error` means. The library does not know our options, so the hints that name them
/// are added here.
fn told(exit: Exit, error: &dyn Error, votes: Option<&Votes>) -> Failure {
    let mut text = error.to_string();
    let Some(votes) = votes else {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let text = causes.fold(text, |text, cause| format!("{text}: {cause}"));
        return Failure::new(exit, text);
    };
    if votes.iter().any(has_unusable_record) {
        text += "; once all clients are stopped, `ringfence init --force` writes new birth records";
    }
    Failure {
        exit,
        message: text,
        nodes: votes
            .iter()
            .map(|node| (node.node.clone(), node.said()))
            .collect(),
    }
}

/// Whether a node has a birth record that only an operator can replace.
fn has_unusable_record(node: &NodeVote) -> bool {
    matches!(&node.vote, Vote::Failed(error) if error.trouble().kind == TroubleKind::Version)
}

/// What to do about a setting that is not allowed, in terms of our options.
fn hint(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::TtlTooLong { most, .. } if *most < A_YEAR => {
            " (`ringfence init --quarantine`)"
        }
        _ => "",
    }
}

/// The longest TTL of a single node, which no quarantine bounds.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
