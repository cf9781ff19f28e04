//! Some cells of the matrix of `outage_matrix.rs`, on real servers and with the real program.

use ringfence_testkit::{Fleet, Server, wait_until};
use serde_json::Value;

use super::scene::{Finished, PATIENCE, Running, Scene};

/// What the nodes have of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Free,
    Held,
    /// Only the first node has it.
    OnOne,
}

/// What is wrong with the nodes that do not vote.
#[derive(Debug, Clone, Copy)]
enum Silence {
    Down,
    Hung,
    Quarantined,
    Misconfigured,
}

impl Silence {
    fn on(self, server: &Server) {
        match self {
            Self::Down => server.kill(),
            Self::Hung => server.pause(),
            Self::Quarantined => server.restart(),
            Self::Misconfigured => {
                server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
                server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
            }
        }
    }
}

/// The last `silent` of `nodes` servers do not vote. Checks that everything shows `state`.
#[track_caller]
fn cell(lock: Lock, nodes: usize, silent: usize, silence: Silence, state: &str) {
    let case = format!("{lock:?}, {silent} of {nodes} {silence:?}");
    let (fleet, scene) = prepared(lock, nodes);
    let last = fleet.iter().skip(nodes - silent);
    last.for_each(|server| silence.on(server));

    let says = |args: &[&str]| Finished::of(scene.ringfence(args));
    let codes = match state {
        "held" => (0, 75),
        "free" => (0, 0),
        _ => (69, 69),
    };
    let status = says(&["status", "x"]);
    assert!(
        status.stdout().starts_with(state),
        "{case}: {}",
        status.stdout()
    );
    let strict = says(&["status", "--exit-code", "x"]);
    assert_eq!((status.code(), strict.code()), codes, "{case}");
    let json: Value =
        serde_json::from_str(says(&["--json", "status", "x"]).stdout()).expect("JSON");
    assert_eq!(json["state"], state, "{case}: {json:#}");

    let has_quorum = nodes - silent > nodes / 2;
    let list = says(&["ls"]);
    assert_eq!(
        list.code(),
        if has_quorum && state != "unknown" {
            0
        } else {
            69
        },
        "{case}: {}",
        list.stdout()
    );
    let is_listed = list.stdout().lines().any(|line| line.starts_with("x "));
    let is_known_to_some = lock != Lock::Free && silent < nodes;
    let expected = state == "held" || state == "unknown" && is_known_to_some;
    assert_eq!(
        is_listed,
        expected,
        "{case}: {}{}",
        list.stdout(),
        list.stderr()
    );

    let watch = Running::start(scene.ringfence(&["watch", "x"]));
    match silent < nodes {
        true => watch.wait_for_output(state),
        false => assert_eq!(watch.finish().code(), 69, "{case}"),
    }
}

/// Servers of a new cluster that have the lock `x` as `lock` says.
fn prepared(lock: Lock, nodes: usize) -> (Fleet, Scene) {
    let fleet = Fleet::start(nodes);
    let scene = Scene::on(&fleet.urls());
    wait_until("a new cluster", PATIENCE, || {
        let done = scene.ringfence(&["init", "--quarantine", "20m"]).output();
        done.expect("ringfence runs").status.success()
    });
    if lock != Lock::Free {
        let taken = ["acquire", "--ttl", "10m", "--label", "vm:7899", "x"];
        // A grant does not wait for all nodes, and this test wants all of them to have it.
        wait_until("all nodes to have it", PATIENCE, || {
            let has = |server: &Server| server.command(&["EXISTS", "x"]) == "1";
            let token = Finished::of(scene.ringfence(&taken))
                .stdout()
                .trim()
                .to_owned();
            fleet.iter().all(has) || {
                Finished::of(scene.ringfence(&["release", "x", "--token", &token]));
                false
            }
        });
    }
    if lock == Lock::OnOne {
        fleet.iter().skip(1).for_each(|server| {
            server.command(&["DEL", "x"]);
        });
    }
    (fleet, scene)
}

#[test]
fn with_a_majority_it_is_known_what_the_majority_has() {
    cell(Lock::Free, 3, 0, Silence::Down, "free");
    cell(Lock::Held, 3, 0, Silence::Down, "held");
    cell(Lock::OnOne, 3, 0, Silence::Down, "free");
    cell(Lock::Held, 3, 1, Silence::Down, "held");
    cell(Lock::Free, 3, 1, Silence::Quarantined, "free");
    // The node that hangs may have it, too.
    cell(Lock::OnOne, 3, 1, Silence::Hung, "unknown");
}

#[test]
fn without_a_majority_nothing_is_claimed() {
    cell(Lock::Held, 3, 2, Silence::Down, "unknown");
    cell(Lock::Held, 4, 2, Silence::Quarantined, "unknown");
    cell(Lock::Free, 3, 2, Silence::Misconfigured, "unknown");
    cell(Lock::Held, 3, 2, Silence::Hung, "unknown");
    cell(Lock::Free, 3, 3, Silence::Down, "unknown");
    // Two of four cannot be a majority.
    cell(Lock::Free, 4, 2, Silence::Misconfigured, "free");
}
