//! `ringfence ls`: the locks that are held or queued for, or those that operators broke. Changes
//! nothing.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Duration;

#[cfg(test)]
use ringfence::Locks;
#[cfg(test)]
use ringfence::admin::ListError;
use ringfence::admin::{ListStep, ListedBreak, ListedLock, Listing, LockState, NodeSearch};
use serde_json::{Value, json};

use super::{CommandContext, json};
use crate::args::LsArgs;
use crate::config::fits;
use crate::exit::Exit;
use crate::report::{CliFailure, print, printable, reader_has_gone, write_stream};
use crate::row::{LockRow, SeenName, millis};

/// The shortest time between two lists of `--watch`.
const BETWEEN_LISTS: Duration = Duration::from_secs(2);

/// About how much memory the locks of a list may take. A hostile node could send more.
const LIST_MAX_BYTES: usize = 64 << 20;

/// Lists the locks once.
pub(super) async fn ls(context: &CommandContext, args: LsArgs) -> Result<Exit, CliFailure> {
    if args.broken {
        return broken(context, args.pattern.as_deref()).await;
    }
    let mut listing = listing(context, args.pattern);
    let (_, exit) = round(context, &mut listing, |list| list.text(columns())).await?;
    Ok(exit)
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
        Some(pattern) => listing.only(move |name| fits(&pattern, name)),
    }
}

/// The locks of one round.
#[derive(Default)]
pub(crate) struct RoundList {
    /// As many as [`LIST_MAX_BYTES`] allow.
    locks: BTreeMap<String, ListedLock>,
    /// Every name that was listed.
    names: BTreeSet<String>,
    unreadable: usize,
    nodes: Vec<NodeSearch>,
    /// Whether a majority of the nodes votes.
    has_quorum: bool,
    took: Duration,
    /// Why locks are missing, if they are.
    shortened: Option<String>,
    /// Whether it is unknown of a lock that is not kept here whether it is held.
    hides_unknown: bool,
}

impl RoundList {
    /// What a whole round found, and the lines of its JSON.
    #[cfg(test)]
    pub(crate) async fn collect(locks: &Locks) -> Result<(Self, Vec<Value>), ListError> {
        let found = locks.list().collect().await?;
        let mut lines: Vec<Value> = found.locks.iter().map(json::listed).collect();
        let list = Self {
            has_quorum: found.has_quorum(),
            shortened: shortened(&found.nodes),
            names: found.locks.iter().map(|lock| lock.name.clone()).collect(),
            locks: found
                .locks
                .into_iter()
                .map(|lock| (lock.name.clone(), lock))
                .collect(),
            unreadable: found.unreadable.len(),
            nodes: found.nodes,
            took: found.took,
            hides_unknown: false,
        };
        lines.push(list.end());
        Ok((list, lines))
    }

    pub(crate) fn text(&self, columns: usize) -> String {
        table::text(self, columns)
    }

    /// What the list shows, as of now.
    fn rows(&self) -> Vec<LockRow> {
        let listed = self.locks.values();
        listed
            .flat_map(|listed| SeenName::listed(listed, 0).rows())
            .collect()
    }

    /// The last line of a round.
    fn end(&self) -> Value {
        let failed = self.nodes.iter().filter_map(|node| {
            let error = node.error.as_ref()?;
            Some(json!({"node": node.node, "error": error.to_string()}))
        });
        json!({
            "complete": true,
            "quorum": self.has_quorum,
            "locks": self.names.len(),
            "shortened": self.shortened.is_some(),
            "unreadable": self.unreadable,
            "took_ms": millis(self.took),
            "failed": failed.collect::<Vec<_>>(),
            "not_listed": "plain locks and locks of other libraries",
        })
    }

    /// 69 if a majority of the nodes does not vote, if locks are missing, or if it is unknown of a lock
    /// in the list whether it is held: a script must not take that for *free*.
    pub(crate) fn exit(&self) -> Exit {
        let hides = self.hides_unknown || self.shortened.is_some();
        match self.has_quorum && !hides && !self.rows().iter().any(is_unknown) {
            true => Exit::Success,
            false => Exit::NoQuorum,
        }
    }
}

/// Searches one round. As JSON a line is written as soon as a lock is found, as text the whole list
/// at the end. Returns also how `ls` exits.
async fn round(
    context: &CommandContext,
    listing: &mut Listing,
    text: impl Fn(&RoundList) -> String,
) -> Result<(ControlFlow<()>, Exit), CliFailure> {
    let report = context.report;
    let mut list = RoundList {
        has_quorum: true,
        ..RoundList::default()
    };
    let mut bytes = 0;
    loop {
        let step: ListStep = listing.step().await?;
        bytes += step.memory();
        let is_shortened = step.is_shortened();
        let lost = std::mem::replace(&mut list.has_quorum, step.has_quorum()) && !list.has_quorum;
        if lost && report.json {
            report.warn(&table::no_majority(&step.nodes));
        }
        for lock in step.locks {
            if report.json && report.stream("", &json::listed(&lock))?.is_break() {
                return Ok((ControlFlow::Break(()), list.exit()));
            }
            list.names.insert(lock.name.clone());
            if bytes <= LIST_MAX_BYTES {
                list.locks.insert(lock.name.clone(), lock);
            } else {
                let rows = SeenName::listed(&lock, 0).rows();
                list.hides_unknown |= rows.iter().any(is_unknown);
            }
        }
        if is_shortened {
            list.shortened = shortened(&step.nodes);
        } else if !report.json && bytes > LIST_MAX_BYTES {
            let what = format!("the others take more than {} MiB", LIST_MAX_BYTES >> 20);
            list.shortened = Some(ends_after(list.locks.len(), &what));
        }
        list.unreadable += step.unreadable.len();
        (list.nodes, list.took) = (step.nodes, step.round_age);
        if step.complete {
            break;
        }
    }
    if let Some(why) = list.shortened.as_ref().filter(|_| report.json) {
        report.warn(why);
    }
    let went_on = match report.json {
        true => report.stream("", &list.end())?,
        false => write_stream(&format!("{}\n", printable_list(&text(&list))))?,
    };
    Ok((went_on, list.exit()))
}

fn is_unknown(row: &LockRow) -> bool {
    row.state == LockState::Unknown
}

/// Why the list ends early, by the nodes that were not searched to their end.
fn shortened(nodes: &[NodeSearch]) -> Option<String> {
    let cut = |node: &NodeSearch| Some((&node.node, node.cut_after?)).map(|(n, c)| (n.clone(), c));
    let (node, names) = nodes.iter().find_map(cut)?;
    Some(ends_after(names, &format!("{node} has more")))
}

fn ends_after(names: usize, why: &str) -> String {
    format!("the list ends after {names} names: {why}; a pattern lists fewer (`ls 'orders:*'`)")
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
        breaks.retain(|one| fits(pattern, &one.name));
    }
    let report = context.report;
    let nodes = context.locks.node_names().len();
    for one in &breaks {
        let text = table::broken(one, nodes);
        if report.stream(&text, &broken_json(one))?.is_break() {
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

fn broken_json(one: &ListedBreak) -> Value {
    json!({
        "name": one.name,
        "slot": one.slot,
        "ago_ms": millis(one.ago),
        "by": one.note.by,
        "reason": one.note.reason,
        "label": one.note.label,
        "id": one.note.id,
        "fence": one.note.ballot.get(),
        "new_fence": one.note.fence.get(),
        "nodes": one.nodes,
    })
}
