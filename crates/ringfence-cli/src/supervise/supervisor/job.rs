//! The command as a job of a shell: who has the terminal, what is typed there, stops and signals.

use ringfence::clock::Clock;
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};

use super::super::death::Typed;
use super::super::reap::Ended;
use super::super::signals::{asks_to_stop, is_for_group};
use super::super::terminal;
use super::{CommandStage, Supervisor};

impl Supervisor<'_> {
    /// Whether INT or QUIT ended the command and came from the keyboard.
    pub(super) fn typed(&self, ended: Ended) -> Option<Typed> {
        let by = |signal: Signal| ended == Ended::Signal(signal.as_raw());
        if !by(Signal::INT) && !by(Signal::QUIT) {
            return None;
        }
        match self.passed_on {
            Some((signal, typed)) if by(signal) => typed,
            _ => {
                let has_terminal = self.terminal.as_ref()?.is_lent_to(self.command);
                has_terminal.then_some(Typed::ForCommand)
            }
        }
    }

    /// Sends `signal` to the command, or to its group if a terminal would.
    pub(super) fn pass_on(&mut self, signal: Signal) {
        if [Signal::INT, Signal::QUIT].contains(&signal) {
            let typed = terminal::is_ours_to_type_at().then_some(Typed::ForUs);
            self.passed_on = Some((signal, typed));
        }
        let sent = if is_for_group(signal) {
            self.family.signal_group(signal)
        } else {
            self.family.signal_command(signal)
        };
        if sent == Err(Errno::PERM) {
            let signal = signal.as_raw();
            self.report.warn(&format!(
                "may not pass signal {signal} on: the command runs as another user"
            ));
        }
        if asks_to_stop(signal) {
            // A stopped process cannot act on a signal.
            let _ = self.family.signal_group(Signal::CONT);
        }
    }

    /// Follows the command into a stop, so that the shell sees its job stopped.
    pub(super) fn command_stopped(&mut self, signal: i32) {
        if !matches!(self.stage, CommandStage::Working) {
            return;
        }
        // Without a terminal somebody stopped the command on purpose, and the lock is still ours.
        let Some(terminal) = self.terminal.as_mut() else {
            return;
        };
        let wants_terminal = [Signal::TTIN, Signal::TTOU]
            .map(Signal::as_raw)
            .contains(&signal);
        if wants_terminal && terminal.is_ours() {
            self.go_on();
        } else if terminal::is_job_of_a_shell() {
            terminal.take_back();
            // The whole group, like Ctrl-Z: a script that called us, our neighbours in a pipeline.
            // Returns when the shell has continued us.
            let _ = kill_current_process_group(Signal::STOP);
            self.go_on_if_still_held();
        } else if signal == Signal::TSTP.as_raw() {
            let _ = self.family.signal_group(Signal::CONT);
        }
    }

    /// Nobody renewed the lock while we were stopped. If it has ended, the command must not run for
    /// another moment, not even to handle a signal. The watchdog has killed it, or will now.
    fn go_on_if_still_held(&mut self) {
        let now = Clock::System.now();
        let deadline = self.lease.deadline();
        if now < self.work.schedule.kill_by(deadline) {
            self.go_on();
            return;
        }
        self.note_loss("it ended while we were stopped", "killing the command");
        self.kill_all();
    }

    fn go_on(&mut self) {
        if let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.is_ours()) {
            terminal.lend(self.command);
        }
        let _ = self.family.signal_group(Signal::CONT);
    }

    pub(super) fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }
}
