//! Each line of a diagnosis, from facts alone.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ringfence::group::Group;
use ringfence::node::{
    Birth, ClockReading, Contents, Examination, FileExamination, FileMode, Found, Identity, Keys,
    Machine, Memory, OnDisk, Right, Role, ServerExamination, Tier, Trouble, TroubleKind, Voting,
};

use super::diagnosis::Diagnosis;
use super::finding::{Finding, Verdict};
use super::{json, text};

const HOUR_US: i64 = 3_600_000_000;

/// A server with nothing wrong, the `number`th of `nodes`.
fn healthy(number: u8, nodes: usize) -> (Examination, ServerExamination) {
    let server = ServerExamination {
        user: "ringfence".to_owned(),
        clock: Ok(ClockReading {
            ahead_us: i64::from(number),
            round_trip: Duration::from_micros(200),
        }),
        identity: Ok(Identity {
            run_id: format!("{number:x}"),
            version: "Redis 7.0.15".to_owned(),
            role: Role::Master,
            loading: false,
            on_disk: OnDisk::Never,
            has_replicas: false,
            tier: Tier::Quarantined,
            memory: Memory {
                used_bytes: 1 << 20,
                max_bytes: 0,
                policy: "noeviction".to_owned(),
            },
        }),
        birth: Ok(Birth {
            voting: Voting::Now,
            kept_for: Some(Duration::from_secs(7200)),
            group: Some(Group::new(nodes)),
        }),
        rights: Ok(Vec::new()),
        keys: Ok(Keys {
            looked_at: 12,
            complete: true,
            ..Keys::default()
        }),
        pushes: true,
        quarantine_off: false,
        eviction_allowed: false,
        said_durable: false,
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

/// Three nodes, of which the second is as `change` makes it.
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
    let wrong = wrong.filter(|finding| finding.check == check && finding.verdict != Verdict::Ok);
    let wrong: Vec<&Finding> = wrong.collect();
    assert_eq!(wrong.len(), 1, "{check}: {diagnosis:#?}");
    assert!(wrong[0].advice.is_some(), "{wrong:?}");
    wrong[0].clone()
}

/// The second node has `verdict` for `check`, in words with all of `words`.
#[track_caller]
fn says(nodes: &[Examination], check: &str, verdict: Verdict, votes: bool, words: &[&str]) {
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
fn a_healthy_cluster_is_well() {
    let nodes = nodes(3);
    let diagnosis = Diagnosis::of(&nodes, None);
    assert_eq!(diagnosis.verdict(), Verdict::Ok, "{diagnosis:#?}");
    let value = json::value(&diagnosis, &nodes);
    assert_eq!(value["verdict"], "ok");
    assert_eq!(value["nodes"][2]["votes"], true);
    let text = text::render(&diagnosis, text::Style::default());
    assert!(
        text.ends_with("all is well: locks can be had with 3 of 3 nodes"),
        "{text}"
    );
}

#[test]
fn a_node_that_is_down_is_a_problem_but_the_others_go_on() {
    let mut nodes = nodes(3);
    nodes[1].found = Err(trouble(
        TroubleKind::Unreachable,
        "n1:6379 cannot be reached: connection refused",
    ));
    says(&nodes, "reach", Verdict::Problem, false, &["start it"]);
    let diagnosis = Diagnosis::of(&nodes, None);
    // The node stands above it already.
    assert!(
        only(&diagnosis, "reach")
            .says
            .starts_with("cannot be reached")
    );
    assert_eq!(only(&diagnosis, "votes").verdict, Verdict::Warning);
}

#[test]
fn what_to_do_depends_on_why_it_cannot_be_reached() {
    for (kind, detail, advice) in [
        (TroubleKind::Unreachable, "failed to lookup address", "DNS"),
        (TroubleKind::Unreachable, "invalid peer certificate", "?ca="),
        (TroubleKind::Timeout, "does not answer within 2 s", "hung"),
        (TroubleKind::Garbage, "is no Redis server", "rediss://"),
        (TroubleKind::Denied, "refuses the password", "password"),
    ] {
        let mut nodes = nodes(3);
        nodes[1].found = Err(trouble(kind, detail));
        says(&nodes, "reach", Verdict::Problem, false, &[advice]);
    }
}

#[test]
fn a_slow_node_is_a_warning() {
    let slow = second(|server| {
        server.clock.as_mut().unwrap().round_trip = Duration::from_millis(300);
    });
    says(&slow, "reach", Verdict::Warning, true, &["300 ms", "slow"]);
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
        Verdict::Warning,
        true,
        &["6.2.14", "7.0"],
    );
    says(
        &version("Redis of unknown version"),
        "version",
        Verdict::Warning,
        true,
        &["7.0"],
    );
    for fine in ["Redis 7.0.0", "Redis 8.2.1", "Valkey 7.2.5", "Valkey 9.1.2"] {
        assert_eq!(
            Diagnosis::of(&version(fine), None).verdict(),
            Verdict::Ok,
            "{fine}"
        );
    }
}

#[test]
fn whoever_is_no_master_of_its_own_does_not_vote() {
    let role = |role: Role| second(|server| identity(server).role = role);
    let replica = role(Role::Replica(Some("m:6380".to_owned())));
    says(
        &replica,
        "role",
        Verdict::Problem,
        false,
        &["replica", "m:6380"],
    );
    says(
        &role(Role::ClusterNode),
        "role",
        Verdict::Problem,
        false,
        &["cluster-enabled no"],
    );
    says(
        &role(Role::Sentinel),
        "role",
        Verdict::Problem,
        false,
        &["Sentinel"],
    );
    let loading = second(|server| identity(server).loading = true);
    says(
        &loading,
        "role",
        Verdict::Warning,
        false,
        &["reading its data"],
    );
}

#[test]
fn what_a_restart_costs_is_said() {
    let off = second(|server| {
        server.quarantine_off = true;
        identity(server).tier = Tier::BestEffort;
    });
    says(
        &off,
        "durability",
        Verdict::Warning,
        true,
        &["?quarantine=off", "held twice"],
    );
    let mistaken = second(|server| server.said_durable = true);
    says(
        &mistaken,
        "durability",
        Verdict::Problem,
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
    assert_eq!(Diagnosis::of(&[durable], None).verdict(), Verdict::Ok);
}

#[test]
fn a_server_that_evicts_does_not_vote_unless_that_is_accepted() {
    let evicting = |allowed: bool| {
        second(|server| {
            server.eviction_allowed = allowed;
            identity(server).memory.max_bytes = 1 << 30;
            identity(server).memory.policy = "volatile-lru".to_owned();
        })
    };
    let words = ["volatile-lru", "noeviction"];
    says(
        &evicting(false),
        "eviction",
        Verdict::Problem,
        false,
        &words,
    );
    says(&evicting(true), "eviction", Verdict::Warning, true, &words);
    let full = second(|server| {
        identity(server).memory.max_bytes = 100 << 20;
        identity(server).memory.used_bytes = 95 << 20;
    });
    says(&full, "eviction", Verdict::Warning, true, &["95 of 100 MB"]);
}

#[test]
fn a_clock_an_hour_off_cannot_vote() {
    for (ahead_us, words) in [(HOUR_US, "1h ahead of"), (-HOUR_US, "1h behind")] {
        let wrong = second(|server| server.clock.as_mut().unwrap().ahead_us = ahead_us);
        says(
            &wrong,
            "clock",
            Verdict::Problem,
            false,
            &[words, "cannot vote"],
        );
    }
    let off = second(|server| server.clock.as_mut().unwrap().ahead_us = 2_000_000);
    says(&off, "clock", Verdict::Warning, true, &["2000 ms ahead"]);
}

#[test]
fn our_own_clock_may_be_wrong() {
    let mut nodes = nodes(3);
    for (number, node) in nodes.iter_mut().enumerate() {
        let (_, mut server) = healthy(number as u8, 3);
        server.clock.as_mut().unwrap().ahead_us += HOUR_US;
        node.found = Ok(Found::Server(Box::new(server)));
    }
    let diagnosis = Diagnosis::of(&nodes, None);
    let finding = only(&diagnosis, "own-clock");
    assert_eq!(finding.verdict, Verdict::Warning);
    assert!(finding.says.contains("1h behind"), "{finding:?}");
    assert_eq!(diagnosis.voting(), 3);
}

#[test]
fn a_node_in_quarantine_is_a_warning_while_the_others_vote() {
    for (voting, word) in [
        (Voting::In(Duration::from_secs(27)), "27s"),
        (Voting::NeverMet, "init"),
        (Voting::Restarted, "restarted"),
    ] {
        let young = second(|server| server.birth.as_mut().unwrap().voting = voting);
        says(&young, "birth", Verdict::Warning, false, &[word]);
    }
    let damaged = second(|server| {
        server.birth = Err(trouble(TroubleKind::Other, "has a damaged birth record"));
    });
    says(&damaged, "birth", Verdict::Problem, false, &["damaged"]);
}

#[test]
fn a_cluster_in_quarantine_is_a_problem_that_names_init() {
    let mut nodes = nodes(3);
    for (number, node) in nodes.iter_mut().enumerate() {
        let (_, mut server) = healthy(number as u8, 3);
        server.birth.as_mut().unwrap().voting = Voting::In(Duration::from_secs(20 + number as u64));
        node.found = Ok(Found::Server(Box::new(server)));
    }
    let diagnosis = Diagnosis::of(&nodes, None);
    let finding = only(&diagnosis, "votes");
    assert_eq!(finding.verdict, Verdict::Problem);
    assert!(!diagnosis.has_quorum());
    let advice = finding.advice.unwrap();
    assert!(
        advice.contains("`ringfence init`") && advice.contains("22s"),
        "{advice}"
    );
    // With two of them down, neither init nor waiting helps.
    nodes[0].found = Err(trouble(TroubleKind::Unreachable, "refused"));
    nodes[1].found = Err(trouble(TroubleKind::Unreachable, "refused"));
    let finding = only(&Diagnosis::of(&nodes, None), "votes");
    assert!(finding.advice.unwrap().starts_with("mend"));
}

#[test]
fn a_right_that_is_lacking_comes_with_the_line_that_grants_it() {
    let lacking = |rules: &[(&str, bool)]| {
        let rights = rules.iter().map(|&(rule, essential)| Right {
            rule: rule.to_owned(),
            essential,
        });
        let rights = Ok(rights.collect());
        second(|server| server.rights = rights)
    };
    let essential = lacking(&[("+zadd", true), ("+scan", false)]);
    let line = "ACL SETUSER ringfence +zadd +scan";
    says(&essential, "rights", Verdict::Problem, false, &[line]);
    let comfort = lacking(&[("+config|get", false)]);
    says(&comfort, "rights", Verdict::Warning, true, &["+config|get"]);
    let denied = trouble(TroubleKind::Denied, "n1:6379 denies eval");
    let mute = second(|server| server.rights = Err(denied));
    says(
        &mute,
        "rights",
        Verdict::Problem,
        false,
        &["ACL SETUSER ringfence +eval"],
    );
    let old = trouble(
        TroubleKind::Other,
        "n1:6379 answered with an error: ERR compiling",
    );
    let old = second(|server| server.rights = Err(old));
    says(
        &old,
        "rights",
        Verdict::Warning,
        true,
        &["docs/operations.md"],
    );
    let blind = trouble(TroubleKind::Denied, "n1:6379 denies info");
    let blind = second(|server| server.identity = Err(blind));
    says(
        &blind,
        "identity",
        Verdict::Problem,
        false,
        &["denies info"],
    );
}

#[test]
fn a_key_that_would_stay_for_ever_is_shown() {
    let keys = |complete: bool| {
        second(|server| {
            server.keys = Ok(Keys {
                looked_at: 9,
                complete,
                lasting: 2,
                example: Some("ringfence:{x}:x".to_owned()),
            });
        })
    };
    says(
        &keys(true),
        "expiry",
        Verdict::Warning,
        true,
        &["2 keys", "ringfence:{x}:x", "(9 looked"],
    );
    says(
        &keys(false),
        "expiry",
        Verdict::Warning,
        true,
        &["the first 9 looked at"],
    );
    let denied = trouble(TroubleKind::Denied, "n1:6379 denies scan");
    let denied = second(|server| server.keys = Err(denied));
    says(
        &denied,
        "expiry",
        Verdict::Warning,
        true,
        &["was not searched", "denies scan"],
    );
}

#[test]
fn a_server_that_cannot_push_is_a_warning() {
    let mute = second(|server| server.pushes = false);
    says(&mute, "wakes", Verdict::Warning, true, &["RESP3"]);
}

#[test]
fn one_server_under_two_names_is_a_problem() {
    let twice = second(|server| identity(server).run_id = "0".to_owned());
    let diagnosis = Diagnosis::of(&twice, None);
    let finding = only(&diagnosis, "twins");
    assert_eq!(finding.verdict, Verdict::Problem);
    assert!(
        finding.says.starts_with("n0:6379 and n1:6379 are"),
        "{finding:?}"
    );
    assert!(!diagnosis.has_quorum(), "no client would take these nodes");
}

#[test]
fn nodes_on_one_host_are_a_warning() {
    let mut near = nodes(3);
    near[2].machine = near[0].machine.clone();
    let finding = only(&Diagnosis::of(&near, None), "hosts");
    assert_eq!(finding.verdict, Verdict::Warning);
    assert!(
        finding
            .says
            .starts_with("n0:6379 and n2:6379 run on one host"),
        "{finding:?}"
    );
    for node in &mut near {
        node.machine = Machine::ThisOne;
    }
    assert!(
        only(&Diagnosis::of(&near, None), "hosts")
            .says
            .contains("n0:6379, n1:6379 and n2")
    );
    for node in &mut near {
        node.machine = Machine::Unknown;
    }
    assert_eq!(Diagnosis::of(&near, None).verdict(), Verdict::Ok);
}

#[test]
fn an_even_number_of_nodes_is_a_warning() {
    let finding = only(&Diagnosis::of(&nodes(4), None), "count");
    assert_eq!(finding.verdict, Verdict::Warning);
    assert_eq!(finding.advice.as_deref(), Some("use 3 or 5"));
}

#[test]
fn nodes_of_different_groups_are_a_problem() {
    let five = second(|server| server.birth.as_mut().unwrap().group = Some(Group::new(5)));
    says(
        &five,
        "group",
        Verdict::Problem,
        false,
        &["5 nodes", "3 were given"],
    );
    let other = second(|server| {
        let group = server.birth.as_mut().unwrap().group.as_mut().unwrap();
        group.quarantine = Duration::from_secs(60);
    });
    says(
        &other,
        "group",
        Verdict::Problem,
        false,
        &["quarantine 60s"],
    );
}

fn file() -> FileExamination {
    FileExamination {
        path: PathBuf::from("/var/lib/locks.db"),
        network: None,
        contents: Ok(Contents::Ours { wal: true }),
        mode: Some(FileMode {
            bits: 0o600,
            own: true,
        }),
        writable: true,
        folder_writable: true,
    }
}

fn of_file(file: FileExamination) -> Diagnosis {
    let examination = Examination {
        node: "sqlite:/var/lib/locks.db".to_owned(),
        machine: Machine::ThisOne,
        found: Ok(Found::File(Box::new(file))),
    };
    Diagnosis::of(&[examination], None)
}

#[test]
fn a_lock_file_that_is_fine_is_well() {
    for contents in [
        Contents::Missing,
        Contents::Fresh,
        Contents::Ours { wal: true },
    ] {
        let file = FileExamination {
            contents: Ok(contents),
            ..file()
        };
        assert_eq!(of_file(file).verdict(), Verdict::Ok, "{contents:?}");
    }
}

#[test]
fn a_file_that_cannot_hold_locks_is_a_problem() {
    let with = |contents| FileExamination { contents, ..file() };
    let missing = trouble(TroubleKind::Other, "its folder is not there");
    for (file, check) in [
        (with(Ok(Contents::Newer)), "file"),
        (with(Ok(Contents::OtherApplication)), "file"),
        (with(Ok(Contents::NotADatabase)), "file"),
        (with(Err(missing)), "file"),
        (
            FileExamination {
                network: Some("NFS"),
                ..file()
            },
            "file-system",
        ),
        (
            FileExamination {
                writable: false,
                ..file()
            },
            "writable",
        ),
        (
            FileExamination {
                folder_writable: false,
                ..file()
            },
            "writable",
        ),
    ] {
        let diagnosis = of_file(file);
        assert_eq!(only(&diagnosis, check).verdict, Verdict::Problem);
        assert!(!diagnosis.has_quorum(), "{diagnosis:?}");
    }
    let open = FileMode {
        bits: 0o666,
        own: true,
    };
    let open = of_file(FileExamination {
        mode: Some(open),
        ..file()
    });
    assert_eq!(only(&open, "permissions").verdict, Verdict::Warning);
    let plain = of_file(with(Ok(Contents::Ours { wal: false })));
    assert_eq!(only(&plain, "log").verdict, Verdict::Warning);
}

#[test]
fn whatever_the_names_nothing_is_wider_than_a_terminal() {
    let host = "h".repeat(253);
    let mut nodes = nodes(4);
    for (number, node) in nodes.iter_mut().enumerate() {
        node.node = format!("{host}{number}:6379");
        node.machine = Machine::ThisOne;
    }
    nodes[1].found = Err(trouble(TroubleKind::Other, &"long words ".repeat(40)));
    let diagnosis = Diagnosis::of(&nodes, None);
    let text = text::render(&diagnosis, text::Style::default());
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(!line.ends_with(' '), "{line:?}");
    }
    assert!(!text.contains('\x1b'), "plain unless asked for colour");
}

#[test]
fn the_end_repeats_the_problems_and_says_whether_locks_can_be_had() {
    let wrong = second(|server| identity(server).role = Role::Sentinel);
    let diagnosis = Diagnosis::of(&wrong, None);
    let style = |colour, quiet| text::Style { colour, quiet };
    let text = text::render(&diagnosis, style(false, false));
    let end = "\n\n  PROBLEM  n1:6379: is a Sentinel and keeps no data\n\
               1 problem, 1 warning: locks can be had with 2 of 3 nodes";
    assert!(text.ends_with(end), "{text}");
    let short = text::render(&diagnosis, style(false, true));
    assert!(!short.contains("ok  "), "{short}");
    assert!(short.ends_with(end), "{short}");
    assert!(text::render(&diagnosis, style(true, false)).contains("\x1b[1;31mPROBLEM"));
}
