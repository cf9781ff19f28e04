//! The command as ringfence sees it: what is known of it, and what is done at each event.

mod job;
mod start;

use std::io;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;
use rustix::process::{Pid, Signal};

use super::death::Typed;
use super::family::Family;
use super::killing::Killing;
use super::reap::{Change, Ended, reap};
use super::schedule::{NEVER, OnLost};
use super::signals::asks_to_stop;
use super::terminal::Terminal;
use super::watchdog::{Event, News, Watchdog};
use super::{Leftovers, Outcome, Work};
use crate::duration;
use crate::lease::Lease;
use crate::report::Report;

/// How far the end of everything has come.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The command works, or with `--leftovers wait` its descendants.
    Working,
    /// The command was asked to end at `since`. What is alive at `kill_at` is killed.
    Ending {
        since: Timestamp,
        kill_at: Timestamp,
    },
    /// Everything gets KILL until nothing is left.
    Killing(Killing),
}

pub(super) struct Supervisor<'a> {
    work: &'a Work,
    lease: &'a Lease,
    watchdog: &'a mut Watchdog,
    /// The deadline that the watchdog knows.
    known: Timestamp,
    report: Report,
    command: Pid,
    family: Family,
    terminal: Option<Terminal>,
    ended: Option<Ended>,
    stage: Stage,
    lost: bool,
    told_to_end: bool,
    /// INT or QUIT that we passed on, and whether it was typed.
    passed_on: Option<(Signal, Option<Typed>)>,
    typed: Option<Typed>,
}

impl Supervisor<'_> {
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// What the watchdog or the system tells next.
    pub(super) async fn news(&mut self) -> News {
        self.watchdog.news().await
    }

    /// Reaps the dead. The command is among them only if the watchdog died.
    pub(super) fn look_after_children(&mut self) -> io::Result<()> {
        for (pid, change) in reap()? {
            match change {
                Change::Ended(ended) if pid == self.command => self.command_ended(ended),
                Change::Ended(_) if pid == self.watchdog.pid() => {
                    self.watchdog.was_reaped();
                    self.watchdog_died();
                }
                Change::Stopped(_) if pid == self.watchdog.pid() => self.watchdog.go_on(),
                Change::Ended(_) | Change::Stopped(_) => {}
            }
        }
        Ok(())
    }

    /// Follows what the watchdog says of the command.
    pub(super) fn heard(&mut self, event: Event) {
        match event {
            Event::Stopped(signal) => self.command_stopped(signal),
            Event::Ended(ended) => self.command_ended(ended),
            Event::Overdue => self.watchdog_was_first(),
            // A reason to look again at what is left.
            Event::OtherEnded | Event::Started(_) | Event::NotStarted(_) => {}
        }
    }

    /// The watchdog kills everything because it heard of no renewal.
    fn watchdog_was_first(&mut self) {
        if !self.lost {
            let why = "ringfence was stopped or stalled and did not renew it in time";
            self.note_loss(why, "killing the command");
        }
        self.kill_all();
    }

    /// The kernel kills the command, and we the rest: nothing would end it if we were stopped now.
    pub(super) fn watchdog_died(&mut self) {
        if self.watchdog.is_reaped() {
            self.family.watchdog_died();
        }
        if !self.is_killing() {
            self.report
                .error("the process that watches over the command was killed; killing the command");
            self.kill_all();
        }
    }

    fn command_ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.typed = self.typed(ended);
        self.family.leader_reaped();
        // From here on Ctrl-C is for us: leftovers are in the background, and may be deaf to it.
        self.take_terminal_back();
        let is_asked = matches!(self.stage, Stage::Ending { .. });
        let end_the_rest =
            is_asked || ended.is_by_signal() || self.work.leftovers == Leftovers::Term;
        if end_the_rest && !self.is_killing() && !self.family.is_gone() {
            self.stop_all(Signal::TERM);
        }
    }

    /// What there is to report once nothing is left to wait for.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let outcome = Outcome {
            ended: self.ended,
            lost: self.lost && self.work.schedule.on_lost() != OnLost::Ignore,
            told_to_end: self.told_to_end,
            typed: self.typed,
        };
        let is_over = match self.stage {
            Stage::Working => match (self.ended, self.work.leftovers) {
                (None, _) => false,
                (Some(_), Leftovers::Wait) => self.family.is_gone(),
                (Some(_), Leftovers::Leave | Leftovers::Term) => true,
            },
            Stage::Ending { .. } => self.ended.is_some() && self.family.is_gone(),
            Stage::Killing(killing) => {
                // A watchdog that died may have known how the command ended, and not said so.
                let is_ended = self.ended.is_some() || self.watchdog.has_died();
                // With the lock gone there is nothing to hold on for.
                (is_ended && self.family.is_gone()) || (killing.is_given_up() && self.lost)
            }
        };
        is_over.then_some(outcome)
    }

    /// Ends the watch: nothing is left that has to be killed.
    pub(super) fn leave(&mut self) {
        self.take_terminal_back();
        self.watchdog.leave();
    }

    /// Tells the watchdog of a renewal.
    pub(super) fn tell_watchdog(&mut self) {
        let deadline = self.lease.deadline();
        if deadline > self.known {
            let at = self.work.schedule.watchdog_kills_at(deadline);
            if self.watchdog.kill_at(at) {
                self.known = deadline;
            }
        }
    }

    /// When there is something to do, unless something else happens first.
    pub(super) fn wake_at(&self) -> Timestamp {
        let stage_wakes_at = match self.stage {
            Stage::Working => NEVER,
            Stage::Ending { kill_at, .. } => kill_at,
            Stage::Killing(killing) => killing.again_at(),
        };
        if self.lost {
            return stage_wakes_at;
        }
        let schedule = &self.work.schedule;
        let give_up_at = schedule.give_up_at(self.lease.deadline());
        let look_again_at = schedule.look_again_at(Clock::System.now(), self.known);
        stage_wakes_at.min(give_up_at).min(look_again_at)
    }

    /// Looks at the clock again: meanwhile the deadline may have moved on.
    pub(super) fn time_passed(&mut self) {
        let now = Clock::System.now();
        let deadline = self.lease.deadline();
        if !self.lost && now >= self.work.schedule.give_up_at(deadline) {
            self.lose(&not_renewed(deadline.since(now)));
        }
        match &mut self.stage {
            Stage::Ending { since, kill_at } if now >= *kill_at => {
                let after = now.since(*since);
                self.say_that_it_did_not_end(after);
                self.kill_all();
            }
            Stage::Working | Stage::Ending { .. } => {}
            Stage::Killing(killing) => {
                if let Some(trouble) = killing.again(&self.family) {
                    self.report.error(&trouble);
                }
            }
        }
    }

    /// The lock is lost, or will be before it can be renewed.
    pub(super) fn lose(&mut self, why: &str) {
        let on_lost = self.work.schedule.on_lost();
        let doing = match on_lost {
            OnLost::Term => "ending the command",
            OnLost::Kill => "killing the command",
            OnLost::Ignore => "the command goes on without it",
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

    /// Passes a signal of ours on.
    pub(super) fn forward(&mut self, signal: Signal) {
        if !asks_to_stop(signal) {
            self.pass_on(signal);
            return;
        }
        self.told_to_end = true;
        let (now, schedule) = (Clock::System.now(), &self.work.schedule);
        match self.stage {
            Stage::Working if self.ended.is_some() => return self.stop_all(signal),
            Stage::Working => self.kill_all_at(schedule.kill_after_stop(now)),
            Stage::Ending { .. } => self.kill_all_at(schedule.kill_after_second_stop(now)),
            Stage::Killing(_) => return,
        }
        self.pass_on(signal);
    }

    /// Asks every process to end, under a lock that is renewed meanwhile.
    fn stop_all(&mut self, signal: Signal) {
        if let Stage::Working = self.stage {
            let now = Clock::System.now();
            self.kill_all_at(self.work.schedule.kill_after_stop(now));
        }
        self.ask_all(signal);
    }

    /// Asks every process to end before the lock does.
    fn end_all_before_deadline(&mut self) {
        let (now, deadline) = (Clock::System.now(), self.lease.deadline());
        self.kill_all_at(self.work.schedule.kill_after_term(now, deadline));
        self.ask_all(Signal::TERM);
    }

    /// What has been asked to end has until `kill_at`, or less if it was told so before.
    fn kill_all_at(&mut self, kill_at: Timestamp) {
        let (since, before) = match self.stage {
            Stage::Working => (Clock::System.now(), NEVER),
            Stage::Ending { since, kill_at } => (since, kill_at),
            Stage::Killing(_) => return,
        };
        let kill_at = kill_at.min(before);
        self.stage = Stage::Ending { since, kill_at };
    }

    fn ask_all(&self, signal: Signal) {
        self.family.signal_all(signal);
        // A stopped process cannot act on a signal.
        self.family.signal_all(Signal::CONT);
    }

    fn kill_all(&mut self) {
        self.stage = Stage::Killing(Killing::start(&self.family));
    }

    fn is_killing(&self) -> bool {
        matches!(self.stage, Stage::Killing(_))
    }

    /// The end of the grace for a lost lock was announced when it was lost.
    fn say_that_it_did_not_end(&self, after: Duration) {
        if !self.lost {
            let what = match self.ended {
                None => "the command",
                Some(_) => "what the command started",
            };
            let after = duration::show(after);
            self.report.error(&format!(
                "{what} did not end within {after} of being asked to; killing it"
            ));
        }
    }
}

fn not_renewed(left: Duration) -> String {
    let left = duration::show(left);
    format!("it cannot be renewed and ends in {left}")
}
