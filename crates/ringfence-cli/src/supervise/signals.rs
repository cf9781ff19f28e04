//! The signals that ringfence itself receives.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

/// Signals that end ringfence while it waits for a lock.
const TERMINATING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Signals that ask a running command to stop. If it has not after the grace, it is killed.
const STOPPING: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::QUIT];

/// Signals that a terminal sends to a process group and not to a process.
const OF_A_TERMINAL: [Signal; 6] = [
    Signal::INT,
    Signal::QUIT,
    Signal::HUP,
    Signal::TSTP,
    Signal::CONT,
    Signal::WINCH,
];

/// Signals that a command may give a meaning to; ringfence gives them none.
const FORWARDED: [Signal; 5] = [
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// A stream of signals sent to this process.
pub(crate) struct Signals {
    /// Inherited as ignored, say from `nohup`: not ours to hear, and passed on to the command.
    ignored: u64,
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Listens for the signals that end things. Until then they end this process on the spot, with
    /// whatever it had set on the nodes.
    pub(crate) fn terminating() -> io::Result<Self> {
        let mut signals = Self {
            ignored: ignored_signals(),
            streams: Vec::new(),
        };
        signals.listen(&TERMINATING)?;
        Ok(signals)
    }

    /// Listens also for what is only passed on. While there is no command to pass it on to, such
    /// a signal keeps its usual effect.
    pub(super) fn listen_for_forwarded(&mut self) -> io::Result<()> {
        self.listen(&FORWARDED)
    }

    fn listen(&mut self, signals: &[Signal]) -> io::Result<()> {
        for &signal in signals {
            let heard = self.streams.iter().any(|(known, _)| *known == signal);
            if !heard && self.ignored & (1 << (signal.as_raw() - 1)) == 0 {
                let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
                self.streams.push((signal, stream));
            }
        }
        Ok(())
    }

    /// The next signal that asks to end, while there is no command. Of the others, which are heard
    /// once there was a command, only the one that stops has a meaning.
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

    /// The next signal. Cancelling loses none.
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

/// Whether `signal` asks a running command to stop.
pub(super) fn asks_to_stop(signal: Signal) -> bool {
    STOPPING.contains(&signal)
}

/// Whether `signal` goes to the command's whole group.
pub(super) fn is_for_group(signal: Signal) -> bool {
    OF_A_TERMINAL.contains(&signal)
}

/// The mask of signals that this process was started with as ignored; empty where there is no
/// `/proc` to tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
