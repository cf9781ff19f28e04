//! One process of a test, a server or a client: sends it signals and ends it.

use std::fs;
use std::process::{Child, ChildStdout, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::wait_until;

/// A child process that does not outlive this value.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts `command`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        match command.spawn() {
            Ok(child) => Self(child),
            Err(error) => panic!("cannot start {:?}: {error}", command.get_program()),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its standard output, if the command has a pipe for it. Can be taken once.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Whether it ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
    }

    /// Stops it (SIGSTOP). It has stopped when this returns.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        wait_until("the process to stop", Duration::from_secs(5), || {
            self.is_paused()
        });
    }

    /// Whether it is stopped (SIGSTOP).
    pub(crate) fn is_paused(&self) -> bool {
        self.state() == Some('T')
    }

    /// Lets it continue.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it with SIGTERM, as an operator would.
    pub(crate) fn terminate(mut self) {
        self.signal(Signal::TERM);
        // A stopped process does not receive SIGTERM.
        self.signal(Signal::CONT);
        wait_until("the process to end", Duration::from_secs(20), || {
            self.has_ended()
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        // The child has not been waited for, so the id is still its own even if it has ended.
        let _ = kill_process(id.expect("a process id is positive"), signal);
    }

    /// The letter that the kernel shows for the state; it follows the name in brackets.
    fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        fields.trim_start().chars().next()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
