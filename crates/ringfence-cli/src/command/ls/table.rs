//! The text of `ls`: an aligned table that fits the terminal, and lines about the search below it.

use ringfence::{
    HolderKind, Inspection, LatchInspection, ListedBreak, ListedLock, LockState, NodeSearch,
    SemaphoreInspection, Vote,
};

use super::RoundList;
use crate::command::status::text::who;
use crate::duration;
use crate::report::{one_line, said_after, shortened, shortened_to};

const HEADER: [&str; 7] = ["NAME", "KIND", "HOLDER", "LEASE", "FENCE", "WAIT", "VOTES"];
/// The columns that are shortened if the table is too wide, and how narrow they may become.
const NAME: usize = 0;
const HOLDER: usize = 2;
const NAME_LEAST: usize = 16;
const HOLDER_LEAST: usize = 10;
/// The space between two columns.
const GAP: usize = 1;
/// How the last line of every list begins.
const LAST: &str = "Plain locks and";

type Row = [String; 7];

/// The list, at most `columns` wide if that is possible.
pub(super) fn text(list: &RoundList, columns: usize) -> String {
    let rows: Vec<Row> = list.locks.values().flat_map(rows).collect();
    let mut lines = match (rows.is_empty(), list.has_quorum) {
        (true, true) => vec!["nothing is held or queued for".to_owned()],
        (true, false) => vec!["nothing is known to be held".to_owned()],
        (false, _) => aligned(&rows, columns),
    };
    if !list.has_quorum {
        lines.insert(0, no_majority(&list.nodes));
    }
    lines.push(searched(list));
    let failed = list.nodes.iter();
    lines.extend(failed.filter_map(|node| {
        let why = match (&node.error, node.discount) {
            (Some(error), _) => said_after(&node.node, &error.to_string()),
            (None, Some(discount)) => Vote::from(discount).to_string(),
            (None, None) => return None,
        };
        Some(format!("  {}: {}", node.node, one_line(&why)))
    }));
    if list.unreadable > 0 {
        let names = if list.unreadable == 1 {
            "name"
        } else {
            "names"
        };
        lines.push(format!("{} {names} could not be read", list.unreadable));
    }
    lines.push(format!(
        "{LAST} locks of other libraries have no record; they are not listed."
    ));
    lines.join("\n")
}

/// The first line of a list without a majority.
pub(super) fn no_majority(nodes: &[NodeSearch]) -> String {
    let voting = nodes.iter().filter(|node| node.votes()).count();
    format!(
        "no majority: {voting} of {} nodes vote; this is what the nodes have that answer",
        nodes.len()
    )
}

/// How many of the last `lines` are about the search.
pub(super) fn footer_lines(lines: &[&str]) -> usize {
    let is_first = |line: &&&str| line.starts_with("Searched ");
    let first = lines.iter().rev().position(|line| is_first(&line));
    first.map_or(0, |first| first + 1)
}

fn searched(list: &RoundList) -> String {
    let done = list.nodes.iter().filter(|node| node.error.is_none());
    let (done, all) = (done.count(), list.nodes.len());
    let ages = list.locks.values().map(ListedLock::age);
    let age = ages.max().unwrap_or_default();
    let nodes = match (done, all) {
        (1, 1) => "the node".to_owned(),
        (done, all) if done == all => format!("all {all} nodes"),
        (done, all) => format!("{done} of {all} nodes"),
    };
    let took = duration::show(list.took);
    format!(
        "Searched {nodes} in {took}; the oldest line is {} old.",
        duration::show(age)
    )
}

/// One row for each thing with this name.
fn rows(listed: &ListedLock) -> Vec<Row> {
    let lock = listed.lock.as_ref().map(of_lock);
    let semaphore = listed.semaphore.as_ref().map(of_semaphore);
    let latch = listed.latch.as_ref().map(of_latch);
    let rows = [lock, semaphore, latch].into_iter().flatten();
    let named = rows.map(|[kind, holder, lease, fence, waiting, votes]| {
        let name = one_line(&listed.name);
        [name, kind, holder, lease, fence, waiting, votes]
    });
    named.collect()
}

fn of_lock(lock: &Inspection) -> [String; 6] {
    let kind = match lock.kind {
        None if lock.state == LockState::Unknown => "unknown",
        None => "free",
        Some(_) if lock.kept => "kept",
        Some(HolderKind::Exclusive) => "exclusive",
        Some(HolderKind::Shared) => "shared",
        Some(_) => "plain",
    };
    let holder = match (lock.holders.first(), lock.holder_count) {
        // Who it is on the nodes that answer.
        (None, _) if lock.state == LockState::Unknown => {
            let reported = lock.reported.first().map(|one| who(&one.holder));
            reported.unwrap_or_default()
        }
        (None, _) => String::new(),
        (Some(first), 0 | 1) => who(first),
        (Some(first), count) => format!("{count}: {}, …", who(first)),
    };
    let lease = match (lock.is_held(), lock.remaining) {
        (false, _) => String::new(),
        (true, Some(left)) => duration::show(left),
        (true, None) => "no end".to_owned(),
    };
    let fence = lock
        .fence
        .map(|fence| fence.to_string())
        .unwrap_or_default();
    let (votes, nodes) = (votes(lock), lock.nodes.len());
    let votes = format!("{votes}/{nodes}");
    [
        kind.to_owned(),
        holder,
        lease,
        fence,
        waiting(lock.waiting),
        votes,
    ]
}

fn of_semaphore(seen: &SemaphoreInspection) -> [String; 6] {
    let held = || seen.slots.iter().filter(|slot| slot.is_held());
    let first = held().find_map(|slot| slot.holders.first());
    let more = if seen.taken() > 1 { ", …" } else { "" };
    let first = first.map(|first| format!(": {}{more}", who(first)));
    let taken = match seen.unknown() {
        0 => seen.taken().to_string(),
        unknown => format!("{}+{unknown}?", seen.taken()),
    };
    let holder = format!("{taken}/{}{}", seen.permits, first.unwrap_or_default());
    // Until the next permit is free.
    let lease = held().filter_map(|slot| slot.remaining).min();
    let fewest = held().map(|slot| (votes(slot), slot.nodes.len())).min();
    let votes = fewest.map(|(votes, nodes)| format!("{votes}/{nodes}"));
    [
        "semaphore".to_owned(),
        holder,
        lease.map(duration::show).unwrap_or_default(),
        String::new(),
        waiting(seen.waiting),
        votes.unwrap_or_default(),
    ]
}

fn of_latch(seen: &LatchInspection) -> [String; 6] {
    let nothing = String::new;
    let holder = format!("{} arrived", seen.arrived);
    [
        "latch".to_owned(),
        holder,
        nothing(),
        nothing(),
        waiting(seen.waiting),
        nothing(),
    ]
}

fn waiting(waiting: u64) -> String {
    match waiting {
        0 => String::new(),
        waiting => waiting.to_string(),
    }
}

/// How many nodes that vote have the holder; if the lock is free, how many vote; if it is unknown,
/// how many have the holder that most of them have.
pub(super) fn votes(lock: &Inspection) -> usize {
    match lock.state {
        LockState::Held => lock
            .nodes
            .iter()
            .filter(|node| lock.has_holder(node))
            .count(),
        LockState::Free => lock.voting(),
        LockState::Unknown => lock.reported.first().map_or(0, |one| one.nodes),
    }
}

/// The rows below the header, each column as wide as it must be.
fn aligned(rows: &[Row], columns: usize) -> Vec<String> {
    let header = HEADER.map(str::to_owned);
    let all = || std::iter::once(&header).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max();
    let mut widths: [usize; 7] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let excess = |widths: &[usize; 7]| {
        let width: usize = widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
        width.saturating_sub(columns)
    };
    // First the wider one of the two, then both as far as they go.
    let shrink = |widths: &mut [usize; 7], column: usize, least: usize| {
        let spare = widths[column].saturating_sub(least);
        widths[column] -= spare.min(excess(widths));
    };
    let fair = (widths[NAME].min(widths[HOLDER])).max(NAME_LEAST);
    shrink(&mut widths, NAME, fair);
    shrink(&mut widths, HOLDER, fair);
    shrink(&mut widths, NAME, NAME_LEAST);
    shrink(&mut widths, HOLDER, HOLDER_LEAST);
    let line = |row: &Row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| {
            let cell = shortened_to(cell, width);
            let pad = width.saturating_sub(cell.chars().count());
            format!("{cell}{}", " ".repeat(pad))
        });
        let line = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
        line.trim_end().to_owned()
    };
    all().map(line).collect()
}

/// A broken hold.
pub(super) fn broken(one: &ListedBreak, nodes: usize) -> String {
    let slot = one.slot.map(|slot| format!(" (slot {slot})"));
    let note = &one.note;
    let holder = match (note.label.is_empty(), note.id.is_empty()) {
        (false, _) => shortened(&note.label),
        (true, false) => shortened(&note.id),
        (true, true) => "a client without a record".to_owned(),
    };
    let fence = match note.ballot.get() {
        0 => String::new(),
        fence => format!(", fence {fence}"),
    };
    let reason = match note.reason.is_empty() {
        true => "no reason given".to_owned(),
        false => one_line(&note.reason),
    };
    format!(
        "{}{}: broken {} ago by {}\n  reason: {reason}\n  held by {holder}{fence}\n  \
         fence since then {}; {} of {nodes} nodes remember it",
        shortened(&one.name),
        slot.unwrap_or_default(),
        duration::show(one.ago),
        shortened(&note.by),
        note.fence.get(),
        one.nodes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, holder: &str) -> Row {
        let cells = [
            name,
            "exclusive",
            holder,
            "9.6 s",
            "1763371234567890",
            "12",
            "3/3",
        ];
        cells.map(str::to_owned)
    }

    #[test]
    fn a_table_fits_80_columns_however_long_the_names_are() {
        let long = "n".repeat(1024);
        for (name, holder) in [("x", "h"), (&*long, "h"), ("x", &*long), (&*long, &*long)] {
            let lines = aligned(&[row(name, holder)], 80);
            for line in &lines {
                assert!(line.chars().count() <= 80, "{line}");
            }
            assert!(lines[1].contains("1763371234567890"), "{}", lines[1]);
        }
    }

    #[test]
    fn columns_are_aligned() {
        let lines = aligned(&[row("orders:42", "web-1"), row("x", "checkout")], 80);
        let kinds = lines
            .iter()
            .map(|line| line.find("KIND").or(line.find("exclusive")));
        let kinds: Vec<_> = kinds.collect();
        assert_eq!(kinds, [Some(10); 3]);
    }

    #[test]
    fn the_lines_about_the_search_are_the_last_ones() {
        assert_eq!(footer_lines(&["x", "Searched the node", "Plain locks"]), 2);
        assert_eq!(
            footer_lines(&["Searched:x", "Searched all 3", "a", "Plain"]),
            3
        );
    }
}
