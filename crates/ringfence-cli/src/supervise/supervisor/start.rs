//! Starts a command: tells the watchdog to start it, and waits for the answer.

use std::io;

use ringfence::clock::Clock;
use ringfence_core::time::Timestamp;

use super::super::SupervisedCommand;
use super::super::process::ProcessIdentity;
use super::super::terminal::Terminal;
use super::super::watchdog::{News, Start, Watchdog, WatchdogEvent};
use super::{CommandStage, Supervisor};
use crate::lease::Lease;
use crate::report::Report;

impl<'a> Supervisor<'a> {
    /// Starts the command; `None` if the lock ended before that.
    pub(in super::super) async fn start(
        work: &'a SupervisedCommand,
        lease: &'a Lease,
        watchdog: &'a mut Watchdog,
        report: Report,
    ) -> io::Result<Option<Self>> {
        watchdog.renew_if_dead()?;
        let mut terminal = Terminal::open();
        let foreground = terminal.as_ref().is_some_and(Terminal::suits_command);
        let known = lease.deadline();
        let pair = |(key, value): &(&str, String)| ((*key).to_owned(), value.clone());
        let mut family = watchdog.start_command(Start {
            lock: work.lock.clone(),
            kill_at: work.schedule.watchdog_kills_at(known).as_nanos(),
            foreground,
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
            stage: CommandStage::Working,
            lost: false,
            told_to_end: false,
            forwarded: None,
            typed: None,
        }))
    }
}

/// Waits until the watchdog has started the command; `None` if it has not by `kill_by`.
async fn started(
    watchdog: &mut Watchdog,
    kill_by: Timestamp,
) -> io::Result<Option<ProcessIdentity>> {
    loop {
        let news = tokio::select! {
            news = watchdog.news() => news,
            () = Clock::System.sleep_until(kill_by) => return Ok(None),
        };
        match news {
            News::Event(WatchdogEvent::Started(command)) => return Ok(Some(command)),
            News::Event(WatchdogEvent::NotStarted(errno)) => {
                return Err(io::Error::from_raw_os_error(errno));
            }
            News::Event(WatchdogEvent::Overdue) => return Ok(None),
            News::Event(_) => {}
            News::Died => return Err(io::Error::other("the watchdog died")),
            // The watchdog may be stopped. To a running one this signal does nothing.
            News::Child => watchdog.resume(),
        }
    }
}
