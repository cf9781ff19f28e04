//! Maps each error of the library to an exit code and a message.

use std::error::Error;

use ringfence::{
    AcquireError, ConnectError, ExtendError, InitError, InspectError, ReleaseError,
    ReleaseReceiptError, Votes,
};

use crate::exit::{self, Exit};
use crate::report::CliFailure;

impl From<AcquireError> for CliFailure {
    fn from(error: AcquireError) -> Self {
        let exit = match &error {
            AcquireError::Held { .. } => Exit::Conflict(exit::CONFLICT),
            AcquireError::Invalid(_) => Exit::Usage,
            AcquireError::Cancelled { .. } | AcquireError::NoEntropy(_) => Exit::Internal,
            // The nodes are down, slow, in quarantine or misconfigured: in each case no majority.
            _ => Exit::NoQuorum,
        };
        failure(exit, &error, error.votes())
    }
}

impl From<ConnectError> for CliFailure {
    fn from(error: ConnectError) -> Self {
        match &error {
            ConnectError::Config(_) => failure(Exit::Usage, &error, None),
            ConnectError::Misconfigured { votes } => failure(Exit::NoQuorum, &error, Some(votes)),
            _ => failure(Exit::NoQuorum, &error, None),
        }
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
            ExtendError::Invalid(_) => failure(Exit::Usage, &error, None),
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

impl From<InspectError> for CliFailure {
    fn from(error: InspectError) -> Self {
        match &error {
            InspectError::NoQuorum { votes, .. } => failure(Exit::NoQuorum, &error, Some(votes)),
            InspectError::Invalid(_) => failure(Exit::Usage, &error, None),
            _ => failure(Exit::Internal, &error, None),
        }
    }
}

/// The library's errors name the nodes in the lines after the first. Here each node is a value of
/// its own, so that a program that reads JSON does not have to split lines.
fn failure(exit: Exit, error: &dyn Error, votes: Option<&Votes>) -> CliFailure {
    let text = error.to_string();
    let Some(votes) = votes else {
        let causes = std::iter::successors(error.source(), |&cause| cause.source());
        let text = causes.fold(text, |text, cause| format!("{text}: {cause}"));
        return CliFailure::new(exit, text);
    };
    CliFailure {
        exit,
        message: text.lines().next().unwrap_or_default().to_owned(),
        nodes: votes
            .iter()
            .map(|node| (node.node.clone(), node.said()))
            .collect(),
    }
}
