//! The state of a running command, and the reaction to each event.

mod job;
mod start;

use std::io;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use rustix::process::{Pid, Signal};

use super::ending::{Change, Ended, Killing, reap};
use super::family::Family;
use super::schedule::{NEVER, OnLost};
use super::signals::{Typed, asks_to_stop};
use super::terminal::Terminal;
use super::watchdog::{News, Watchdog, WatchdogEvent};
use super::{CommandOutcome, Leftovers, SupervisedCommand};
use crate::duration;
use crate::lease::Lease;
use crate::report::Report;

/// How far the command is on its way to its end.
#[derive(Debug, Clone, Copy)]
enum CommandStage {
    /// The command runs, or with `--leftovers wait` its descendants.
    Working,
    /// The command was asked to end at `since`. Processes that are alive at `kill_at` are killed.
    Ending {
        since: Timestamp,
        kill_at: Timestamp,
    },
    /// All processes get KILL until none is left.
    Killing(Killing),
}

pub(super) struct Supervisor<'a> {
    work: &'a SupervisedCommand,
    lease: &'a Lease,
    watchdog: &'a mut Watchdog,
    /// The deadline that the watchdog was told last.
    known: Timestamp,
    report: Report,
    command: Pid,
    family: Family,
    terminal: Option<Terminal>,
    ended: Option<Ended>,
    stage: CommandStage,
    lost: bool,
    told_to_end: bool,
    /// The last INT or QUIT that we forwarded, and whether it was typed.
    forwarded: Option<(Signal, Option<Typed>)>,
    typed: Option<Typed>,
}

impl Supervisor<'_> {
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// The next event from the watchdog or the system.
    pub(super) async fn news(&mut self) -> News {
        self.watchdog.news().await
    }

    /// Reaps ended children. The command is our child only if the watchdog died.
    pub(super) fn reap_children(&mut self) -> io::Result<()> {
        for (pid, change) in reap()? {
            match change {
                Change::Ended(ended) if pid == self.command => self.command_ended(ended),
                Change::Ended(_) if pid == self.watchdog.pid() => {
                    self.watchdog.was_reaped();
                    self.watchdog_died();
                }
                Change::Stopped(_) if pid == self.watchdog.pid() => self.watchdog.resume(),
                Change::Ended(_) | Change::Stopped(_) => {}
            }
        }
        Ok(())
    }

    /// Handles a message from the watchdog.
    pub(super) fn handle_event(&mut self, event: WatchdogEvent) {
        match event {
            WatchdogEvent::Stopped(signal) => self.command_stopped(signal),
            WatchdogEvent::Ended(ended) => self.command_ended(ended),
            WatchdogEvent::Overdue => self.watchdog_was_first(),
            // The caller checks after each event whether processes are left.
            WatchdogEvent::OtherEnded
            | WatchdogEvent::Started(_)
            | WatchdogEvent::NotStarted(_) => {}
        }
    }

    /// The watchdog kills all processes because it was told of no renewal in time.
    fn watchdog_was_first(&mut self) {
        if !self.lost {
            let why = "ringfence was stopped or stalled and did not renew it in time";
            self.note_loss(why, "killing the command");
        }
        self.kill_all();
    }

    /// The kernel kills the command. We kill the rest at once: without a watchdog, they would
    /// survive if we were stopped.
    pub(super) fn watchdog_died(&mut self) {
        if self.watchdog.is_reaped() {
            self.family.watchdog_died();
        }
        if !self.is_killing() {
            self.report
                .error("the watchdog process was killed; killing the command");
            self.kill_all();
        }
    }

    fn command_ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.typed = self.typed(ended);
        self.family.leader_reaped();
        // From now on Ctrl-C must reach us: leftovers are background processes and may ignore it.
        self.reclaim_terminal();
        let is_asked = matches!(self.stage, CommandStage::Ending { .. });
        let end_the_rest =
            is_asked || ended.is_by_signal() || self.work.leftovers == Leftovers::Term;
        if end_the_rest && !self.is_killing() && !self.family.is_gone() {
            self.stop_all(Signal::TERM);
        }
    }

    /// The result, once all processes that must end have ended.
    pub(super) fn outcome(&self) -> Option<CommandOutcome> {
        let outcome = CommandOutcome {
            ended: self.ended,
            lost: self.lost && self.work.schedule.on_lost() != OnLost::Ignore,
            told_to_end: self.told_to_end,
            typed: self.typed,
        };
        let is_over = match self.stage {
            CommandStage::Working => match (self.ended, self.work.leftovers) {
                (None, _) => false,
                (Some(_), Leftovers::Wait) => self.family.is_gone(),
                (Some(_), Leftovers::Leave | Leftovers::Term) => true,
            },
            CommandStage::Ending { .. } => self.ended.is_some() && self.family.is_gone(),
            CommandStage::Killing(killing) => {
                // A watchdog may have died before it could report how the command ended.
                let is_ended = self.ended.is_some() || self.watchdog.has_died();
                // After a loss there is no lock to hold until the last process has ended.
                (is_ended && self.family.is_gone()) || (killing.is_given_up() && self.lost)
            }
        };
        is_over.then_some(outcome)
    }

    /// Lets the watchdog exit: no process has to be killed any more.
    pub(super) fn leave(&mut self) {
        self.reclaim_terminal();
        self.watchdog.leave();
    }

    /// Tells the watchdog the new deadline after a renewal.
    pub(super) fn inform_watchdog(&mut self) {
        let deadline = self.lease.deadline();
        if deadline > self.known {
            let at = self.work.schedule.watchdog_kills_at(deadline);
            if self.watchdog.kill_at(at) {
                self.known = deadline;
            }
        }
    }

    /// The time of the next action, if no event comes first.
    pub(super) fn wake_at(&self) -> Timestamp {
        let stage_wakes_at = match self.stage {
            CommandStage::Working => NEVER,
            CommandStage::Ending { kill_at, .. } => kill_at,
            CommandStage::Killing(killing) => killing.again_at(),
        };
        if self.lost {
            return stage_wakes_at;
        }
        let schedule = &self.work.schedule;
        let give_up_at = schedule.give_up_at(self.lease.deadline());
        let look_again_at = schedule.look_again_at(Clock::System.now(), self.known);
        stage_wakes_at.min(give_up_at).min(look_again_at)
    }

    /// Acts on the time. A renewal may have moved the deadline meanwhile.
    pub(super) fn time_passed(&mut self) {
        let now = Clock::System.now();
        let deadline = self.lease.deadline();
        if !self.lost && now >= self.work.schedule.give_up_at(deadline) {
            self.lose(&not_renewed(
                deadline.since(now),
                &self.lease.absent_nodes(),
            ));
        }
        match &mut self.stage {
            CommandStage::Ending { since, kill_at } if now >= *kill_at => {
                let after = now.since(*since);
                self.report_overdue(after);
                self.kill_all();
            }
            CommandStage::Working | CommandStage::Ending { .. } => {}
            CommandStage::Killing(killing) => {
                if let Some(trouble) = killing.again(&self.family) {
                    self.report.error(&trouble);
                }
            }
        }
    }

    /// Reacts to a lock that is lost, or that will end before it can be renewed.
    pub(super) fn lose(&mut self, why: &str) {
        let on_lost = self.work.schedule.on_lost();
        let doing = match on_lost {
            OnLost::Term => "ending the command",
            OnLost::Kill => "killing the command",
            OnLost::Ignore => "the command runs on without the lock",
        };
        self.note_loss(why, doing);
        match on_lost {
            _ if self.is_killing() => {}
            OnLost::Term => self.end_all_before_deadline(),
            OnLost::Kill => self.kill_all(),
            OnLost::Ignore => {}
        }
    }

    fn note_loss(&mut self, why: &str, doing: &str) {
        self.lost = true;
        let lock = &self.work.lock;
        self.report
            .error(&format!("lost the lock `{lock}`: {why}; {doing}"));
    }

    /// Handles a signal that ringfence received.
    pub(super) fn handle_signal(&mut self, signal: Signal) {
        if !asks_to_stop(signal) {
            self.forward(signal);
            return;
        }
        self.told_to_end = true;
        let (now, schedule) = (Clock::System.now(), &self.work.schedule);
        match self.stage {
            CommandStage::Working if self.ended.is_some() => return self.stop_all(signal),
            CommandStage::Working => self.kill_all_at(schedule.kill_after_stop(now)),
            CommandStage::Ending { .. } => self.kill_all_at(schedule.kill_after_second_stop(now)),
            CommandStage::Killing(_) => return,
        }
        self.forward(signal);
    }

    /// Asks every process to end. The lock is renewed meanwhile.
    fn stop_all(&mut self, signal: Signal) {
        if let CommandStage::Working = self.stage {
            let now = Clock::System.now();
            self.kill_all_at(self.work.schedule.kill_after_stop(now));
        }
        self.ask_all(signal);
    }

    /// Asks every process to end before the lock ends.
    fn end_all_before_deadline(&mut self) {
        let (now, deadline) = (Clock::System.now(), self.lease.deadline());
        self.kill_all_at(self.work.schedule.kill_after_term(now, deadline));
        self.ask_all(Signal::TERM);
    }

    /// Kills at `kill_at`, or earlier if an earlier time was set before.
    fn kill_all_at(&mut self, kill_at: Timestamp) {
        let (since, before) = match self.stage {
            CommandStage::Working => (Clock::System.now(), NEVER),
            CommandStage::Ending { since, kill_at } => (since, kill_at),
            CommandStage::Killing(_) => return,
        };
        let kill_at = kill_at.min(before);
        self.stage = CommandStage::Ending { since, kill_at };
    }

    fn ask_all(&self, signal: Signal) {
        self.family.signal_all(signal);
        // A stopped process cannot handle a signal.
        self.family.signal_all(Signal::CONT);
    }

    fn kill_all(&mut self) {
        self.stage = CommandStage::Killing(Killing::start(&self.family));
    }

    fn is_killing(&self) -> bool {
        matches!(self.stage, CommandStage::Killing(_))
    }

    /// After a lost lock no message is needed: it was written when the lock was lost.
    fn report_overdue(&self, after: Duration) {
        if !self.lost {
            let what = match self.ended {
                None => "the command",
                Some(_) => "a process of the command",
            };
            let after = duration::show(after);
            self.report.error(&format!(
                "{what} did not end within {after} after it was asked to; killing it"
            ));
        }
    }
}

/// Which nodes do not renew the lock, and why.
fn not_renewed(left: Duration, absent: &[String]) -> String {
    let left = duration::show(left);
    let nodes = match absent {
        [] => String::new(),
        absent => format!(" ({})", absent.join("; ")),
    };
    format!("it cannot be renewed and ends in {left}{nodes}")
}
