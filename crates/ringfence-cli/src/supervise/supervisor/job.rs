//! Job control: which process group has the terminal, keys such as Ctrl-C, stops, and signals.

use ringfence::clock::Clock;
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};

use super::super::ending::Ended;
use super::super::schedule::OnLost;
use super::super::signals::{Typed, asks_to_stop, is_for_group};
use super::super::terminal;
use super::{CommandStage, Supervisor};
use crate::duration;

impl Supervisor<'_> {
    /// Set if INT or QUIT ended the command and was typed at the keyboard.
    pub(super) fn typed(&self, ended: Ended) -> Option<Typed> {
        let by = |signal: Signal| ended == Ended::Signal(signal.as_raw());
        if !by(Signal::INT) && !by(Signal::QUIT) {
            return None;
        }
        match self.forwarded {
            Some((signal, typed)) if by(signal) => typed,
            _ => {
                let has_terminal = self.terminal.as_ref()?.is_lent_to(self.command);
                has_terminal.then_some(Typed::ForCommand)
            }
        }
    }

    /// Forwards `signal` to the command, or to its group if a terminal would send it to the group.
    pub(super) fn forward(&mut self, signal: Signal) {
        if [Signal::INT, Signal::QUIT].contains(&signal) {
            let typed = terminal::is_ours_to_type_at().then_some(Typed::ForUs);
            self.forwarded = Some((signal, typed));
        }
        let sent = if is_for_group(signal) {
            self.family.signal_group(signal)
        } else {
            self.family.signal_command(signal)
        };
        if sent == Err(Errno::PERM) {
            let signal = signal.as_raw();
            self.report.warn(&format!(
                "may not forward signal {signal}: the command runs as another user"
            ));
        }
        if asks_to_stop(signal) {
            // A stopped process cannot handle a signal.
            let _ = self.family.signal_group(Signal::CONT);
        }
    }

    /// Stops ringfence after the command was stopped, so that the shell sees a stopped job.
    pub(super) fn command_stopped(&mut self, signal: i32) {
        if !matches!(self.stage, CommandStage::Working) {
            return;
        }
        // Without a terminal, the command was stopped on purpose. Go on renewing the lock.
        let Some(terminal) = self.terminal.as_mut() else {
            return;
        };
        let wants_terminal = [Signal::TTIN, Signal::TTOU]
            .map(Signal::as_raw)
            .contains(&signal);
        if wants_terminal && terminal.is_ours() {
            self.continue_command();
        } else if terminal::is_job_of_a_shell() {
            terminal.reclaim();
            self.warn_of_stop();
            // Stop the whole group, as Ctrl-Z does: the calling script, and the other processes of
            // a pipeline. Returns when the shell has continued us.
            let _ = kill_current_process_group(Signal::STOP);
            self.continue_if_still_held();
        } else if signal == Signal::TSTP.as_raw() {
            let _ = self.family.signal_group(Signal::CONT);
        }
    }

    /// Says what a stop means for the lock: we are stopped, too, and renew nothing.
    fn warn_of_stop(&self) {
        let (now, deadline) = (Clock::System.now(), self.lease.deadline());
        let lock = &self.work.lock;
        let left = duration::show(deadline.since(now));
        let then = match self.work.schedule.on_lost() {
            OnLost::Ignore => "",
            OnLost::Term | OnLost::Kill => "; the command is killed then unless it is continued",
        };
        self.report.warn(&format!(
            "stopped: the lock `{lock}` is not renewed meanwhile, and lasts for {left}{then}"
        ));
    }

    /// The lock was not renewed while we were stopped. If it has ended, the command must not run
    /// for another moment, not even to handle a signal. The watchdog has killed it, or will do so
    /// now.
    fn continue_if_still_held(&mut self) {
        let now = Clock::System.now();
        let deadline = self.lease.deadline();
        if now < self.work.schedule.kill_by(deadline) {
            self.continue_command();
            return;
        }
        self.note_loss("it ended while we were stopped", "killing the command");
        self.kill_all();
    }

    fn continue_command(&mut self) {
        if let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.is_ours()) {
            terminal.lend(self.command);
        }
        let _ = self.family.signal_group(Signal::CONT);
    }

    pub(super) fn reclaim_terminal(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.reclaim();
        }
    }
}
