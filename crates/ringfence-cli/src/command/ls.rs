//! `ringfence ls`: the locks that are held or queued for, or those that operators broke. Changes
//! nothing.

mod json;
mod pattern;
mod table;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Duration;

#[cfg(test)]
use ringfence::{ListError, Locks};
use ringfence::{ListStep, ListedLock, Listing, NodeSearch};
#[cfg(test)]
use serde_json::Value;

use super::CommandContext;
use crate::args::ls::LsArgs;
use crate::exit::Exit;
use crate::report::{CliFailure, print, printable, reader_has_gone, write_stream};

/// The shortest time between two lists of `--watch`.
const BETWEEN_LISTS: Duration = Duration::from_secs(2);

/// Lists the locks once.
pub(super) async fn ls(context: &CommandContext, args: LsArgs) -> Result<Exit, CliFailure> {
    if args.broken {
        return broken(context, args.pattern.as_deref()).await;
    }
    let mut listing = listing(context, args.pattern);
    let (_, has_quorum) = round(context, &mut listing, |list| list.text(columns())).await?;
    Ok(match has_quorum {
        true => Exit::Success,
        false => Exit::NoQuorum,
    })
}

/// Lists the locks again and again.
pub(super) async fn watch(context: &CommandContext, args: LsArgs) -> Result<Exit, CliFailure> {
    let mut listing = listing(context, args.pattern);
    let is_terminal = io::stdout().is_terminal();
    loop {
        let went_on = round(context, &mut listing, |list| match is_terminal {
            true => redrawn(&list.text(columns())),
            false => list.text(columns()) + "\n",
        });
        if went_on.await?.0.is_break() || pause().await.is_break() {
            return Ok(Exit::Success);
        }
    }
}

/// Waits until the next list. `Break` if its reader has gone.
async fn pause() -> ControlFlow<()> {
    tokio::time::sleep(BETWEEN_LISTS).await;
    match reader_has_gone() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

fn listing(context: &CommandContext, pattern: Option<String>) -> Listing {
    let listing = context.locks.list();
    match pattern {
        None => listing,
        Some(pattern) => listing.only(move |name| pattern::matches(&pattern, name)),
    }
}

/// The locks of one round.
pub(super) struct RoundList {
    locks: BTreeMap<String, ListedLock>,
    unreadable: usize,
    nodes: Vec<NodeSearch>,
    /// Whether a majority of the nodes votes.
    pub(super) has_quorum: bool,
    took: Duration,
}

impl RoundList {
    /// What a whole round found, and the lines of its JSON.
    #[cfg(test)]
    pub(super) async fn collect(locks: &Locks) -> Result<(Self, Vec<Value>), ListError> {
        let found = locks.list().collect().await?;
        let mut lines: Vec<Value> = found.locks.iter().map(json::lock).collect();
        let list = Self {
            has_quorum: found.has_quorum(),
            locks: found
                .locks
                .into_iter()
                .map(|lock| (lock.name.clone(), lock))
                .collect(),
            unreadable: found.unreadable.len(),
            nodes: found.nodes,
            took: found.took,
        };
        lines.push(json::end(&list));
        Ok((list, lines))
    }

    pub(super) fn text(&self, columns: usize) -> String {
        table::text(self, columns)
    }
}

/// Searches one round. As JSON a line is written as soon as a lock is found, as text the whole list
/// at the end. Returns also whether a majority of the nodes votes.
async fn round(
    context: &CommandContext,
    listing: &mut Listing,
    text: impl Fn(&RoundList) -> String,
) -> Result<(ControlFlow<()>, bool), CliFailure> {
    let report = context.report;
    let mut list = RoundList {
        locks: BTreeMap::new(),
        unreadable: 0,
        nodes: Vec::new(),
        has_quorum: true,
        took: Duration::ZERO,
    };
    loop {
        let step: ListStep = listing.step().await?;
        let lost = std::mem::replace(&mut list.has_quorum, step.has_quorum()) && !list.has_quorum;
        if lost && report.json {
            report.warn(&table::no_majority(&step.nodes));
        }
        for lock in step.locks {
            if report.json && report.stream("", &json::lock(&lock))?.is_break() {
                return Ok((ControlFlow::Break(()), list.has_quorum));
            }
            list.locks.insert(lock.name.clone(), lock);
        }
        list.unreadable += step.unreadable.len();
        (list.nodes, list.took) = (step.nodes, step.round_age);
        if step.complete {
            break;
        }
    }
    let went_on = match report.json {
        true => report.stream("", &json::end(&list))?,
        false => write_stream(&format!("{}\n", printable_list(&text(&list))))?,
    };
    Ok((went_on, list.has_quorum))
}

/// Escapes control characters in `text`, but not the two sequences with which it begins if it is
/// drawn again.
fn printable_list(text: &str) -> String {
    match text.strip_prefix(REDRAW) {
        Some(rest) => format!("{REDRAW}{}", printable(rest)),
        None => printable(text),
    }
}

/// Moves to the first line and erases the screen.
const REDRAW: &str = "\x1b[H\x1b[2J";

/// The list as it is drawn over the last one: no more lines than the terminal has.
fn redrawn(text: &str) -> String {
    let rows = rows();
    let lines: Vec<&str> = text.lines().collect();
    let end = table::footer_lines(&lines);
    let (locks, footer) = lines.split_at(lines.len() - end);
    let room = rows.saturating_sub(footer.len() + 1);
    let mut shown: Vec<String> = locks.iter().map(|line| (*line).to_owned()).collect();
    if shown.len() > room {
        let hidden = shown.len() - room.saturating_sub(1);
        shown.truncate(room.saturating_sub(1));
        shown.push(format!("… and {hidden} more"));
    }
    shown.extend(footer.iter().map(|line| (*line).to_owned()));
    format!("{REDRAW}{}", shown.join("\n"))
}

async fn broken(context: &CommandContext, pattern: Option<&str>) -> Result<Exit, CliFailure> {
    let mut breaks = context.locks.list_breaks().await?;
    if let Some(pattern) = pattern {
        breaks.retain(|one| pattern::matches(pattern, &one.name));
    }
    let report = context.report;
    let nodes = context.locks.node_names().len();
    for one in &breaks {
        let text = table::broken(one, nodes);
        if report.stream(&text, &json::broken(one))?.is_break() {
            return Ok(Exit::Success);
        }
    }
    if breaks.is_empty() && !report.json {
        print("no operator broke a lock lately")?;
    }
    Ok(Exit::Success)
}

/// How wide the list may be.
fn columns() -> usize {
    size().map_or(80, |(columns, _)| columns.clamp(60, 200))
}

fn rows() -> usize {
    size().map_or(24, |(_, rows)| rows.max(6))
}

/// The size of the terminal, if there is one that tells it.
fn size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (columns > 0 && rows > 0).then_some((columns, rows))
}
