//! Runs a command while a lock is held, and sees to it that nothing of it outlives the lock.
//!
//! One loop hears of signals, deaths, stops, the lock and the clock, and moves one stage forward:
//! working → ending (asked to) → killing. Taking and freeing the lock is the caller's business.

mod family;
mod reap;
mod schedule;
pub(crate) mod shim;
mod signals;
mod terminal;

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::time::Timestamp;
use rustix::process::{Pid, Signal, kill_current_process_group};
use tokio::signal::unix::{SignalKind, signal};

use crate::report::Report;
use crate::{duration, nodes};
use family::Family;
use reap::{Change, reap};
use schedule::NEVER;
use signals::is_terminating;
use terminal::Terminal;

pub(crate) use reap::Ended;
pub(crate) use schedule::{OnLost, Schedule};
pub(crate) use signals::Signals;

/// KILL goes out again this often, for what was forked while it went out before.
const KILL_AGAIN: Duration = Duration::from_millis(5);
/// A process that outlives KILL for this long hangs in the kernel or belongs to another user.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// What the supervisor has to know of the lock.
pub(crate) trait Lease {
    /// Until when the lock is ours if nothing more is heard from the nodes. Moves on when renewed.
    fn deadline(&self) -> Timestamp;

    /// Completes with the reason once it is certain that the lock is no longer ours.
    fn lost(&self) -> impl Future<Output = String>;
}

/// What becomes of processes that the command left behind when it exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Leftovers {
    /// Let them be; the command may have started a service
    Leave,
    /// Hold the lock until they are gone
    Wait,
    /// End them before the lock is freed
    Term,
}

/// A command and the terms on which it runs.
pub(crate) struct Work {
    /// The lock's name, for people.
    pub(crate) lock: String,
    /// Program and arguments; never empty.
    pub(crate) argv: Vec<OsString>,
    /// What is added to its environment.
    pub(crate) env: Vec<(&'static str, String)>,
    /// When it hears of a lost lock.
    pub(crate) schedule: Schedule,
    /// What becomes of its leftovers.
    pub(crate) leftovers: Leftovers,
}

/// How it went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How the command ended; `None` if it could not be killed.
    pub(crate) ended: Option<Ended>,
    /// Whether the lock was lost before everything had ended.
    pub(crate) lost: bool,
    /// Whether a signal of ours asked to end.
    pub(crate) told_to_end: bool,
}

/// Runs `work` under `lease` until nothing of it is left that must not be.
///
/// Call it on the main thread: the command dies with the *thread* that started it.
pub(crate) async fn supervise(
    work: &Work,
    lease: &impl Lease,
    signals: &mut Signals,
    report: Report,
) -> io::Result<Outcome> {
    signals.listen_for_forwarded()?;
    let mut deaths = signal(SignalKind::child())?;
    let mut supervisor = Supervisor::start(work, lease, report)?;
    let mut lost = pin!(lease.lost());
    loop {
        supervisor.look_after_children()?;
        if let Some(outcome) = supervisor.outcome() {
            supervisor.take_terminal_back();
            return Ok(outcome);
        }
        let wake_at = supervisor.wake_at();
        tokio::select! {
            signal = signals.recv() => supervisor.forward(signal),
            _ = deaths.recv() => {}
            why = &mut lost, if !supervisor.lost => supervisor.lose(&why),
            () = Clock::System.sleep_until(wake_at) => supervisor.time_passed(),
        }
    }
}

/// How far the end of everything has come.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The command works, or with `--leftovers wait` what it left behind.
    Working,
    /// Everyone was asked to end; who is alive at `kill_at` is killed.
    Ending { kill_at: Timestamp },
    /// Everyone gets KILL until nobody is left.
    Killing { since: Timestamp, told: bool },
}

struct Supervisor<'a, L> {
    work: &'a Work,
    lease: &'a L,
    report: Report,
    command: Pid,
    family: Family,
    terminal: Option<Terminal>,
    ended: Option<Ended>,
    stage: Stage,
    lost: bool,
    told_to_end: bool,
}

impl<'a, L: Lease> Supervisor<'a, L> {
    fn start(work: &'a Work, lease: &'a L, report: Report) -> io::Result<Self> {
        let mut family = Family::adopt()?;
        let mut terminal = Terminal::open();
        let foreground = terminal.as_ref().is_some_and(Terminal::suits_command);
        let child = shim::command(&work.argv, foreground)?
            // They may have a password in them; the command is told its nodes without.
            .env_remove(nodes::NODES)
            .env_remove(nodes::NODES_FILE)
            .envs(work.env.iter().map(|(key, value)| (key, value)))
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let command = pid.ok_or_else(|| io::Error::other("the command has no process number"))?;
        family.led_by(command);
        if let Some(terminal) = terminal.as_mut().filter(|_| foreground) {
            terminal.lent_to(command);
        }
        Ok(Self {
            work,
            lease,
            report,
            command,
            family,
            terminal,
            ended: None,
            stage: Stage::Working,
            lost: false,
            told_to_end: false,
        })
    }

    /// Reaps the dead and follows the command when it stops or ends.
    fn look_after_children(&mut self) -> io::Result<()> {
        match reap(self.command)? {
            Some(Change::Stopped(signal)) => self.command_stopped(signal),
            Some(Change::Ended(ended)) => self.command_ended(ended),
            None => {}
        }
        Ok(())
    }

    fn command_ended(&mut self, ended: Ended) {
        self.ended = Some(ended);
        self.family.leader_reaped();
        // From here on Ctrl-C is for us: leftovers are in the background, and may be deaf to it.
        self.take_terminal_back();
        let end_the_rest = ended.is_by_signal() || self.work.leftovers == Leftovers::Term;
        if end_the_rest && matches!(self.stage, Stage::Working) && !self.family.is_gone() {
            self.end_all(Signal::TERM);
        }
    }

    /// What there is to report once nothing is left to wait for.
    fn outcome(&self) -> Option<Outcome> {
        let outcome = Outcome {
            ended: self.ended,
            lost: self.lost && self.work.schedule.on_lost() != OnLost::Ignore,
            told_to_end: self.told_to_end,
        };
        let is_over = match self.stage {
            Stage::Working => match (self.ended, self.work.leftovers) {
                (None, _) => false,
                (Some(_), Leftovers::Wait) => self.family.is_gone(),
                (Some(_), Leftovers::Leave | Leftovers::Term) => true,
            },
            Stage::Ending { .. } => self.ended.is_some() && self.family.is_gone(),
            // With the lock gone there is nothing to hold on for.
            Stage::Killing { told, .. } => {
                let is_gone = self.ended.is_some() && self.family.is_gone();
                is_gone || (told && self.lost)
            }
        };
        is_over.then_some(outcome)
    }

    /// When [`Self::time_passed`] has something to do, unless something else happens first.
    fn wake_at(&self) -> Timestamp {
        let deadline = self.lease.deadline();
        match self.stage {
            Stage::Working if self.lost => NEVER,
            Stage::Working => self.work.schedule.give_up_at(deadline),
            Stage::Ending { kill_at } => kill_at.min(self.work.schedule.kill_by(deadline)),
            Stage::Killing { .. } => Clock::System.now() + KILL_AGAIN,
        }
    }

    /// Looks at the clock again: meanwhile the deadline may have moved on.
    fn time_passed(&mut self) {
        let now = Clock::System.now();
        let deadline = self.lease.deadline();
        match self.stage {
            Stage::Working => {
                if !self.lost && now >= self.work.schedule.give_up_at(deadline) {
                    self.lose(&not_renewed(deadline.since(now)));
                }
            }
            Stage::Ending { kill_at } => {
                if !self.lost && now >= self.work.schedule.kill_by(deadline) {
                    self.lose(&not_renewed(deadline.since(now)));
                }
                if now >= kill_at {
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
    fn lose(&mut self, why: &str) {
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
            (OnLost::Term, Stage::Working) => self.end_all(Signal::TERM),
            (OnLost::Term, Stage::Ending { kill_at }) => {
                let kill_by = self.work.schedule.kill_by(self.lease.deadline());
                self.stage = Stage::Ending {
                    kill_at: kill_at.min(kill_by),
                };
            }
            (OnLost::Kill, Stage::Working | Stage::Ending { .. }) => self.kill_all(),
            (OnLost::Ignore, _) | (_, Stage::Killing { .. }) => {}
        }
    }

    /// Passes a signal of ours on.
    fn forward(&mut self, signal: Signal) {
        self.told_to_end |= is_terminating(signal);
        if !is_terminating(signal) {
            self.family.signal_group(signal);
        } else if let Stage::Working = self.stage {
            self.end_all(signal);
        } else {
            self.family.signal_all(signal);
        }
    }

    fn end_all(&mut self, signal: Signal) {
        let kill_at = self
            .work
            .schedule
            .kill_after_term(Clock::System.now(), self.lease.deadline());
        self.stage = Stage::Ending { kill_at };
        self.family.signal_all(signal);
        // Who is stopped cannot hear.
        self.family.signal_all(Signal::CONT);
    }

    fn kill_all(&mut self) {
        self.stage = Stage::Killing {
            since: Clock::System.now(),
            told: false,
        };
        self.family.signal_all(Signal::KILL);
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
            self.family.signal_group(Signal::CONT);
        }
    }

    /// Nobody renewed the lock while we were stopped. If it has ended, the command must not run for
    /// another moment, not even to handle a signal.
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
        self.family.signal_group(Signal::CONT);
    }

    fn take_terminal_back(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
    }
}

fn not_renewed(left: Duration) -> String {
    let left = duration::show(left);
    format!("it cannot be renewed and ends in {left}")
}
