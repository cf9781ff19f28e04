//! The arguments of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::{duration, help};

/// Offer locks to programs in every language, over HTTP on a Unix socket
///
/// One process per machine or pod. A program holds a lock for as long as its request
/// is open; ringfence renews the lock and tells the program if it is lost.
#[derive(Debug, Args)]
#[command(after_help = help::SERVE)]
pub(crate) struct ServeArgs {
    /// The socket [default: $XDG_RUNTIME_DIR/ringfence.sock; for root
    /// /run/ringfence/ringfence.sock]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// The mode of the socket; every user who may write to it may take locks
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = mode)]
    pub(crate) socket_mode: u32,
    /// The group of the socket, by name or number
    #[arg(long, value_name = "GROUP")]
    pub(crate) socket_group: Option<String>,
    /// Also listen on this loopback address; needs --token-file
    #[arg(long, value_name = "ADDR:PORT", requires = "token_file")]
    pub(crate) listen: Option<SocketAddr>,
    /// A file with the token that clients of --listen need, at least 16 characters
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// The longest time for which a request may hold a lock, unless it asks for less
    /// [default: no limit]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,
    /// After SIGTERM, wait this long for the clients that hold locks
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::parse)]
    pub(crate) stop_grace: Duration,
    /// Also serve the dashboard on this loopback address
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) dashboard: Option<SocketAddr>,
}

/// A mode in octal digits, as `chmod` takes it.
fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "expected a mode in octal digits, such as 0600 or 0660".to_owned())
}
