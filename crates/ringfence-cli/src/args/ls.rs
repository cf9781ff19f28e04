//! The arguments of `ls`.

use clap::Args;

use crate::help;

/// List the locks that are held or queued for
///
/// Shows kind, holder, the time left of the lease, fence, waiters, and how many nodes
/// have the holder. There is no index: the nodes are searched, at most one per cent
/// of their time. Looking changes nothing.
#[derive(Debug, Args)]
#[command(after_help = help::LS)]
pub(crate) struct LsArgs {
    /// Only names that match: `*` is any text, `?` is one character
    pub(crate) pattern: Option<String>,
    /// Show the list again and again, until Ctrl-C
    #[arg(long, conflicts_with = "broken")]
    pub(crate) watch: bool,
    /// Show the holds that operators broke: who, when, why
    #[arg(long)]
    pub(crate) broken: bool,
}
