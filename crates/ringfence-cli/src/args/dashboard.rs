//! The arguments of `dashboard`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::help;

/// Show nodes, locks and a time line in the browser
///
/// Serves one page and a JSON API, and shows who holds what, who waits, and which
/// node is sick, as it happens. It only looks, unless --allow-break is given.
#[derive(Debug, Args)]
#[command(after_help = help::DASHBOARD)]
pub(crate) struct DashboardArgs {
    /// Where to listen; an address that is not loopback needs --token-file
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7471")]
    pub(crate) listen: SocketAddr,
    /// A file with the token that viewers need, at least 16 characters
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Answer requests for this host name too, such as that of a proxy; repeatable
    #[arg(long, value_name = "HOST")]
    pub(crate) allowed_host: Vec<String>,
    /// Let viewers with the token break locks
    #[arg(long, requires = "token_file")]
    pub(crate) allow_break: bool,
}
