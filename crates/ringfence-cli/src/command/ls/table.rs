//! The text of `ls`: an aligned table that fits the terminal, and lines about the search below it.

use std::time::Duration;

use ringfence::admin::{ListedBreak, ListedLock, LockState, NodeSearch};

use super::RoundList;
use crate::duration;
use crate::report::{many, one_line, said_after, shortened, shortened_to};
use crate::row::{LockRow, RowKind, RowPart, who};

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

type Cells = [String; 7];

/// The list, at most `columns` wide if that is possible.
pub(super) fn text(list: &RoundList, columns: usize) -> String {
    let rows: Vec<Cells> = list.rows().iter().map(cells).collect();
    let knows_all = list.has_quorum && list.shortened.is_none();
    let mut lines = match (rows.is_empty(), knows_all) {
        (true, true) => vec!["nothing is held or queued for".to_owned()],
        (true, false) => vec!["nothing is known to be held".to_owned()],
        (false, _) => aligned(&rows, columns),
    };
    if !list.has_quorum {
        lines.insert(0, no_majority(&list.nodes));
    }
    lines.push(searched(list));
    lines.extend(list.shortened.clone());
    let failed = list.nodes.iter();
    lines.extend(failed.filter_map(|node| {
        let why = match (&node.error, &node.discount) {
            (Some(error), _) => said_after(&node.node, &error.to_string()),
            (None, Some(discount)) => discount.to_string(),
            (None, None) => return None,
        };
        Some(format!("  {}: {}", node.node, one_line(&why)))
    }));
    if list.unreadable > 0 {
        let names = many(list.unreadable as u64, "name");
        lines.push(format!("{names} could not be read"));
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

/// The cells of a row that was seen just now.
fn cells(row: &LockRow) -> Cells {
    let is_held = row.state == LockState::Held;
    let kind = match (row.kind, row.state) {
        _ if row.kept => "kept",
        (RowKind::Lock, LockState::Unknown) => "unknown",
        (RowKind::Lock, _) => "free",
        (kind, _) => kind.word(),
    };
    let first = row.holders.first();
    let who = first.map(|one| who(one.label.as_deref(), one.id.as_deref()));
    let (count, who) = (row.holder_count, who.unwrap_or_default());
    let holder = match (row.arrived, row.permits) {
        (Some(arrived), _) => format!("{arrived} arrived"),
        (None, Some(permits)) => {
            let unknown = match row.unknown {
                0 => String::new(),
                unknown => format!("+{unknown}?"),
            };
            let more = if count > 1 { ", …" } else { "" };
            let who = first.map(|_| format!(": {who}{more}"));
            format!("{count}{unknown}/{permits}{}", who.unwrap_or_default())
        }
        (None, None) if count > 1 => format!("{count}: {who}, …"),
        (None, None) => who,
    };
    // Of a semaphore: until the next permit is free.
    let ends = row.holders.iter().map(|one| one.until_ms);
    let lease = match ends.min().filter(|_| is_held) {
        None => String::new(),
        Some(None) => "no end".to_owned(),
        Some(Some(left_ms)) => duration::show(Duration::from_millis(left_ms)),
    };
    let fence = first.and_then(|one| one.fence);
    let fence = fence.filter(|_| is_held && row.part == RowPart::Lock);
    let votes = row
        .agreeing
        .map(|votes| format!("{votes}/{}", row.votes.len()));
    [
        one_line(&row.name),
        kind.to_owned(),
        holder,
        lease,
        fence.map_or_else(String::new, |fence| fence.to_string()),
        match row.waiting {
            0 => String::new(),
            waiting => waiting.to_string(),
        },
        votes.unwrap_or_default(),
    ]
}

/// The rows below the header, each column as wide as it must be.
fn aligned(rows: &[Cells], columns: usize) -> Vec<String> {
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
    let line = |row: &Cells| {
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

    fn row(name: &str, holder: &str) -> Cells {
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
