//! What `run`, `elect` and `acquire` show while they wait for a lock.
//!
//! On a terminal one line on stderr that is drawn again. Without a terminal a line when it changes,
//! at most every 30 s, so that a log of a long wait stays short.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use ringfence::admin::{Inspection, LockState, NodeStatus, WaiterInspection};
use ringfence::clock::Clock;
use ringfence_core::group::Group;
use ringfence_core::time::Timestamp;

use super::CommandContext;
use super::status::{lease, unknown, who};
use crate::duration;
use crate::report::{one_line, shortened, with_causes, wrapped};

/// A wait that is shorter than this is not shown.
const SILENT: Duration = Duration::from_secs(1);
/// How often the nodes are asked on a terminal, and how often without one.
const LOOK_TERMINAL: Duration = Duration::from_secs(1);
const LOOK_LOG: Duration = Duration::from_secs(5);
/// The shortest time between two lines of a log.
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// What is waited for.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// The lock, exclusive or shared.
    Lock,
    /// A permit of a semaphore with so many.
    Permit(u32),
}

/// Shows what stands in the way until it is dropped. Never ends.
pub(super) async fn show(context: &CommandContext, name: &str, wanted: Wanted) -> ! {
    let began = Clock::System.now();
    tokio::time::sleep(SILENT).await;
    let is_terminal = io::stderr().is_terminal() && !context.report.json;
    let mut line = WaitingLine::new(context, is_terminal);
    loop {
        let why = obstacle(context, name, wanted).await;
        line.show(
            &format!("waiting for `{}`{}", shortened(name), why.text),
            &why.cause,
            began,
        );
        let pause = if is_terminal { LOOK_TERMINAL } else { LOOK_LOG };
        tokio::time::sleep(pause).await;
    }
}

/// The line about a wait. It is erased when the wait ends.
struct WaitingLine<'a> {
    context: &'a CommandContext,
    is_terminal: bool,
    /// The cause that was last written, and when.
    written: Option<(String, Timestamp)>,
}

impl<'a> WaitingLine<'a> {
    fn new(context: &'a CommandContext, is_terminal: bool) -> Self {
        Self {
            context,
            is_terminal,
            written: None,
        }
    }

    /// `cause` is the text without its times: only a new cause is worth another line in a log.
    fn show(&mut self, text: &str, cause: &str, began: Timestamp) {
        if self.context.report.quiet {
            return;
        }
        let now = Clock::System.now();
        if self.is_terminal {
            let waited = duration::show(Duration::from_secs(now.since(began).as_secs()));
            let text = one_line(&format!("ringfence: {text} ({waited})"));
            // Wrapped lines cannot be erased.
            let text = shortened_to(&text, columns().saturating_sub(1));
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
            self.written = Some((cause.to_owned(), now));
            return;
        }
        if is_news(self.written.as_ref(), cause, now) {
            self.context.report.warn(text);
            self.written = Some((cause.to_owned(), now));
        }
    }
}

impl Drop for WaitingLine<'_> {
    fn drop(&mut self) {
        if self.is_terminal && self.written.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// `text`, or its first words if it has more than `width` characters.
fn shortened_to(text: &str, width: usize) -> String {
    let words = wrapped(text, width.saturating_sub(1));
    match &words[..] {
        [first, _, ..] => format!("{first}…"),
        _ => text.to_owned(),
    }
}

/// Whether a log gets another line: for the first cause at once, for a new one 30 s after the last
/// line at the earliest.
fn is_news(written: Option<&(String, Timestamp)>, cause: &str, now: Timestamp) -> bool {
    match written {
        None => true,
        Some((before, at)) => before != cause && now.since(*at) >= BETWEEN_LINES,
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    match size.map_or(0, |size| usize::from(size.ws_col)) {
        // A terminal that does not tell its size.
        0 => 80,
        columns => columns.max(20),
    }
}

/// What stands in the way: the whole text, and the part that does not change every second.
struct Obstacle {
    text: String,
    cause: String,
}

impl Obstacle {
    fn new(cause: String, times: &str) -> Self {
        Self {
            text: format!("{cause}{times}"),
            cause,
        }
    }
}

async fn obstacle(context: &CommandContext, name: &str, wanted: Wanted) -> Obstacle {
    let nodes = context.locks.nodes().await;
    if let Some((who, left, advice)) = quarantine(&nodes) {
        return Obstacle::new(format!(": {who} "), &format!("in {left}{advice}"));
    }
    match wanted {
        Wanted::Permit(permits) => {
            let seen = context.locks.semaphore(name, permits).inspect().await;
            let seen = match seen {
                Ok(seen) => seen,
                Err(error) => return Obstacle::new(format!(": {}", with_causes(&error)), ""),
            };
            let place = place(seen.waiting, &seen.queue);
            let taken = match (seen.state(), seen.unknown()) {
                (LockState::Unknown, unknown) => {
                    format!("unknown, no majority: {unknown} of {permits} permits may be taken")
                }
                (LockState::Free, _) => String::new(),
                (LockState::Held, _) if permits == 1 => "its 1 permit is taken".to_owned(),
                (LockState::Held, _) => format!("all {permits} permits are taken"),
            };
            Obstacle::new(format!(": {taken}{place}"), "")
        }
        Wanted::Lock => match context.locks.inspect(name).await {
            Err(error) => Obstacle::new(format!(": {}", with_causes(&error)), ""),
            Ok(seen) if seen.state == LockState::Unknown => {
                Obstacle::new(format!(": {}", unknown(&seen)), "")
            }
            Ok(seen) => {
                let place = place(seen.waiting, &seen.queue);
                let Some(holder) = seen.holders.first() else {
                    return match fence_ahead(&seen, &nodes) {
                        None => Obstacle::new(place, ""),
                        Some(left) => Obstacle::new(
                            ": its fence is ahead of the nodes' clocks, because a clock was set back"
                                .to_owned(),
                            &format!("; it can be granted in {}", duration::show_ceil(left)),
                        ),
                    };
                };
                let held = match seen.holder_count {
                    _ if seen.kept => format!(", kept after {} released it", who(holder)),
                    2.. => format!(", shared by {}", seen.holder_count),
                    _ => format!(", held by {}", who(holder)),
                };
                let held_for = holder.held_for.filter(|_| !seen.kept);
                let held_for = held_for.map(|span| format!(" for {}", duration::show(span)));
                let times = format!(
                    "{}; {}",
                    held_for.unwrap_or_default(),
                    lease(holder.remaining, seen.kept)
                );
                Obstacle::new(format!("{held}{place}"), &times)
            }
        },
    }
}

/// Our place in the queue, if it is near the front, and how many wait.
fn place(waiting: u64, queue: &[WaiterInspection]) -> String {
    match queue.iter().position(|waiter| waiter.own) {
        Some(0) if waiting <= 1 => ", next in the queue".to_owned(),
        Some(place) => format!(", number {} of {waiting} in the queue", place + 1),
        None if waiting > 1 => format!(", {waiting} in the queue"),
        None => String::new(),
    }
}

/// If too few nodes vote because some are new or were restarted: which nodes vote, and when, and what
/// to do. Nodes that do not answer come first.
fn quarantine(nodes: &[NodeStatus]) -> Option<(String, String, &'static str)> {
    let silent = nodes.iter().filter(|node| node.facts.is_err());
    let silent: Vec<&str> = silent.map(|node| node.node.as_str()).collect();
    let young = nodes.iter().filter(|node| node.quarantine.is_some());
    let young: Vec<&str> = young.map(|node| node.node.as_str()).collect();
    let answering = nodes.iter().filter(|node| node.facts.is_ok());
    let mut left: Vec<Duration> = answering
        .map(|node| node.quarantine.unwrap_or_default())
        .collect();
    left.sort_unstable();
    // The time after which a majority votes.
    let left = left.get(nodes.len() / 2).filter(|left| !left.is_zero())?;
    let who = match &young[..] {
        [one] => format!("{one} votes"),
        [others @ .., last] => format!("{} and {last} vote", others.join(", ")),
        [] => return None,
    };
    let left = duration::show_ceil(*left);
    // A cluster of which nodes are down is not new.
    Some(match &silent[..] {
        [] => (who, left, "; for a new cluster run `ringfence init`"),
        [one] => (format!("{one} has not answered, {who}"), left, ""),
        several => {
            let several = several.join(", ");
            (format!("{several} have not answered, {who}"), left, "")
        }
    })
}

/// For how much longer no majority can grant the lock, because its fence is further ahead of the
/// nodes' clocks than the window allows.
fn fence_ahead(seen: &Inspection, nodes: &[NodeStatus]) -> Option<Duration> {
    let blocked = seen.nodes.iter().zip(nodes).map(|(seen, node)| {
        let group = node.facts.as_ref().ok().and_then(|facts| facts.group);
        let window = group.map_or(Group::DEFAULT_WINDOW, |group| group.window);
        seen.fence_ahead().saturating_sub(window)
    });
    let mut blocked: Vec<Duration> = blocked.collect();
    blocked.sort_unstable();
    blocked
        .get(nodes.len() / 2)
        .copied()
        .filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_ends_after_a_word() {
        assert_eq!(shortened_to("held by a", 10), "held by a");
        assert_eq!(
            shortened_to("held by a, next in the queue", 20),
            "held by a, next in…"
        );
    }

    #[test]
    fn a_log_gets_a_line_for_a_new_cause_and_at_most_one_in_30_seconds() {
        let began = Timestamp::ZERO + Duration::from_secs(100);
        let after = |secs| began + Duration::from_secs(secs);
        let written = ("held by a".to_owned(), began);
        assert!(is_news(None, "held by a", began));
        assert!(!is_news(Some(&written), "held by b", after(29)));
        assert!(is_news(Some(&written), "held by b", after(30)));
        assert!(!is_news(Some(&written), "held by a", after(3600)));
    }
}
