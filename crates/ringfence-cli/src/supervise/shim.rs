//! A helper program that prepares a child process and then executes the command.
//!
//! The preparation cannot be done safely in a forked copy of this process. So ringfence executes
//! itself as this helper. The helper prepares and then executes the command in its place: the same
//! process, the same group, the same death signal.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{Pid, getpid, getppid};

use super::terminal;
use crate::exit::Exit;
use crate::report::Report;

/// The process name of the shim. No other program has it.
pub(super) const NAME: &str = "ringfence: starting a command";
/// Tells the shim to take the terminal.
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";

/// A command that starts `argv` through the shim, with the signals in `mask` blocked.
pub(super) fn command(argv: &[OsString], foreground: bool, mask: SigSet) -> io::Result<Command> {
    let blocked: Vec<_> = mask
        .iter()
        .map(|signal| (signal as i32).to_string())
        .collect();
    let mut command = Command::new(own_program()?);
    command
        .arg0(NAME)
        .arg(getpid().to_string())
        .arg(if foreground { FOREGROUND } else { BACKGROUND })
        .arg(blocked.join(","))
        .args(argv)
        .process_group(0);
    Ok(command)
}

/// The main function of the shim. Returns only if the command could not be executed, with the exit
/// code for the reason.
pub(super) fn run(mut args: impl Iterator<Item = OsString>, report: Report) -> Option<Exit> {
    let parent = args.next()?;
    let foreground = args.next()? == FOREGROUND;
    let mask = mask(args.next()?.to_str()?);
    let program = args.next()?;
    if let Err(error) = prepare(&parent, foreground, mask) {
        report.error(&format!("cannot start a command: {error}"));
        return Some(Exit::Internal);
    }
    let error = Command::new(&program).args(args).exec();
    report.error(&format!("cannot run `{}`: {error}", program.display()));
    Some(match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    })
}

fn prepare(parent: &OsString, foreground: bool, mask: SigSet) -> io::Result<()> {
    die_with_parent()?;
    // If the parent died before that call, no death signal comes.
    if getppid().map(|pid: Pid| OsString::from(pid.to_string())) != Some(parent.clone()) {
        return Err(io::Error::other("ringfence has died"));
    }
    if foreground {
        terminal::claim()?;
    }
    // Until here the watchdog's mask was inherited, which blocks almost all signals.
    Ok(mask.thread_set_mask()?)
}

fn mask(numbers: &str) -> SigSet {
    let signals = numbers.split(',').filter_map(|number| number.parse().ok());
    let signals = signals.filter_map(|number: i32| NixSignal::try_from(number).ok());
    signals.collect()
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with_parent() -> io::Result<()> {
    use rustix::process::{Signal, set_parent_process_death_signal};
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
