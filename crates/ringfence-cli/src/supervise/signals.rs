//! The signals that ringfence itself receives, and how it dies of one.
//!
//! After Ctrl-C a shell stops its script if the shell got INT itself and its command died of INT. If the
//! command exits with 130, the script goes on. A process dies of a signal only without a handler for it.
//! We have handlers, and there is no safe call to remove them. A new program starts without handlers, so
//! ringfence executes itself as a program that only sends the signal to itself.

use std::ffi::OsString;
use std::future::poll_fn;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::task::Poll;

use rustix::process::{
    Resource, Rlimit, Signal, getpid, kill_current_process_group, kill_process, setrlimit,
};
use tokio::signal::unix::{self, SignalKind};

use super::shim::own_program;
use crate::exit::Exit;

/// Signals that end ringfence while it waits for a lock.
const TERMINATING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Signals that ask a running command to end. If it has not ended after the grace, it is killed.
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::QUIT];

/// Signals that a terminal sends to a whole process group.
const OF_A_TERMINAL: [Signal; 6] = [
    Signal::INT,
    Signal::QUIT,
    Signal::HUP,
    Signal::TSTP,
    Signal::CONT,
    Signal::WINCH,
];

/// Signals that may have a meaning for the command. ringfence only forwards them.
const FORWARDED: [Signal; 5] = [
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// A stream of signals sent to this process.
pub(crate) struct Signals {
    /// Signals that were ignored when ringfence started, for example by `nohup`. ringfence leaves
    /// them ignored, and the command inherits that.
    ignored: u64,
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Handles the signals that ask ringfence to end. Without a handler they would end this process
    /// at once, and leave unfinished attempts on the nodes.
    pub(crate) fn terminating() -> io::Result<Self> {
        let mut signals = Self {
            ignored: ignored_signals(),
            streams: Vec::new(),
        };
        signals.listen(&TERMINATING)?;
        Ok(signals)
    }

    /// Also handles the signals that are only forwarded. Before there is a command, they keep their
    /// default effect.
    pub(super) fn listen_for_forwarded(&mut self) -> io::Result<()> {
        self.listen(&FORWARDED)
    }

    fn listen(&mut self, signals: &[Signal]) -> io::Result<()> {
        for &signal in signals {
            let known = self.streams.iter().any(|(other, _)| *other == signal);
            if !known && self.ignored & (1 << (signal.as_raw() - 1)) == 0 {
                let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
                self.streams.push((signal, stream));
            }
        }
        Ok(())
    }

    /// The next signal that asks ringfence to end, while there is no command. Of the forwarded
    /// signals, which are handled after a first command, only TSTP has an effect here.
    pub(crate) async fn asked_to_end(&mut self) -> Signal {
        loop {
            match self.recv().await {
                signal if TERMINATING.contains(&signal) => return signal,
                Signal::TSTP => {
                    // Returns when the shell has continued us.
                    let _ = kill_process(getpid(), Signal::STOP);
                }
                _ => {}
            }
        }
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether `signal` asks a running command to end.
pub(super) fn asks_to_stop(signal: Signal) -> bool {
    STOPPING.contains(&signal)
}

/// Whether `signal` goes to the command's whole group.
pub(super) fn is_for_group(signal: Signal) -> bool {
    OF_A_TERMINAL.contains(&signal)
}

/// The mask of signals that were ignored when this process started; empty without `/proc`.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

/// The process name of the helper that dies of a signal. No other program has it.
pub(super) const DYING: &str = "ringfence: dying of a signal";

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
            .arg0(DYING)
            .arg(signal.to_string())
            .args((typed == Typed::ForCommand).then_some(GROUP))
            .exec(),
        Err(error) => error,
    }
}

/// Sends the signal in the arguments. Returns only if this process ignores it.
pub(super) fn die(mut args: impl Iterator<Item = OsString>) -> Option<Exit> {
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
