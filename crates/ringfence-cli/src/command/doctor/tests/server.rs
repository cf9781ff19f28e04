//! Findings about one server.

use std::time::Duration;

use ringfence::admin::{Found, Keys, OnDisk, Purpose, Right, Role, WriteStop};
use ringfence::node::{Tier, TroubleKind};

use super::{healthy, identity, nodes, only, says, second, trouble};
use crate::command::doctor::diagnosis::Diagnosis;
use crate::command::doctor::finding::Finding;
use crate::command::doctor::finding::FindingVerdict::{self, Note, Problem, Warning};
use crate::command::doctor::page::{self, Style};

#[test]
fn a_node_that_is_down_is_a_problem_while_the_others_vote() {
    let mut nodes = nodes(3);
    nodes[1].found = Err(trouble(
        TroubleKind::Unreachable,
        "n1:6379 cannot be reached: connection refused",
    ));
    says(&nodes, "reach", Problem, false, &["start it"]);
    let diagnosis = Diagnosis::of(&nodes, None);
    // The heading already names the node.
    assert!(
        only(&diagnosis, "reach")
            .says
            .starts_with("cannot be reached")
    );
    assert_eq!(only(&diagnosis, "votes").verdict, Warning);
}

#[test]
fn the_advice_depends_on_why_a_node_cannot_be_reached() {
    for (kind, detail, advice) in [
        (TroubleKind::NoSuchHost, "failed to lookup address", "DNS"),
        (TroubleKind::Tls, "invalid peer certificate", "?ca="),
        (TroubleKind::Tls, "cannot use `x` for TLS: no", "?cert="),
        (TroubleKind::Timeout, "did not answer within 2 s", "hung"),
        (TroubleKind::Garbage, "is no Redis server", "rediss://"),
        (TroubleKind::Denied, "refuses the password", "password"),
    ] {
        let mut nodes = nodes(3);
        nodes[1].found = Err(trouble(kind, detail));
        says(&nodes, "reach", Problem, false, &[advice]);
    }
}

#[test]
fn a_slow_node_is_a_warning() {
    let slow = second(|server| {
        server.clock.as_mut().unwrap().round_trip = Duration::from_millis(300);
    });
    says(&slow, "reach", Warning, true, &["300 ms", "slow"]);
}

#[test]
fn a_server_older_than_the_oldest_tested_is_a_warning() {
    let version = |version: &str| {
        let version = version.to_owned();
        second(|server| identity(server).version = version)
    };
    says(
        &version("Redis 6.2.14"),
        "version",
        Warning,
        true,
        &["6.2.14", "7.0"],
    );
    says(
        &version("Redis of unknown version"),
        "version",
        Warning,
        true,
        &["7.0"],
    );
    for fine in ["Redis 7.0.0", "Redis 8.2.1", "Valkey 7.2.5", "Valkey 9.1.2"] {
        assert_eq!(
            Diagnosis::of(&version(fine), None).verdict(),
            FindingVerdict::Ok,
            "{fine}"
        );
    }
}

#[test]
fn only_an_independent_master_votes() {
    let role = |role: Role| second(|server| identity(server).role = role);
    let replica = role(Role::Replica(Some("m:6380".to_owned())));
    says(&replica, "role", Problem, false, &["replica", "m:6380"]);
    says(
        &role(Role::ClusterNode),
        "role",
        Problem,
        false,
        &["cluster-enabled no"],
    );
    says(&role(Role::Sentinel), "role", Problem, false, &["Sentinel"]);
    let loading = second(|server| identity(server).loading = true);
    says(&loading, "role", Warning, false, &["loading its data"]);
}

#[test]
fn the_durability_finding_names_the_cost_of_a_restart() {
    let off = second(|server| {
        server.quarantine_off = true;
        identity(server).tier = Tier::BestEffort;
    });
    says(
        &off,
        "durability",
        Warning,
        true,
        &["?quarantine=off", "two clients may hold"],
    );
    let mistaken = second(|server| server.said_durable = true);
    says(
        &mistaken,
        "durability",
        Problem,
        false,
        &["?durable=yes", "no append-only file"],
    );
    let followed = second(|server| {
        identity(server).on_disk = OnDisk::Always;
        identity(server).has_replicas = true;
    });
    let diagnosis = Diagnosis::of(&followed, None);
    let says = |finding: &Finding| finding.says.contains("(has replicas)");
    assert!(diagnosis.findings.iter().any(says), "{diagnosis:#?}");
    let alone = [healthy(1, 1).0];
    let finding = only(&Diagnosis::of(&alone, None), "durability");
    assert!(finding.advice.unwrap().contains("appendfsync always"));
    let (mut durable, mut server) = healthy(1, 1);
    identity(&mut server).tier = Tier::Durable;
    durable.found = Ok(Found::Server(Box::new(server)));
    assert_eq!(
        Diagnosis::of(&[durable], None).verdict(),
        FindingVerdict::Ok
    );
}

#[test]
fn a_server_with_replicas_has_a_finding_about_failovers() {
    let without_id = second(|server| identity(server).tells_replication_id = false);
    says(
        &without_id,
        "replication",
        Warning,
        true,
        &["reports no replication id", "stop its clients"],
    );
    let forgetful = |ttl_s, replicated| {
        second(move |server| {
            identity(server).backlog_ttl = Some(Duration::from_secs(ttl_s));
            server.birth.as_mut().unwrap().replicated = replicated;
        })
    };
    says(
        &forgetful(34, true),
        "replication",
        Warning,
        true,
        &["after 34 s", "repl-backlog-ttl"],
    );
    for (ttl_s, replicated) in [(34, false), (35, true), (0, true)] {
        let diagnosis = Diagnosis::of(&forgetful(ttl_s, replicated), None);
        assert_eq!(
            diagnosis.verdict(),
            FindingVerdict::Ok,
            "{ttl_s} {replicated}"
        );
    }
}

#[test]
fn a_server_that_evicts_votes_only_with_eviction_allow() {
    let evicting = |allowed: bool| {
        second(|server| {
            server.eviction_allowed = allowed;
            identity(server).memory.max_bytes = 1 << 30;
            identity(server).memory.policy = "volatile-lru".to_owned();
        })
    };
    let words = ["volatile-lru", "noeviction"];
    says(&evicting(false), "eviction", Problem, false, &words);
    says(&evicting(true), "eviction", Warning, true, &words);
    let full = second(|server| {
        identity(server).memory.max_bytes = 100 << 20;
        identity(server).memory.used_bytes = 95 << 20;
    });
    says(&full, "eviction", Warning, true, &["95 of 100 MB"]);
}

#[test]
fn a_missing_right_is_reported_with_the_acl_rule_that_grants_it() {
    let lacking = |rules: &[(&str, bool)]| {
        let rights = rules.iter().map(|&(rule, essential)| Right {
            rule: rule.to_owned(),
            essential,
        });
        let rights = rights.collect();
        second(|server| server.rights.as_mut().unwrap().lacking = rights)
    };
    let essential = lacking(&[("+zadd", true), ("+scan", false)]);
    let line = "ACL SETUSER ringfence +zadd +scan";
    says(&essential, "rights", Problem, false, &[line]);
    let comfort = lacking(&[("+subscribe", false)]);
    says(&comfort, "rights", Warning, true, &["+subscribe"]);
    let denied = trouble(TroubleKind::Denied, "n1:6379 denies eval");
    let unknown = second(|server| server.rights = Err(denied));
    says(
        &unknown,
        "rights",
        Problem,
        false,
        &["ACL SETUSER ringfence +evalsha_ro"],
    );
    let old = trouble(
        TroubleKind::Other,
        "n1:6379 answered with an error: ERR compiling",
    );
    let old = second(|server| server.rights = Err(old));
    says(&old, "rights", Warning, true, &["docs/operations.md"]);
    let denied = trouble(TroubleKind::Denied, "n1:6379 denies info");
    let without_info = second(|server| server.identity = Err(denied));
    says(&without_info, "identity", Problem, false, &["denies info"]);
}

#[test]
fn a_read_only_user_is_a_note_with_the_acl_rule_that_lets_it_lock() {
    for (purpose, may) in [
        (Purpose::Look, "run `status` and `doctor`, but"),
        (Purpose::Init, "`doctor` and `init`, but"),
    ] {
        let nodes = second(|server| {
            let rights = server.rights.as_mut().unwrap();
            rights.purpose = purpose;
            rights.lacking_to_lock = vec![Right {
                rule: "+evalsha".to_owned(),
                essential: true,
            }];
        });
        let words = [
            may,
            "ACL SETUSER ringfence ~ringfence:{PREFIX* ~PREFIX* +evalsha",
        ];
        says(&nodes, "rights", Note, true, &words);
        assert_eq!(Diagnosis::of(&nodes, None).verdict(), FindingVerdict::Ok);
    }
}

#[test]
fn facts_that_the_user_may_not_see_are_notes() {
    let unknown = second(|server| identity(server).on_disk = OnDisk::Unknown);
    let words = ["not visible to this user: appendfsync", "?durable=yes"];
    says(&unknown, "durability", Note, true, &words);
    let replicated = second(|server| {
        identity(server).has_replicas = true;
        identity(server).backlog_ttl = None;
    });
    let words = ["not visible to this user: repl-backlog-ttl", "35 s"];
    says(&replicated, "replication", Note, true, &words);
    let denied = trouble(TroubleKind::Denied, "n1:6379 denies scan");
    let unsearched = second(|server| server.keys = Err(denied));
    let words = ["not visible to this user: keys without expiry"];
    says(&unsearched, "expiry", Note, true, &words);
    for nodes in [unknown, replicated, unsearched] {
        let diagnosis = Diagnosis::of(&nodes, None);
        assert_eq!(diagnosis.verdict(), FindingVerdict::Ok);
        assert!(diagnosis.has_quorum());
        let quiet = Style {
            quiet: true,
            ..Style::default()
        };
        assert!(!page::render(&diagnosis, quiet).contains("not visible"));
    }
    // For a single node, too, an unknown setting is a note and not a warning.
    let (mut alone, mut server) = healthy(0, 1);
    identity(&mut server).on_disk = OnDisk::Unknown;
    alone.found = Ok(Found::Server(Box::new(server)));
    let diagnosis = Diagnosis::of(&[alone], None);
    let finding = only(&diagnosis, "durability");
    assert_eq!(finding.verdict, Note);
    assert!(finding.says.contains("two clients may hold"), "{finding:?}");
}

#[test]
fn a_key_without_expiry_is_a_warning() {
    let keys = |complete: bool| {
        second(|server| {
            server.keys = Ok(Keys {
                hidden: 3,
                looked_at: 9,
                complete,
                lasting: 2,
                example: Some("ringfence:{x}:record:x".to_owned()),
            });
        })
    };
    says(
        &keys(true),
        "expiry",
        Warning,
        true,
        &[
            "2 keys",
            "ringfence:{x}:record:x",
            "(9 checked, 3 not visible",
        ],
    );
    says(
        &keys(false),
        "expiry",
        Warning,
        true,
        &["the first 9 checked"],
    );
    let timeout = trouble(TroubleKind::Timeout, "n1:6379 does not answer");
    let unsearched = second(|server| server.keys = Err(timeout));
    says(
        &unsearched,
        "expiry",
        Warning,
        true,
        &["was not searched", "does not answer"],
    );
}

#[test]
fn a_server_that_cannot_push_is_a_warning() {
    let pushless = second(|server| server.pushes = false);
    says(&pushless, "wakes", Warning, true, &["RESP3"]);
}

#[test]
fn a_server_that_is_out_of_memory_does_not_vote() {
    let full = second(|server| {
        let memory = &mut identity(server).memory;
        (memory.used_bytes, memory.counted_bytes) = (9 << 20, 8 << 20);
        memory.max_bytes = (8 << 20) - 1;
    });
    says(
        &full,
        "eviction",
        FindingVerdict::Problem,
        false,
        &["out of memory"],
    );
    // What does not count towards the limit stops nothing.
    let nearly = second(|server| {
        let memory = &mut identity(server).memory;
        (memory.used_bytes, memory.counted_bytes) = (9 << 20, 8 << 20);
        memory.max_bytes = 8 << 20;
    });
    says(
        &nearly,
        "eviction",
        FindingVerdict::Warning,
        true,
        &["when it is full"],
    );
}

#[test]
fn a_server_that_refuses_writes_does_not_vote() {
    for (stop, word) in [
        (WriteStop::SnapshotFailed { stops: Some(true) }, "snapshot"),
        (WriteStop::SnapshotFailed { stops: None }, "may not read"),
        (WriteStop::LogFailed, "append-only"),
        (
            WriteStop::TooFewReplicas {
                good: 0,
                needed: Some(1),
            },
            "min-replicas-to-write",
        ),
    ] {
        let nodes = second(|server| server.write_stops = vec![stop]);
        says(&nodes, "writes", FindingVerdict::Problem, false, &[word]);
    }
    let stop = WriteStop::SnapshotFailed { stops: Some(false) };
    let nodes = second(|server| server.write_stops = vec![stop]);
    says(
        &nodes,
        "writes",
        FindingVerdict::Warning,
        true,
        &["goes on"],
    );
}
