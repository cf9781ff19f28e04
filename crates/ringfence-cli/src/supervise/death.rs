//! Dying of a signal, so that a shell around us stops its script.
//!
//! After Ctrl-C a shell stops its script if it got INT itself and its command died of INT; after a
//! command that exits with 130 it goes on. To die of a signal it must have its default effect, but
//! ours are handled, and there is no safe call to undo that. A new program starts without handlers:
//! so ringfence becomes one that does nothing but send the signal.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, Signal, getpid, kill_current_process_group, kill_process, setrlimit,
};

use super::shim::own_program;
use crate::exit::Exit;

/// What this is called in its argument list; no program of that name exists.
pub(super) const NAME: &str = "ringfence: dying of a signal";

/// Which processes the terminal sent a signal to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    /// To our process group, the shell that runs our script included.
    ForUs,
    /// To the command's group, which had the terminal: our own group has not got it yet.
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

/// Sends the signal that the arguments name. Returns only if it is ignored.
pub(super) fn run(mut args: impl Iterator<Item = OsString>) -> Option<Exit> {
    let number: i32 = args.next()?.to_str()?.parse().ok()?;
    let signal = [Signal::INT, Signal::QUIT]
        .into_iter()
        .find(|signal| signal.as_raw() == number)?;
    // QUIT writes a core file. It would be ours and of no use.
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
