//! Maps each error of the library to an exit code and a message.

use std::error::Error;
use std::time::Duration;

use ringfence::admin::{BreakError, InitError, InspectError, ListError};
use ringfence::node::TroubleKind;
use ringfence::receipt::ReleaseReceiptError;
use ringfence::votes::{NodeVote, Vote, Votes};
use ringfence::{AcquireError, ConfigError, ConnectError, ExtendError, ReleaseError};

use crate::exit::{self, Exit};
use crate::report::{CliFailure, with_causes};

impl From<AcquireError> for CliFailure {
    fn from(error: AcquireError) -> Self {
        let exit = match &error {
            AcquireError::Held { .. } | AcquireError::Full { .. } => Exit::Conflict(exit::CONFLICT),
            AcquireError::Invalid(_) => Exit::Usage,
            AcquireError::Closed { .. } | AcquireError::NoEntropy(_) => Exit::Internal,
            // The nodes are down, slow, in quarantine or misconfigured: in each case no majority.
            _ => Exit::NoQuorum,
        };
        let mut failed = failure(exit, &error, error.votes());
        if let AcquireError::Invalid(config) = &error {
            failed.message += hint(config);
        }
        failed
    }
}

/// The errors that need no hint: which exit code each has.
macro_rules! failures {
    ($($error:ident { $($variant:pat => $exit:expr,)* })*) => {$(
        impl From<$error> for CliFailure {
            fn from(error: $error) -> Self {
                let exit = match &error {
                    $($variant => $exit,)*
                };
                failure(exit, &error, error.votes())
            }
        }
    )*};
}

failures! {
    BreakError {
        BreakError::Free { .. } | BreakError::Invalid(_) => Exit::Usage,
        BreakError::Changed { .. } => Exit::Conflict(exit::CONFLICT),
        BreakError::NoQuorum { .. } => Exit::NoQuorum,
        _ => Exit::Internal,
    }
    ConnectError {
        // A TLS file that the URL names cannot be used: no node was asked.
        ConnectError::Config(_) | ConnectError::Tls(_) => Exit::Usage,
        _ => Exit::NoQuorum,
    }
    InspectError {
        InspectError::NoQuorum { .. } => Exit::NoQuorum,
        InspectError::Invalid(_) => Exit::Usage,
        _ => Exit::Internal,
    }
    ListError {
        ListError::NoQuorum { .. } => Exit::NoQuorum,
        ListError::Invalid(_) => Exit::Usage,
        _ => Exit::Internal,
    }
}

impl From<InitError> for CliFailure {
    fn from(error: InitError) -> Self {
        match error {
            InitError::Connect(error) => error.into(),
            InitError::Unreachable { ref votes } => failure(Exit::NoQuorum, &error, Some(votes)),
            InitError::Refused { ref votes } => {
                let mut failure = failure(Exit::Usage, &error, Some(votes));
                failure.message += "; use --force if you know that no client holds a lock";
                failure
            }
            InitError::InUse { ref votes } => failure(Exit::Usage, &error, Some(votes)),
            _ => failure(Exit::Internal, &error, None),
        }
    }
}

impl From<ExtendError> for CliFailure {
    fn from(error: ExtendError) -> Self {
        match &error {
            ExtendError::Lost { votes, .. } => failure(Exit::Lost(exit::LOST), &error, Some(votes)),
            ExtendError::Invalid(config) => {
                let mut failed = failure(Exit::Usage, &error, None);
                failed.message += hint(config);
                failed
            }
            ExtendError::Unconfirmed { votes } => failure(Exit::NoQuorum, &error, Some(votes)),
            _ => failure(Exit::Internal, &error, None),
        }
    }
}

impl From<ReleaseReceiptError> for CliFailure {
    fn from(error: ReleaseReceiptError) -> Self {
        let exit = match &error {
            ReleaseReceiptError::Invalid(_) => Exit::Usage,
            ReleaseReceiptError::Release(ReleaseError::Expired | ReleaseError::Taken) => {
                Exit::Lost(exit::LOST)
            }
            ReleaseReceiptError::Release(ReleaseError::Unconfirmed) => Exit::NoQuorum,
            _ => Exit::Internal,
        };
        failure(exit, &error, None)
    }
}

/// The failure that `error` means. The library does not know our options, so the hints that name
/// them are added here.
fn failure(exit: Exit, error: &dyn Error, votes: Option<&Votes>) -> CliFailure {
    let Some(votes) = votes else {
        return CliFailure::new(exit, with_causes(error));
    };
    let mut text = error.to_string();
    if votes.iter().any(has_unusable_record) {
        text += "; once all clients are stopped, `ringfence init --force` writes new birth records";
    }
    CliFailure {
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
