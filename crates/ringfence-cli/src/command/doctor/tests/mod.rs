//! Tests of each finding, made from facts without a server.

mod clocks;
mod cluster;
mod file;
mod pages;
mod server;
mod service;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ringfence::admin::{
    Birth, ClockSample, Examination, Found, Identity, Keys, Machine, Memory, OnDisk, Purpose,
    Rights, Role, ServerExamination, Voting,
};
use ringfence::node::{Tier, Trouble, TroubleKind};

use ringfence_core::group::Group;

use super::diagnosis::Diagnosis;
use super::finding::{Finding, FindingVerdict};
use super::page;

const HOUR_US: i64 = 3_600_000_000;

/// A healthy server, number `number` of `nodes`.
fn healthy(number: u8, nodes: usize) -> (Examination, ServerExamination) {
    let server = ServerExamination {
        user: "ringfence".to_owned(),
        clock: Ok(ClockSample {
            ahead_us: i64::from(number),
            round_trip: Duration::from_micros(200),
        }),
        identity: Ok(Identity {
            run_id: format!("{number:x}"),
            unseen: false,
            version: "Redis 7.0.15".to_owned(),
            role: Role::Master,
            loading: false,
            on_disk: OnDisk::Never,
            has_replicas: false,
            tells_replication_id: true,
            backlog_ttl: Some(Duration::from_secs(3600)),
            tier: Tier::Quarantined,
            memory: Memory {
                used_bytes: 1 << 20,
                counted_bytes: 1 << 20,
                max_bytes: 0,
                policy: "noeviction".to_owned(),
            },
        }),
        birth: Ok(Birth {
            voting: Voting::Now,
            kept_for: Some(Duration::from_secs(7200)),
            group: Some(Group::new(nodes)),
            replicated: false,
        }),
        rights: Ok(Rights {
            purpose: Purpose::Lock,
            lacking: Vec::new(),
            lacking_to_lock: Vec::new(),
        }),
        keys: Ok(Keys {
            looked_at: 12,
            complete: true,
            ..Keys::default()
        }),
        write_stops: Vec::new(),
        pushes: true,
        quarantine_off: false,
        eviction_allowed: false,
        said_durable: false,
        service: None,
    };
    let examination = Examination {
        node: format!("n{number}:6379"),
        machine: Machine::At(vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))]),
        found: Ok(Found::Server(Box::new(server.clone()))),
    };
    (examination, server)
}

fn nodes(count: u8) -> Vec<Examination> {
    (0..count)
        .map(|n| healthy(n, usize::from(count)).0)
        .collect()
}

fn identity(server: &mut ServerExamination) -> &mut Identity {
    server.identity.as_mut().unwrap()
}

/// Three nodes; `change` alters the second one.
fn second(change: impl FnOnce(&mut ServerExamination)) -> Vec<Examination> {
    let mut nodes = nodes(3);
    let (_, mut server) = healthy(1, 3);
    change(&mut server);
    nodes[1].found = Ok(Found::Server(Box::new(server)));
    nodes
}

/// The one finding about `check` that is not ok.
#[track_caller]
fn only(diagnosis: &Diagnosis, check: &str) -> Finding {
    let wrong = diagnosis.findings.iter();
    let wrong =
        wrong.filter(|finding| finding.check == check && finding.verdict != FindingVerdict::Ok);
    let wrong: Vec<&Finding> = wrong.collect();
    assert_eq!(wrong.len(), 1, "{check}: {diagnosis:#?}");
    assert!(wrong[0].advice.is_some(), "{wrong:?}");
    wrong[0].clone()
}

/// The second node has `verdict` for `check`, and its texts contain all of `words`.
#[track_caller]
fn says(nodes: &[Examination], check: &str, verdict: FindingVerdict, votes: bool, words: &[&str]) {
    let diagnosis = Diagnosis::of(nodes, None);
    let finding = only(&diagnosis, check);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert_eq!(finding.node.as_deref(), Some("n1:6379"));
    assert_eq!(diagnosis.voting, [true, votes, true], "{diagnosis:#?}");
    for word in words {
        let all = format!("{} {}", finding.says, finding.advice.as_deref().unwrap());
        assert!(all.contains(word), "no `{word}` in {all}");
    }
    assert!(diagnosis.has_quorum());
}

fn trouble(kind: TroubleKind, detail: &str) -> Trouble {
    Trouble::new(kind, detail)
}

#[test]
fn a_healthy_cluster_has_no_problems() {
    let nodes = nodes(3);
    let diagnosis = Diagnosis::of(&nodes, None);
    assert_eq!(diagnosis.verdict(), FindingVerdict::Ok, "{diagnosis:#?}");
    let value = page::json(&diagnosis, &nodes);
    assert_eq!(value["verdict"], "ok");
    assert_eq!(value["nodes"][2]["votes"], true);
    let text = page::render(&diagnosis, page::Style::default());
    assert!(
        text.ends_with("no problems: locks can be taken with 3 of 3 nodes"),
        "{text}"
    );
}
