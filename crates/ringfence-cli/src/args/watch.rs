//! The arguments of `watch`.

use clap::Args;

use super::{lock_names, name};
use crate::help;

/// Print a line whenever a lock changes hands
///
/// Looks at the lock every 250 ms. What happens between two looks is not seen. Why a
/// client lost the lock or was refused is known to that client only. Looking changes
/// nothing.
#[derive(Debug, Args)]
#[command(after_help = help::WATCH)]
pub(crate) struct WatchArgs {
    /// The name of the lock
    #[arg(value_parser = name, add = lock_names())]
    pub(crate) name: String,
}
