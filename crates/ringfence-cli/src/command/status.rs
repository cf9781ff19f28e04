//! `ringfence status`: shows who holds a lock, or the state of the nodes. Changes nothing. No line of the
//! text is much wider than a terminal.

use std::time::Duration;

use ringfence::admin::{
    HolderKind, Inspection, LatchInspection, LockState, NameInspection, NodeInspection, NodeStatus,
    SemaphoreInspection, WaiterInspection,
};
use ringfence::node::View;
use ringfence::votes::Vote;
use ringfence::{Holder, Tier};

use super::{CommandContext, init, json};
use crate::args::StatusArgs;
use crate::duration;
use crate::exit::{self, Exit};
use crate::report::{CliFailure, one_line, said_after, shortened};
use crate::row;

/// Exits 69 if it is unknown whether the name is held: a script must not take that for *free*.
pub(super) async fn status(context: &CommandContext, args: StatusArgs) -> Result<Exit, CliFailure> {
    let Some(name) = args.name else {
        return of_nodes(context).await;
    };
    let seen = context.locks.inspect_all(&name).await?;
    let (text, value) = (name_text(&seen), json::name(&seen));
    context.report.result(&text, &value)?;
    Ok(exit_of(seen.state(), args.exit_code))
}

pub(crate) fn exit_of(state: LockState, exit_code: bool) -> Exit {
    match state {
        LockState::Unknown => Exit::NoQuorum,
        LockState::Held if exit_code => Exit::Conflict(exit::CONFLICT),
        LockState::Held | LockState::Free => Exit::Success,
    }
}

/// Exits 69 if fewer than a majority vote, so that a monitor does not have to parse the output.
async fn of_nodes(context: &CommandContext) -> Result<Exit, CliFailure> {
    let nodes = context.locks.nodes().await;
    let voting = nodes.iter().filter(|node| votes(node)).count();
    let has_quorum = voting > nodes.len() / 2;
    let (text, value) = (nodes_text(&nodes), json::nodes(&nodes, has_quorum));
    context.report.result(&text, &value)?;
    Ok(match has_quorum {
        true => Exit::Success,
        false => Exit::NoQuorum,
    })
}

pub(super) fn votes(node: &NodeStatus) -> bool {
    node.facts.is_ok() && node.discount.is_none()
}

/// Everything with one name. A lock that is free is left out if there is anything else.
pub(crate) fn name_text(seen: &NameInspection) -> String {
    let mut parts = Vec::new();
    let others = seen.semaphore.is_some() || seen.latch.is_some();
    if seen.lock.state != LockState::Free || seen.lock.waiting > 0 || !others {
        parts.push(lock(&seen.lock));
    }
    parts.extend(seen.semaphore.as_ref().map(semaphore));
    parts.extend(seen.latch.as_ref().map(latch));
    parts.extend(seen.lock.nodes.iter().map(|node| vote(node, others)));
    parts.join("\n")
}

fn lock(lock: &Inspection) -> String {
    let mut text = match (lock.kind, &lock.holders[..]) {
        (None, _) if lock.state == LockState::Unknown => unknown(lock),
        (None, _) => free(lock),
        (Some(HolderKind::Shared), holders) if lock.holder_count > 1 => {
            let mut text = format!("shared by {}", lock.holder_count);
            for holder in holders {
                text += &format!("\n  {}", one_holder(holder));
            }
            let listed = holders.len() as u64;
            if lock.holder_count > listed {
                text += &format!("\n  and {} more", lock.holder_count - listed);
            }
            text
        }
        (Some(kind), holders) => {
            let holder = holders.first();
            let who = holder.map_or_else(|| "another client".to_owned(), who);
            let mut text = match kind {
                _ if lock.kept => format!("kept from others; {who} released it"),
                HolderKind::Shared => format!("shared by {who} alone"),
                HolderKind::Exclusive => format!("held by {who}"),
                _ => format!("held by {who}, without a record (a plain lock, or another library)"),
            };
            let details = holder.map(|holder| details(holder, lock.kept));
            text += &details.map_or_else(String::new, |details| format!("\n  {details}"));
            text
        }
    };
    text += &queue(lock.waiting, &lock.queue);
    text
}

/// That it is unknown whether the lock is held, and what the nodes say that vote.
pub(crate) fn unknown(lock: &Inspection) -> String {
    let nodes = lock.nodes.len();
    let reported = lock.reported.iter().filter(|one| one.nodes > 0);
    let mut said: Vec<(usize, String)> =
        reported.map(|one| (one.nodes, who(&one.holder))).collect();
    let free = |node: &&NodeInspection| {
        let view = node.view.as_ref().ok();
        node.votes() && view.is_some_and(|view| view.holder.is_none())
    };
    match lock.nodes.iter().filter(free).count() {
        0 => {}
        free => said.push((free, "free".to_owned())),
    }
    let said = said.iter().enumerate().map(|(place, (count, what))| {
        let verb = if *count == 1 { "says" } else { "say" };
        match place {
            0 => format!("{count} of {nodes} nodes {verb} {what}"),
            _ => format!("{count} {verb} {what}"),
        }
    });
    let said: Vec<String> = said.collect();
    match said.is_empty() {
        true => format!("unknown, no majority: 0 of {nodes} nodes vote"),
        false => format!("unknown, no majority: {}", said.join(", ")),
    }
}

/// A lock that is free, and what a minority of the nodes has of it.
fn free(lock: &Inspection) -> String {
    let nodes = lock.nodes.len();
    let left = lock.reported.iter().filter(|one| one.nodes > 0);
    let left = left.map(|one| match one.nodes {
        1 => format!("; 1 of {nodes} nodes has {}", who(&one.holder)),
        count => format!("; {count} of {nodes} nodes have {}", who(&one.holder)),
    });
    format!("free{}", left.collect::<String>())
}

fn semaphore(seen: &SemaphoreInspection) -> String {
    let mut text = match (seen.taken(), seen.permits) {
        (taken, permits) if seen.unknown() > 0 => format!(
            "semaphore: {taken} of {permits} permits taken, {} unknown, no majority",
            seen.unknown()
        ),
        (taken, permits) if taken == permits && taken > 0 => {
            format!("semaphore: all {permits} permits are taken")
        }
        (taken, permits) => format!("semaphore: {taken} of {permits} permits taken"),
    };
    let slots = seen.slots.iter().enumerate();
    for (number, slot) in slots.filter(|(_, slot)| slot.state != LockState::Free) {
        let holder = match (slot.state, slot.holders.first()) {
            (LockState::Unknown, _) => unknown(slot),
            (_, Some(holder)) => one_holder(holder),
            (_, None) => "another client".to_owned(),
        };
        text += &format!("\n  slot {number}: {holder}");
    }
    text += &queue(seen.waiting, &seen.queue);
    text
}

fn latch(seen: &LatchInspection) -> String {
    let arrived = match seen.arrived {
        1 => "1 party has arrived".to_owned(),
        arrived => format!("{arrived} parties have arrived"),
    };
    let mut text = match seen.quorum {
        true => format!("latch: {arrived}"),
        false => format!("latch: unknown, no majority: on a node that answers {arrived}"),
    };
    if !seen.parties.is_empty() {
        let parties: Vec<String> = seen.parties.iter().map(|party| shortened(party)).collect();
        text += &format!(": {}", parties.join(", "));
    }
    if let Some(age) = seen.age {
        text += &format!("\n  made {} ago", duration::show(age));
    }
    text += &queue(seen.waiting, &[]);
    text
}

/// The label of a holder, or its id.
pub(crate) fn who(holder: &Holder) -> String {
    row::who(holder.label.as_deref(), holder.id.as_deref())
}

fn one_holder(holder: &Holder) -> String {
    format!("{}: {}", who(holder), details(holder, false))
}

/// Since when it is held, until when, and the fence.
fn details(holder: &Holder, kept: bool) -> String {
    let mut parts = Vec::new();
    if let Some(held_for) = holder.held_for.filter(|_| !kept) {
        parts.push(format!("held for {}", duration::show(held_for)));
    }
    parts.push(lease(holder.remaining, kept));
    parts.extend(holder.fence.map(|fence| format!("fence {fence}")));
    parts.join(", ")
}

/// When a lease ends.
pub(crate) fn lease(remaining: Option<Duration>, kept: bool) -> String {
    match remaining {
        Some(left) if kept => format!("free in {}", duration::show(left)),
        Some(left) => format!("lease ends in {} unless renewed", duration::show(left)),
        None => "without an expiry".to_owned(),
    }
}

fn queue(waiting: u64, queue: &[WaiterInspection]) -> String {
    let first = queue.first();
    let first = first.map(|first| format!(", the first for {}", duration::show(first.waited)));
    match waiting {
        0 => String::new(),
        1 => format!(
            "\n  1 waits{}",
            first.map_or_else(String::new, |f| f.replace("the first ", ""))
        ),
        waiting => format!("\n  {waiting} wait{}", first.unwrap_or_default()),
    }
}

/// What one node says. Of several things with one name, only whether it votes.
fn vote(node: &NodeInspection, only_vote: bool) -> String {
    let said = match (&node.view, &node.discount) {
        (Err(error), _) => format!(
            "does not vote: {}",
            said_after(&node.node, &error.to_string())
        ),
        (Ok(view), Some(discount)) => {
            let has = view.holder.as_ref().filter(|_| !only_vote);
            let has = has.map(|_| format!("; it says {}", said_of(view)));
            let has = has.unwrap_or_default();
            format!("does not vote: {}{has}", discount)
        }
        (Ok(_), None) if only_vote => "votes".to_owned(),
        (Ok(view), None) => said_of(view),
    };
    format!("  {}: {}", node.node, one_line(&said))
}

/// What a node has of a lock.
fn said_of(view: &View) -> String {
    match &view.holder {
        None => "free".to_owned(),
        Some(_) if view.shared_by > 1 => format!("shared by {}", view.shared_by),
        Some(holder) => {
            let who = row::who(holder.label.as_deref(), holder.id.as_deref());
            format!("held by {who}")
        }
    }
}

/// The state of each node.
fn nodes_text(nodes: &[NodeStatus]) -> String {
    let lines = nodes.iter().map(|node| {
        let said = match &node.facts {
            Err(error) => {
                let why = said_after(&node.node, &error.to_string());
                format!("does not vote: {why}")
            }
            Ok(facts) => {
                let votes = match &node.discount {
                    None => "votes".to_owned(),
                    Some(Vote::Quarantined { left }) => {
                        let left = duration::show_ceil(*left);
                        format!("new or restarted, votes in {left}")
                    }
                    Some(why) => format!("does not vote: {why}"),
                };
                format!("{}, {}; {votes}", facts.version, facts.tier)
            }
        };
        debug_assert!(votes(node) == said.ends_with("; votes"));
        let cost = failover_cost(node).map(|cost| format!("; {cost}"));
        let said = said + cost.as_deref().unwrap_or_default();
        format!("{}: {}", node.node, one_line(&said))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What a failover behind the only node would cost.
fn failover_cost(node: &NodeStatus) -> Option<String> {
    let facts = node.facts.as_ref().ok()?;
    let replicated = facts.replicated.unwrap_or_default();
    // An embedded file, or a server that loses nothing, has no failover to tell of.
    let may_lose = replicated || facts.tier != Tier::Durable;
    init::failover_cost(&facts.group?.into(), replicated).filter(|_| may_lose)
}
