//! A helper program that prepares a child process and then executes the command.
//!
//! The preparation cannot be done safely in a forked copy of this process. So ringfence executes
//! itself as this helper. The helper prepares and then executes the command in its place: the same
//! process, the same group, the same death signal.
//!
//! To execute a program takes about a millisecond. So the helper starts while ringfence still waits
//! for the lock, and waits for the word to go.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::net::{SendFlags, send};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use serde::{Deserialize, Serialize};

use super::terminal;
use super::watchdog::{recv_descriptor, send_descriptor};
use crate::exit::Exit;
use crate::nodes;
use crate::report::{CliFailure, Report};

/// The process name of the shim. No other program has it.
pub(super) const NAME: &str = "ringfence: starting a command";

/// A shim that waits for the word to go. Dropped before that, it ends.
pub(super) struct Shim {
    pid: Pid,
    stream: UnixStream,
}

/// What a shim has to know when it may execute its command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Go {
    /// Whether the command takes the terminal.
    pub(super) foreground: bool,
    /// Variables that are added to its environment.
    pub(super) env: Vec<(String, String)>,
}

impl Shim {
    /// Starts a shim for `argv`, with this standard input and the signals in `mask` blocked.
    /// It reports in the format of `report` if it cannot execute the command.
    pub(super) fn spawn(
        argv: &[OsString],
        stdin: impl AsFd,
        mask: SigSet,
        report: Report,
    ) -> io::Result<Self> {
        let blocked: Vec<_> = mask
            .iter()
            .map(|signal| (signal as i32).to_string())
            .collect();
        let (stream, theirs) = UnixStream::pair()?;
        // Its own standard input is the socket.
        send_descriptor(&stream, stdin)?;
        let child = Command::new(own_program()?)
            .arg0(NAME)
            .arg(getpid().to_string())
            .arg(blocked.join(","))
            .arg(report.format())
            .args(argv)
            .stdin(OwnedFd::from(theirs))
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the command has no process number"))?;
        Ok(Self { pid, stream })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets it execute the command. Does not wait: another process may have stopped it.
    ///
    /// # Errors
    /// [`BrokenPipe`](io::ErrorKind::BrokenPipe) if it was killed while it waited.
    pub(super) fn go(self, go: &Go) -> io::Result<()> {
        let body = serde_json::to_vec(go)?;
        let message = [&body.len().to_le_bytes()[..], &body].concat();
        // It is our child and was not reaped, so the number is still its own. Before the message:
        // after it the command may run, and a person may have stopped it.
        kill_process(self.pid, Signal::CONT)?;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match send(&self.stream, &message, flags) {
            Ok(sent) if sent == message.len() => Ok(()),
            // An environment that does not fit into a socket does not fit into a process either.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Err(rustix::io::Errno::TOOBIG.into()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The main function of the shim. Returns only if the command could not be executed, with the exit
/// code for the reason.
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> Option<Exit> {
    let parent = args.next()?;
    let mask = mask(args.next()?.to_str()?);
    let report = Report::of_format(&args.next()?);
    let program = args.next()?;
    let go = match prepare(&parent, mask) {
        Ok(Some(go)) => go,
        // The lock was not taken.
        Ok(None) => return Some(Exit::Success),
        Err(error) => {
            report.error(&format!("cannot start a command: {error}"));
            return Some(Exit::Internal);
        }
    };
    // The node list may contain a password. `go.env` names the nodes without passwords.
    let error = Command::new(&program)
        .args(args)
        .env_remove(nodes::NODES)
        .env_remove(nodes::NODES_FILE)
        .envs(go.env)
        .exec();
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    };
    let text = format!("cannot run `{}`: {error}", program.display());
    report.failure(&CliFailure::new(exit, text));
    Some(exit)
}

/// Prepares this process and waits for the word to go; `None` if there will be none.
fn prepare(parent: &OsString, mask: SigSet) -> io::Result<Option<Go>> {
    die_with_parent()?;
    // If the parent ended before that call, no death signal comes. That is usual if the lock was
    // refused at once.
    if getppid().map(|pid: Pid| OsString::from(pid.to_string())) != Some(parent.clone()) {
        return Ok(None);
    }
    let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = recv_descriptor(&stream)?;
    let Some(go) = wait_for_go(&mut stream)? else {
        return Ok(None);
    };
    rustix::stdio::dup2_stdin(stdin)?;
    if go.foreground {
        terminal::claim()?;
    }
    // Until here the watchdog's mask was inherited, which blocks almost all signals.
    mask.thread_set_mask()?;
    Ok(Some(go))
}

fn wait_for_go(stream: &mut UnixStream) -> io::Result<Option<Go>> {
    let mut length = [0; size_of::<usize>()];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut body = vec![0; usize::from_le_bytes(length)];
    stream.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

fn mask(numbers: &str) -> SigSet {
    let signals = numbers.split(',').filter_map(|number| number.parse().ok());
    let signals = signals.filter_map(|number: i32| NixSignal::try_from(number).ok());
    signals.collect()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with_parent() -> io::Result<()> {
    use rustix::process::set_parent_process_death_signal;
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// On other systems the command survives a watchdog that is killed with SIGKILL.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// The path of our own program. `/proc/self/exe` is the file that runs, even if an upgrade has
/// replaced it.
pub(super) fn own_program() -> io::Result<PathBuf> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    }
}
