//! The arguments of the commands on the nodes and the settings: `init`, `doctor`, `config`.

use std::time::Duration;

use clap::Args;

use super::{lock_names, name};
use crate::{duration, help};

/// Declare that the nodes are a new cluster, so that they vote at once
///
/// A node that has no record of its past may have forgotten locks. It does not vote
/// until those locks have expired. Only you can know that there were none.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// How long a restarted node does not vote; the longest TTL is 5s less
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) quarantine: Option<Duration>,
    /// Proceed even if nodes hold locks or already vote; prints the holders whose
    /// lock a second client may then hold too
    #[arg(long)]
    pub(crate) force: bool,
    /// Change the number of nodes of a cluster; all clients must have been stopped
    /// for at least the quarantine
    #[arg(long, conflicts_with = "force")]
    pub(crate) regroup: bool,
}

/// Check the nodes: what is wrong, and what to do
///
/// Checks every node, and whether the nodes fit together. Changes nothing, unless
/// --try is given.
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct DoctorArgs {
    /// The name of a lock; also checks our user's rights to its keys
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: Option<String>,
    /// Behind Sentinels: also log in to the replicas, and compare their clocks
    ///
    /// User and password are sent to every address that the master lists as a replica.
    #[arg(long)]
    pub(crate) replicas: bool,
    /// Also take a lock of the doctor's own on all nodes, and release it: finds what no
    /// node tells
    #[arg(long = "try")]
    pub(crate) try_lock: bool,
}

/// Show the settings in force, and where each comes from
///
/// Nodes, files and the defaults of locks: what is in force, and whether a flag, the
/// environment or a file says so, or nothing does (default). Passwords are not shown.
#[derive(Debug, Args)]
#[command(after_help = help::CONFIG)]
pub(crate) struct ConfigArgs {
    /// The name of a lock; shows the settings of the patterns that fit it
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: Option<String>,
}
