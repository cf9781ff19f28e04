//! Findings that compare the nodes: clocks, groups, hosts, and whether a majority votes.

use std::time::Duration;

use ringfence::admin::{Examination, Found, Machine, ServerExamination};
use ringfence_core::group::Group;

use super::diagnosis::Wait;
use super::finding::{Check, Finding, listed};
use super::server::exactly;
use crate::duration;

/// A larger difference between this machine's clock and the nodes' clocks is a warning.
const OWN_CLOCK: Duration = Duration::from_secs(1);

const GROUP: Check = Check("group");
/// Two nodes that are one server.
pub(super) const DUPLICATES: Check = Check("duplicates");

/// Compares the clock of each node with the other clocks. Nodes with an unknown clock have no
/// finding.
pub(super) fn clocks(nodes: &[Examination]) -> Vec<Finding> {
    let known = nodes.iter().filter_map(|node| {
        let clock = server(node)?.clock.as_ref().ok()?;
        Some((node.node.as_str(), clock.ahead_us))
    });
    let known: Vec<(&str, i64)> = known.collect();
    let ahead_us: Vec<i64> = known.iter().map(|(_, ahead_us)| *ahead_us).collect();
    let window = common_group(nodes).map_or(Group::DEFAULT_WINDOW, |group| group.window);
    let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
    let middle_us = median(&ahead_us);
    let agreeing = agreeing(&ahead_us, window_us);
    let mut findings = Vec::new();
    for ((node, ahead_us), agrees) in known.iter().zip(agreeing) {
        let apart_us = ahead_us.saturating_sub(middle_us);
        let own = format!("{} this machine's", offset(*ahead_us));
        let others = match known.len() {
            1 => String::new(),
            _ => format!(", {} the median", offset(apart_us)),
        };
        let says = format!("clock {own}{others}");
        findings.push(
            match apart_us.saturating_abs() {
                _ if !agrees => Check("clock").problem(
                    format!("{says}: it cannot vote"),
                    "set its clock, and run a time service on it (chrony, ntpd, \
                     systemd-timesyncd)",
                ),
                apart if apart > window_us / 5 => Check("clock").warning(
                    says,
                    format!(
                        "check its time service: beyond {} it may lose its vote",
                        duration::show(window)
                    ),
                ),
                _ => Check("clock").ok(says),
            }
            .of(node),
        );
    }
    if middle_us.unsigned_abs() > OWN_CLOCK.as_micros() as u64 {
        findings.push(Check("own-clock").warning(
            format!("this machine's clock is {} the nodes'", offset(-middle_us)),
            "locks do not depend on it, but times in logs will not match: set it",
        ));
    }
    findings
}

/// Which of the clocks accept the same ballot, if a client chooses the best ballot. Uses the
/// clients' rule, with a window that is a tenth smaller, because clocks drift until the next check.
fn agreeing(clocks_us: &[i64], window_us: i64) -> Vec<bool> {
    let reach_us = window_us - window_us / 10;
    let accepts = |clock_us: i64, ballot_us: i64| {
        ballot_us > clock_us.saturating_sub(reach_us)
            && ballot_us <= clock_us.saturating_add(reach_us)
    };
    let median_us = median(clocks_us);
    let lowest = clocks_us
        .iter()
        .map(|clock_us| clock_us.saturating_sub(reach_us) + 1);
    let candidates = lowest.chain([median_us]);
    let best_us = candidates.max_by_key(|&ballot_us| {
        let accepting = clocks_us
            .iter()
            .filter(|&&clock_us| accepts(clock_us, ballot_us));
        (
            accepting.count(),
            -(ballot_us.saturating_sub(median_us)).saturating_abs(),
        )
    });
    let best_us = best_us.unwrap_or(median_us);
    let each = clocks_us.iter().map(|&clock_us| accepts(clock_us, best_us));
    each.collect()
}

/// The lower median; zero for an empty list.
pub(super) fn median(clocks_us: &[i64]) -> i64 {
    let mut sorted = clocks_us.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied().unwrap_or_default()
}

/// How far ahead or behind; the name of the other clock follows.
fn offset(us: i64) -> String {
    let size = Duration::from_micros(us.unsigned_abs());
    let side = if us < 0 { "behind" } else { "ahead of" };
    format!("{} {side}", exactly(size))
}

/// The findings about all nodes together. `voting` nodes vote now; `waiting` nodes will vote later.
pub(super) fn findings(nodes: &[Examination], voting: usize, waiting: &[Wait]) -> Vec<Finding> {
    if nodes.iter().any(|node| !is_server(node)) {
        return Vec::new();
    }
    let mut findings = vec![count(nodes.len())];
    findings.extend(duplicate_nodes(nodes));
    findings.extend(hosts(nodes));
    findings.extend(group(nodes));
    findings.push(votes(nodes.len(), voting, waiting));
    findings
}

fn count(nodes: usize) -> Finding {
    const CHECK: Check = Check("count");
    let spare = nodes - quorum(nodes);
    match nodes {
        1 => CHECK.ok("1 node: no locks while it is down; 3 nodes tolerate the loss of one"),
        _ if nodes.is_multiple_of(2) => CHECK.warning(
            format!(
                "{nodes} nodes tolerate the loss of {spare}, as {} nodes do",
                nodes - 1
            ),
            format!("use {} or {}", nodes - 1, nodes + 1),
        ),
        _ => CHECK.ok(format!("{nodes} nodes tolerate the loss of {spare}")),
    }
}

fn duplicate_nodes(nodes: &[Examination]) -> Vec<Finding> {
    let same = |one: &Examination, other: &Examination| {
        run_id(one).is_some() && run_id(one) == run_id(other)
    };
    let problem = |names: Vec<&str>| {
        let says = format!(
            "{} are the same server, which would vote twice",
            listed(&names)
        );
        DUPLICATES.problem(says, "name each server once")
    };
    let mut findings: Vec<Finding> = alike(nodes, same).into_iter().map(problem).collect();
    let known = nodes.iter().filter_map(run_id).count();
    if findings.is_empty() && known > 1 {
        findings.push(DUPLICATES.ok("no server is named twice"));
    }
    findings
}

fn run_id(node: &Examination) -> Option<&str> {
    let identity = server(node)?.identity.as_ref().ok()?;
    (!identity.run_id.is_empty()).then_some(&*identity.run_id)
}

fn hosts(nodes: &[Examination]) -> Vec<Finding> {
    const CHECK: Check = Check("hosts");
    let warning = |names: Vec<&str>| {
        let says = format!("{} run on one host and fail together", listed(&names));
        CHECK.warning(says, "give every node a machine of its own")
    };
    let mut findings: Vec<Finding> = alike(nodes, share).into_iter().map(warning).collect();
    if findings.is_empty() && nodes.len() > 1 {
        let says = "no two nodes share a host, as far as addresses tell";
        findings.push(CHECK.ok(says));
    }
    findings
}

/// Groups of at least two nodes that are the `same` as the first node of their group.
fn alike(
    nodes: &[Examination],
    same: impl Fn(&Examination, &Examination) -> bool,
) -> Vec<Vec<&str>> {
    let mut kinds: Vec<(&Examination, Vec<&str>)> = Vec::new();
    for node in nodes {
        match kinds.iter_mut().find(|(first, _)| same(first, node)) {
            Some((_, names)) => names.push(&node.node),
            None => kinds.push((node, vec![&node.node])),
        }
    }
    let kinds = kinds.into_iter().map(|(_, names)| names);
    kinds.filter(|names| names.len() > 1).collect()
}

fn share(one: &Examination, other: &Examination) -> bool {
    match (&one.machine, &other.machine) {
        (Machine::ThisOne, Machine::ThisOne) => true,
        (Machine::At(one), Machine::At(other)) => one.iter().any(|ip| other.contains(ip)),
        _ => false,
    }
}

/// Nodes whose group differs from that of most nodes, or has another number of nodes.
pub(super) fn strangers(nodes: &[Examination]) -> Vec<Finding> {
    let given = nodes.len();
    let common = common_group(nodes);
    let strange = groups(nodes).filter_map(|(node, group)| {
        let finding = if group.nodes != given {
            GROUP.problem(
                format!(
                    "belongs to a group of {} nodes, but {given} were given",
                    group.nodes
                ),
                "use the same list of nodes in every client",
            )
        } else if common.is_some_and(|common| common != group) {
            GROUP.problem(
                format!("has other group settings than most nodes: {group}"),
                "use the same window and quarantine in every client",
            )
        } else {
            return None;
        };
        Some(finding.of(node))
    });
    strange.collect()
}

fn group(nodes: &[Examination]) -> Option<Finding> {
    let common = common_group(nodes).filter(|_| strangers(nodes).is_empty())?;
    let [window, quarantine] = [common.window, common.quarantine].map(duration::show);
    let says = format!("one group: window {window}, quarantine {quarantine}");
    Some(GROUP.ok(says))
}

fn votes(count: usize, voting: usize, waiting: &[Wait]) -> Finding {
    const CHECK: Check = Check("votes");
    let quorum = quorum(count);
    let some = of_all(voting, count);
    if voting == count {
        return CHECK.ok(format!("{some} may vote"));
    }
    if voting >= quorum {
        return CHECK.warning(
            format!("{some} may vote, which is enough: {quorum} are needed"),
            "repair the others before one more fails",
        );
    }
    let longest = waiting.iter().filter_map(|wait| match wait {
        Wait::Quarantine(left) => *left,
        Wait::Loading => None,
    });
    let advice = match longest.max() {
        // Too few nodes wait: they would not make a majority.
        _ if voting + waiting.len() < quorum => "repair the nodes with a problem above".to_owned(),
        _ if waiting.contains(&Wait::Loading) => {
            "wait until the servers have loaded their data".to_owned()
        }
        Some(left) => format!(
            "if this cluster is new, run `ringfence init`; otherwise wait {}",
            exactly(left)
        ),
        None => "if this cluster is new, run `ringfence init`".to_owned(),
    };
    let says = match count {
        1 => "the node does not vote: no lock can be taken".to_owned(),
        _ => format!("{some} may vote, but {quorum} are needed: no lock can be taken"),
    };
    CHECK.problem(says, advice)
}

fn of_all(some: usize, all: usize) -> String {
    match (some, all) {
        (1, 1) => "the node".to_owned(),
        (0, _) => "no node".to_owned(),
        _ if some == all => format!("all {all} nodes"),
        _ => format!("{some} of {all} nodes"),
    }
}

/// The number of nodes that make a majority.
pub(super) fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The group settings that most nodes have.
fn common_group(nodes: &[Examination]) -> Option<Group> {
    let count = |group: &Group| groups(nodes).filter(|(_, other)| other == group).count();
    groups(nodes)
        .map(|(_, group)| group)
        .max_by_key(|group| count(group))
}

fn groups(nodes: &[Examination]) -> impl Iterator<Item = (&str, Group)> {
    nodes.iter().filter_map(|node| {
        let birth = server(node)?.birth.as_ref().ok()?;
        Some((node.node.as_str(), birth.group?))
    })
}

fn is_server(node: &Examination) -> bool {
    matches!(node.found, Err(_) | Ok(Found::Server(_) | Found::Given(_)))
}

pub(super) fn server(node: &Examination) -> Option<&ServerExamination> {
    match &node.found {
        Ok(Found::Server(server)) => Some(server),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_US: i64 = 5_000_000;
    const S: i64 = 1_000_000;

    #[test]
    fn a_clock_that_is_an_hour_off_agrees_with_no_other() {
        let agreeing = |clocks_us: &[i64]| agreeing(clocks_us, WINDOW_US);
        assert_eq!(agreeing(&[0, 3600 * S, 5]), [true, false, true]);
        assert_eq!(agreeing(&[-3600 * S, 0, 5]), [false, true, true]);
        assert_eq!(agreeing(&[0, 3600 * S]), [true, false]);
        assert_eq!(agreeing(&[7]), [true]);
    }

    #[test]
    fn clocks_within_two_windows_of_each_other_agree() {
        assert_eq!(agreeing(&[0, 8 * S, 4 * S], WINDOW_US), [true; 3]);
        // No ballot suits all three, but two of them are enough for a majority.
        let two = agreeing(&[-6 * S, 0, 6 * S], WINDOW_US);
        assert_eq!(two.iter().filter(|agrees| **agrees).count(), 2, "{two:?}");
    }

    #[test]
    fn the_median_is_the_lower_one() {
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(median(&[4, 1]), 1);
        assert_eq!(median(&[]), 0);
    }
}
