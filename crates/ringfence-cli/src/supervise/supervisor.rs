//! The command as ringfence sees it: what is known of it, and what is done at each event.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::time::Timestamp;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_current_process_group};

use super::death::Typed;
use super::family::Family;
use super::process::Identity;
use super::reap::{Change, Ended, reap};
use super::schedule::{NEVER, OnLost};
use super::signals::{asks_to_stop, is_for_group};
use super::terminal::{self, Terminal};
use super::watchdog::{Event, News, Start, Watchdog};
use super::{KILL_PATIENCE, Lease, Leftovers, Outcome, Work, kill_again_at};
use crate::duration;
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
    Killing { since: Timestamp, told: bool },
}

pub(super) struct Supervisor<'a, L> {
    work: &'a Work,
    lease: &'a L,
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

impl<'a, L: Lease> Supervisor<'a, L> {
    /// Starts the command; `None` if the lock ended before that.
    pub(super) async fn start(
        work: &'a Work,
        lease: &'a L,
        watchdog: &'a mut Watchdog,
        report: Report,
    ) -> io::Result<Option<Self>> {
        watchdog.renew_if_dead()?;
        let mut terminal = Terminal::open();
        let foreground = terminal.as_ref().is_some_and(Terminal::suits_command);
        let known = lease.deadline();
        let pair = |(key, value): &(&str, String)| (OsString::from(key), value.into());
        let mut family = watchdog.start_command(Start {
            lock: work.lock.clone().into(),
            kill_at: work.schedule.watchdog_kills_at(known).as_nanos(),
            foreground,
            argv: work.argv.clone(),
            env: work.env.iter().map(pair).collect(),
        })?;
        let kill_by = work.schedule.kill_by(known);
        let Some(command) = started(watchdog, kill_by).await? else {
            report.error(&format!(
                "lost the lock `{}` before the command could be started",
                work.lock
            ));
            return Ok(None);
        };
        family.led_by(command);
        if let Some(terminal) = terminal.as_mut().filter(|_| foreground) {
            terminal.lent_to(command.pid);
        }
        Ok(Some(Self {
            work,
            lease,
            watchdog,
            known,
            report,
            command: command.pid,
            family,
            terminal,
            ended: None,
            stage: Stage::Working,
            lost: false,
            told_to_end: false,
            passed_on: None,
            typed: None,
        }))
    }

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
            self.lost = true;
            self.report.error(&format!(
                "lost the lock `{}`: ringfence was stopped or stalled and did not renew it in \
                 time; killing the command",
                self.work.lock
            ));
        }
        self.kill_all();
    }

    /// The kernel kills the command, and we the rest: nothing would end it if we were stopped now.
    pub(super) fn watchdog_died(&mut self) {
        if self.watchdog.is_reaped() {
            self.family.watchdog_died();
        }
        if !matches!(self.stage, Stage::Killing { .. }) {
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
        let is_killing = matches!(self.stage, Stage::Killing { .. });
        if end_the_rest && !is_killing && !self.family.is_gone() {
            self.stop_all(Signal::TERM);
        }
    }

    /// Whether INT or QUIT ended the command and came from the keyboard.
    fn typed(&self, ended: Ended) -> Option<Typed> {
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
            Stage::Killing { told, .. } => {
                // A watchdog that died may have known how the command ended, and not said so.
                let is_ended = self.ended.is_some() || self.watchdog.has_died();
                // With the lock gone there is nothing to hold on for.
                (is_ended && self.family.is_gone()) || (told && self.lost)
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
        let now = Clock::System.now();
        let schedule = &self.work.schedule;
        if self.lost {
            return self.stage_wakes_at(now);
        }
        let give_up_at = schedule.give_up_at(self.lease.deadline());
        let look_again_at = schedule.look_again_at(now, self.known);
        self.stage_wakes_at(now).min(give_up_at).min(look_again_at)
    }

    fn stage_wakes_at(&self, now: Timestamp) -> Timestamp {
        match self.stage {
            Stage::Working => NEVER,
            Stage::Ending { kill_at, .. } => kill_at,
            Stage::Killing { since, .. } => kill_again_at(now, since),
        }
    }

    /// Looks at the clock again: meanwhile the deadline may have moved on.
    pub(super) fn time_passed(&mut self) {
        let now = Clock::System.now();
        let deadline = self.lease.deadline();
        if !self.lost && now >= self.work.schedule.give_up_at(deadline) {
            self.lose(&not_renewed(deadline.since(now)));
        }
        match self.stage {
            Stage::Working => {}
            Stage::Ending { since, kill_at } => {
                if now >= kill_at {
                    self.say_that_it_did_not_end(now.since(since));
                    self.kill_all();
                }
            }
            Stage::Killing { since, told } => {
                self.family.signal_all(Signal::KILL);
                if !told && now.since(since) >= KILL_PATIENCE {
                    let alive = self.family.roll_call();
                    self.report
                        .error(&format!("KILL does not end these processes: {alive}"));
                    self.stage = Stage::Killing { since, told: true };
                }
            }
        }
    }

    /// The lock is lost, or will be before it can be renewed.
    pub(super) fn lose(&mut self, why: &str) {
        self.lost = true;
        let doing = match self.work.schedule.on_lost() {
            OnLost::Term => "ending the command",
            OnLost::Kill => "killing the command",
            OnLost::Ignore => "the command goes on without it",
        };
        let lock = &self.work.lock;
        self.report
            .error(&format!("lost the lock `{lock}`: {why}; {doing}"));
        match (self.work.schedule.on_lost(), self.stage) {
            (OnLost::Term, Stage::Working | Stage::Ending { .. }) => self.end_all_before_deadline(),
            (OnLost::Kill, Stage::Working | Stage::Ending { .. }) => self.kill_all(),
            (OnLost::Ignore, _) | (_, Stage::Killing { .. }) => {}
        }
    }

    /// Passes a signal of ours on.
    pub(super) fn forward(&mut self, signal: Signal) {
        if !asks_to_stop(signal) {
            self.pass_on(signal);
            return;
        }
        self.told_to_end = true;
        let now = Clock::System.now();
        match self.stage {
            Stage::Working if self.ended.is_some() => self.stop_all(signal),
            Stage::Working => {
                self.stage = Stage::Ending {
                    since: now,
                    kill_at: self.work.schedule.kill_after_stop(now),
                };
                self.pass_on(signal);
            }
            Stage::Ending { since, kill_at } => {
                let sooner = self.work.schedule.kill_after_second_stop(now);
                self.stage = Stage::Ending {
                    since,
                    kill_at: kill_at.min(sooner),
                };
                self.pass_on(signal);
            }
            Stage::Killing { .. } => {}
        }
    }

    /// Sends `signal` to the command, or to its group if a terminal would.
    fn pass_on(&mut self, signal: Signal) {
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

    /// Asks every process to end, under a lock that is renewed meanwhile.
    fn stop_all(&mut self, signal: Signal) {
        if let Stage::Working = self.stage {
            let now = Clock::System.now();
            self.stage = Stage::Ending {
                since: now,
                kill_at: self.work.schedule.kill_after_stop(now),
            };
        }
        self.ask_all(signal);
    }

    /// Asks every process to end before the lock does.
    fn end_all_before_deadline(&mut self) {
        let now = Clock::System.now();
        let by = self
            .work
            .schedule
            .kill_after_term(now, self.lease.deadline());
        let (since, kill_at) = match self.stage {
            Stage::Ending { since, kill_at } => (since, kill_at.min(by)),
            Stage::Working | Stage::Killing { .. } => (now, by),
        };
        self.stage = Stage::Ending { since, kill_at };
        self.ask_all(Signal::TERM);
    }

    fn ask_all(&self, signal: Signal) {
        self.family.signal_all(signal);
        // A stopped process cannot act on a signal.
        self.family.signal_all(Signal::CONT);
    }

    fn kill_all(&mut self) {
        self.family.signal_all(Signal::KILL);
        self.stage = Stage::Killing {
            since: Clock::System.now(),
            told: false,
        };
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

    /// Follows the command into a stop, so that the shell sees its job stopped.
    fn command_stopped(&mut self, signal: i32) {
        if !matches!(self.stage, Stage::Working) {
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
        self.lost = true;
        self.report.error(&format!(
            "lost the lock `{}`: it ended while we were stopped; killing the command",
            self.work.lock
        ));
        self.kill_all();
    }

    fn go_on(&mut self) {
        if let Some(terminal) = self.terminal.as_mut().filter(|terminal| terminal.is_ours()) {
            terminal.lend(self.command);
        }
        let _ = self.family.signal_group(Signal::CONT);
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }
}

/// Waits until the watchdog has started the command; `None` if it has not by `kill_by`.
async fn started(watchdog: &mut Watchdog, kill_by: Timestamp) -> io::Result<Option<Identity>> {
    loop {
        let news = tokio::select! {
            news = watchdog.news() => news,
            () = Clock::System.sleep_until(kill_by) => return Ok(None),
        };
        match news {
            News::Event(Event::Started(command)) => return Ok(Some(command)),
            News::Event(Event::NotStarted(errno)) => {
                return Err(io::Error::from_raw_os_error(errno));
            }
            News::Event(Event::Overdue) => return Ok(None),
            News::Event(_) => {}
            News::Died => return Err(io::Error::other("the watchdog died")),
            // Stopped perhaps; to one that is not, this means nothing.
            News::Child => watchdog.go_on(),
        }
    }
}

fn not_renewed(left: Duration) -> String {
    let left = duration::show(left);
    format!("it cannot be renewed and ends in {left}")
}
