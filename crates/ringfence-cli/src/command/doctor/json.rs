//! Formats a diagnosis as JSON: the findings, and the measured values of each node.

use ringfence::node::{Examination, Role};
use serde_json::{Value, json};

use super::cluster;
use super::diagnosis::Diagnosis;
use super::finding::{Finding, FindingVerdict};

pub(super) fn value(diagnosis: &Diagnosis, nodes: &[Examination]) -> Value {
    let each = nodes.iter().zip(&diagnosis.voting);
    json!({
        "verdict": diagnosis.verdict().word(),
        "problems": diagnosis.count(FindingVerdict::Problem),
        "warnings": diagnosis.count(FindingVerdict::Warning),
        "quorum": diagnosis.has_quorum(),
        "nodes": each.map(|(node, votes)| measured(node, *votes)).collect::<Vec<_>>(),
        "findings": diagnosis.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "verdict": finding.verdict.word(),
        "check": finding.check,
        "node": finding.node,
        "says": finding.says,
        "advice": finding.advice,
    })
}

fn measured(node: &Examination, votes: bool) -> Value {
    let server = cluster::server(node);
    let identity = server.and_then(|server| server.identity.as_ref().ok());
    let clock = server.and_then(|server| server.clock.as_ref().ok());
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "node": node.node,
        "votes": votes,
        "version": identity.map(|found| &found.version),
        "role": identity.map(|found| role(&found.role)),
        "tier": identity.map(|found| found.tier.to_string()),
        "run_id": identity.map(|found| &found.run_id),
        "round_trip_us": clock.map(|clock| micros(clock.round_trip)),
        "clock_ahead_us": clock.map(|clock| clock.ahead_us),
    })
}

fn role(role: &Role) -> &'static str {
    match role {
        Role::Master => "master",
        Role::Replica(_) => "replica",
        Role::ClusterNode => "cluster",
        Role::Sentinel => "sentinel",
    }
}
