//! The arguments of the commands on the nodes: `init`, `doctor`.

use std::time::Duration;

use clap::Args;

use super::name;
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
/// Checks every node, and whether the nodes fit together. Changes nothing.
#[derive(Debug, Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct DoctorArgs {
    /// The name of a lock; also checks our user's rights to its keys
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
}
