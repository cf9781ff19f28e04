//! Ends ringfence by a signal, so that the calling shell stops its script.
//!
//! After Ctrl-C a shell stops its script if the shell got INT itself and its command died of INT.
//! If the command exits with 130, the script goes on. A process dies of a signal only without a
//! handler for it. We have handlers, and there is no safe call to remove them. A new program starts
//! without handlers, so ringfence executes itself as a program that only sends the signal to
//! itself.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, Signal, getpid, kill_current_process_group, kill_process, setrlimit,
};

use super::shim::own_program;
use crate::exit::Exit;

/// The process name of this helper. No other program has it.
pub(super) const NAME: &str = "ringfence: dying of a signal";

/// Which processes the terminal sent a signal to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    /// To our process group, which includes the shell that runs our script.
    ForUs,
    /// To the command's group, which had the terminal. Our own group has not received it yet.
    ForCommand,
}

const GROUP: &str = "group";

/// Dies of `signal`. Returns only if that fails.
pub(crate) fn die_of(signal: i32, typed: Typed) -> io::Error {
    match own_program() {
        Ok(program) => Command::new(program)
            .arg0(NAME)
            .arg(signal.to_string())
            .args((typed == Typed::ForCommand).then_some(GROUP))
            .exec(),
        Err(error) => error,
    }
}

/// Sends the signal in the arguments. Returns only if this process ignores it.
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> Option<Exit> {
    let number: i32 = args.next()?.to_str()?.parse().ok()?;
    let signal = [Signal::INT, Signal::QUIT]
        .into_iter()
        .find(|signal| signal.as_raw() == number)?;
    // QUIT writes a core file. One of this helper is of no use.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    if args.next().is_some_and(|arg| arg == GROUP) {
        let _ = kill_current_process_group(signal);
    }
    let _ = kill_process(getpid(), signal);
    Some(Exit::Signal(number))
}
