//! The moment between fork and exec, as a process of its own.
//!
//! What a child has to do before it becomes the command cannot be done safely in a forked copy of
//! this process. So ringfence starts itself again under a name that only it uses, does it there,
//! and lets the command take its place: same process, same group, same death signal.

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

/// What the shim is called in its argument list; no program of that name exists.
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

/// Does the shim's work, in a process that was started for it. Returns only if the command could
/// not be started, with the exit code that says why.
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
    // A parent that died before that was set sends no signal any more.
    if getppid().map(|pid: Pid| OsString::from(pid.to_string())) != Some(parent.clone()) {
        return Err(io::Error::other("ringfence has died meanwhile"));
    }
    if foreground {
        terminal::claim()?;
    }
    // Until here it was the mask of the watchdog, which blocks almost all.
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

/// Elsewhere the command outlives a watchdog that is killed with SIGKILL.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// Our own program. Through `/proc` this is the very file that runs, even if an upgrade has
/// replaced it meanwhile.
pub(super) fn own_program() -> io::Result<PathBuf> {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        std::env::current_exe()
    }
}
