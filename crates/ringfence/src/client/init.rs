//! `ringfence init`: the operator declares that a cluster is new, or that no client uses it while
//! its number of nodes changes.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::group::Group;
use crate::node::{CallError, Facts, InitMode, TroubleKind};
use crate::protocol::Cluster;
use crate::runtime::gather::all;

use super::error::ConnectError;
use super::handshake::votes;
use super::inspection::GroupSettings;
use super::votes::{NodeVote, Votes};
use super::{Builder, Locks};

/// How long every node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a node may take to be searched for locks, and a little more than it searches itself.
const SEARCH_PATIENCE: Duration = Duration::from_secs(75);

/// What an `init` did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Initialised {
    /// The values that all nodes of the group have now.
    pub group: GroupSettings,
    /// For how long a restarted node does not vote: the group's quarantine, lengthened by what the
    /// clocks may differ.
    pub quarantine: Duration,
    /// The nodes that would have refused if it had not been forced, and why: of the locks that
    /// these texts name, two clients may now hold the same one.
    pub overridden: Vec<NodeVote>,
}

impl Initialised {
    fn new(locks: &Locks, group: Group, overridden: Vec<NodeVote>) -> Self {
        let drift = locks.shared.settings.drift;
        Self {
            group: group.into(),
            quarantine: Cluster::new(&group, drift, &[]).quarantine(),
            overridden,
        }
    }
}

impl Builder {
    /// Declares a cluster new, so that it can be used at once instead of after the quarantine.
    ///
    /// Refused unless every node answers and no node votes already or holds locks. All nodes are
    /// asked before any is written.
    ///
    /// # Errors
    /// If a node does not answer, or is not new. Nothing was written then.
    pub async fn init(self) -> Result<Initialised, InitError> {
        let locks = self.prepare()?;
        let answers = all_answer(&locks, false).await?;
        let group = locks.shared.settings.wishes.adopt(&answers);
        agreed(&locks, InitMode::Check, group).await?;
        agreed(&locks, InitMode::Write, group).await?;
        Ok(Initialised::new(&locks, group, Vec::new()))
    }

    /// As [`init`](Self::init), but nodes may vote or hold locks. Danger: two clients may then hold
    /// the same lock. [`Initialised::overridden`] names the holders.
    ///
    /// # Errors
    /// If a node does not answer. Nothing was written then.
    pub async fn init_by_force(self) -> Result<Initialised, InitError> {
        let locks = self.prepare()?;
        let answers = all_answer(&locks, true).await?;
        let group = locks.shared.settings.wishes.of_new_group(answers.len());
        let refusals = ask(&locks, InitMode::Check, group).await;
        agreed(&locks, InitMode::Force, group).await?;
        let overridden = refused(&locks, &refusals);
        Ok(Initialised::new(&locks, group, overridden))
    }

    /// Makes one group of these nodes, although some are in one of another number: the way from one
    /// node to three, or from three to five. Values that are not set are those of the old group.
    ///
    /// Only you can know that all clients are stopped, and have been for a quarantine. Refused
    /// unless every node answers, no node holds a lock and no lock was used since. All nodes are
    /// asked before any is written.
    ///
    /// # Errors
    /// If a node does not answer, or is in use. Nothing was written then.
    pub async fn regroup(self) -> Result<Initialised, InitError> {
        let locks = self.prepare()?;
        let answers = all_answer(&locks, false).await?;
        let group = locks.shared.settings.wishes.inherit(&answers);
        agreed(&locks, InitMode::CheckRegroup, group).await?;
        agreed(&locks, InitMode::Regroup, group).await?;
        Ok(Initialised::new(&locks, group, Vec::new()))
    }
}

/// What every node reports of itself, if every one answers and each is a server of its own. With
/// `force` a node whose birth record is of another version counts as an answer, too.
async fn all_answer(
    locks: &Locks,
    force: bool,
) -> Result<Vec<Result<Facts, CallError>>, InitError> {
    let runtime = &locks.shared.runtime;
    let until = runtime.sender.clock.now() + PATIENCE;
    let answers = runtime.sender.probe(until, all).await;
    let names = &locks.shared.names;
    let is_there = |answer: &Result<Facts, CallError>| match answer {
        Ok(_) => true,
        Err(error) => force && error.trouble().kind == TroubleKind::Version,
    };
    if !answers.iter().all(is_there) {
        let votes = Votes::worded("answers", names, votes(&answers));
        return Err(InitError::Unreachable { votes });
    }
    super::duplicate_nodes::refuse(names, &answers).map_err(ConnectError::from)?;
    Ok(answers)
}

async fn ask(locks: &Locks, mode: InitMode, group: Group) -> Vec<Result<Facts, CallError>> {
    let runtime = &locks.shared.runtime;
    let until = runtime.sender.clock.now() + SEARCH_PATIENCE;
    runtime.sender.init(group, mode, until).await
}

/// The same, if every node agrees.
async fn agreed(locks: &Locks, mode: InitMode, group: Group) -> Result<(), InitError> {
    let answers = ask(locks, mode, group).await;
    if answers.iter().all(Result::is_ok) {
        return Ok(());
    }
    let votes = Votes::worded("answers", &locks.shared.names, votes(&answers));
    Err(match mode.regroups() {
        false => InitError::Refused { votes },
        true => InitError::InUse { votes },
    })
}

/// The nodes among `answers` that refused, and why.
fn refused(locks: &Locks, answers: &[Result<Facts, CallError>]) -> Vec<NodeVote> {
    let said = Votes::new(&locks.shared.names, votes(answers));
    let pairs = said.iter().zip(answers);
    let refused = pairs.filter(|(_, answer)| answer.is_err());
    refused.map(|(node, _)| node.clone()).collect()
}

/// Why an `init` was refused.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum InitError {
    /// There is no client to ask the nodes with. Nothing was written.
    Connect(ConnectError),
    /// Not all nodes answered, so nothing was written.
    Unreachable {
        /// Each node's answer.
        votes: Votes,
    },
    /// A node is not new.
    Refused {
        /// Each node's answer.
        votes: Votes,
    },
    /// A node is in use, or was a moment ago.
    InUse {
        /// Each node's answer.
        votes: Votes,
    },
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Connect(error) => return error.fmt(f),
            Self::Unreachable { votes } => votes.told(
                "every node has to answer before a cluster can be initialised",
                "the node has to answer before it can be initialised",
            ),
            Self::Refused { votes } => votes.told("this cluster is not new", "it is not new"),
            Self::InUse { votes } => {
                let text = "this cluster is in use, and its number of nodes must not change under \
                            its clients";
                votes.told(text, text)
            }
        })
    }
}

impl Error for InitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(error) => error.source(),
            other => other.votes().and_then(Votes::as_source),
        }
    }
}

impl From<ConnectError> for InitError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl InitError {
    /// Every node's answer, if the nodes were asked.
    pub fn votes(&self) -> Option<&Votes> {
        match self {
            Self::Connect(error) => error.votes(),
            Self::Unreachable { votes } | Self::Refused { votes } | Self::InUse { votes } => {
                Some(votes)
            }
        }
    }

    /// Whether the same call may succeed later although no setting is changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Unreachable { .. } => true,
            Self::Refused { .. } | Self::InUse { .. } => false,
        }
    }
}
