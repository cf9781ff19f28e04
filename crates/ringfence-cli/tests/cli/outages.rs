//! Whatever is wrong with the nodes: `doctor` does not say that locks can be taken where `run -n`
//! cannot take one. What a node tells without a write is found without a write; the rest is found
//! with `--try`.

use std::fs;
use std::time::Duration;

use ringfence_testkit::{
    Attack, Fault, Fleet, HostileServer, Proxy, Server, WallClock, wait_until,
};
use serde_json::Value;

use super::scene::{Finished, PATIENCE, Scene, in_own_mounts, program};

/// What the doctor says about locks: whether they can be taken.
#[track_caller]
fn says_yes(scene: &Scene, args: &[&str]) -> bool {
    let said = Finished::of(scene.ringfence(&[&["--json", "doctor"], args].concat()));
    let value: Value = serde_json::from_str(said.stdout()).expect("JSON");
    let has_quorum = value["quorum"]
        .as_bool()
        .expect("whether locks can be taken");
    // No majority is a problem, and a problem exits with 1.
    assert!(has_quorum || said.code() == 1, "{value:#}");
    has_quorum
}

/// Checks the doctor under the fault `what`. `is_told`: a node tells of it without a write.
#[track_caller]
fn doctor_is_not_fooled(scene: &Scene, what: &str, is_told: bool) {
    let run = Finished::of(scene.ringfence(&["run", "-n", "x", "--", "true"]));
    assert_eq!(run.code(), 69, "{what}: {}", run.stderr());
    if is_told {
        assert!(!says_yes(scene, &[]), "`doctor`: {what}");
    }
    assert!(!says_yes(scene, &["--try"]), "`doctor --try`: {what}");
}

/// Three servers of which two have the fault.
fn with(what: &str, is_told: bool, fault: impl Fn(&Server, &Fleet)) {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    init(&scene);
    fault(&fleet[0], &fleet);
    fault(&fleet[1], &fleet);
    doctor_is_not_fooled(&scene, what, is_told);
}

fn init(scene: &Scene) {
    wait_until("a new cluster", PATIENCE, || {
        let done = scene.ringfence(&["init"]).output();
        done.expect("ringfence runs").status.success()
    });
}

#[test]
fn on_a_healthy_cluster_a_lock_is_tried_and_leaves_nothing() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    init(&scene);
    let said = Finished::of(scene.ringfence(&["doctor", "--try"]));
    assert_eq!(said.code(), 0, "{}", said.stdout());
    assert_eq!(
        said.stdout().matches("granted a lock").count(),
        3,
        "{}",
        said.stdout()
    );
    assert!(
        said.stdout().contains("a lock was taken and released in"),
        "{}",
        said.stdout()
    );
    let kept = |server: &Server| server.command(&["KEYS", "doctor-try*"]).is_empty();
    wait_until("the lock to be released everywhere", PATIENCE, || {
        fleet.iter().all(kept)
    });
}

#[test]
fn a_new_cluster_is_not_joined_to_try_a_lock() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    assert!(!says_yes(&scene, &["--try"]));
    for server in fleet.iter() {
        assert_eq!(server.command(&["DBSIZE"]), "0");
    }
}

#[test]
fn servers_that_are_gone_hung_or_forgot_are_found() {
    with("down", true, |server, _| server.kill());
    with("shut down", true, |server, _| server.shutdown_cleanly());
    with("hung", true, |server, _| server.pause());
    with("restarted", true, |server, _| server.restart());
    with("emptied", true, |server, _| {
        server.command(&["FLUSHALL"]);
    });
    with("replica", true, |server, fleet| server.follow(&fleet[2]));
}

#[test]
fn servers_that_refuse_writes_are_found() {
    let set = |server: &Server, name: &str, value: &str| {
        server.command(&["CONFIG", "SET", name, value]);
    };
    with("out of memory", true, |server, _| {
        set(server, "maxmemory", "1")
    });
    with("evicts", true, |server, _| {
        set(server, "maxmemory", "100mb");
        set(server, "maxmemory-policy", "allkeys-lru");
    });
    with("snapshot failed", true, |server, _| {
        set(server, "save", "3600 1");
        // The snapshot cannot take the place of a folder.
        let folder = server.command(&["CONFIG", "GET", "dir"]);
        let folder = folder.lines().last().expect("a folder").trim();
        fs::create_dir_all(format!("{folder}/dump.rdb/x")).expect("our own folder");
        server.command(&["BGSAVE"]);
        wait_until("the snapshot to fail", PATIENCE, || {
            let info = server.command(&["INFO", "persistence"]);
            info.contains("rdb_last_bgsave_status:err")
        });
    });
    with("too few replicas", true, |server, _| {
        set(server, "min-replicas-to-write", "1");
    });
    // The server answers every question, and executes no write.
    with("writes paused", false, |server, _| {
        server.command(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    });
    with("no rights", true, |server, _| {
        server.command(&["ACL", "SETUSER", "default", "-@scripting"]);
    });
    with("another format", true, |server, _| {
        server.command(&["SET", "ringfence:born", "another format"]);
    });
}

#[test]
fn a_network_or_a_server_that_does_not_pass_locks_is_found() {
    for fault in [
        Fault::Delay(Duration::from_secs(5)),
        Fault::Hold,
        Fault::BlackHole,
        Fault::Reset,
    ] {
        let fleet = Fleet::start(3);
        let proxies = [0, 1].map(|node| Proxy::in_front_of(&fleet[node]));
        let urls = format!(
            "{},{},{}",
            proxies[0].url(),
            proxies[1].url(),
            fleet[2].url()
        );
        let scene = Scene::on(&urls);
        init(&scene);
        proxies.iter().for_each(|proxy| proxy.replies(fault));
        doctor_is_not_fooled(&scene, &format!("{fault:?}"), true);
        proxies.iter().for_each(Proxy::pass);
        proxies.iter().for_each(Proxy::refuse);
        doctor_is_not_fooled(&scene, "refused", true);
    }
    // Only locks are answered wrongly.
    let attacks = [
        Attack::error("ERR no"),
        Attack::text("no"),
        Attack::Nested { depth: 4000 },
    ];
    for (number, attack) in attacks.into_iter().enumerate() {
        let fleet = Fleet::start(3);
        let hostile = [0, 1].map(|node| HostileServer::in_front_of(&fleet[node]));
        let urls = format!(
            "{},{},{}",
            hostile[0].url(),
            hostile[1].url(),
            fleet[2].url()
        );
        let scene = Scene::on(&urls);
        init(&scene);
        for server in &hostile {
            server.attack_replies_to("EVALSHA", attack.clone());
        }
        doctor_is_not_fooled(&scene, &format!("attack {number}"), false);
    }
}

#[test]
fn clocks_that_are_apart_are_found() {
    let clocks = [-3_600_000_000, 3_600_000_000].map(WallClock::ahead_by);
    let fleet = Fleet::start_with(3, |number| {
        let server = Server::builder(ringfence_testkit::Flavor::Redis);
        match clocks.get(number) {
            Some(clock) => server.wall_clock(clock),
            None => server,
        }
    });
    let scene = Scene::on(&fleet.urls());
    init(&scene);
    doctor_is_not_fooled(&scene, "clocks apart", true);
}

/// A file system of 128 KB, of which nothing is left.
#[test]
fn a_full_disk_under_the_embedded_file_is_found() {
    let scene = Scene::embedded();
    fs::create_dir(scene.path("full")).expect("our own folder");
    let script = "mount -t tmpfs -o size=128k none $DIR/full || exit 9
        cat /dev/zero > $DIR/full/other 2>/dev/null
        export RINGFENCE_NODES=sqlite:$DIR/full/locks.db
        $RF run -n x -- true; echo run=$?
        $RF doctor; echo doctor=$?
        $RF doctor --try; echo try=$?";
    let mut command = in_own_mounts();
    command
        .args(["sh", "-c", script])
        .env("DIR", scene.path(""))
        .env("RF", program())
        .env("RINGFENCE_CONFIG", "");
    let said = Finished::of(command);
    assert_eq!(said.code(), 0, "{}", said.stderr());
    for words in ["run=69", "doctor=1", "try=1", "no lock can be taken"] {
        assert!(
            said.stdout().contains(words),
            "{words}: {}{}",
            said.stdout(),
            said.stderr()
        );
    }
    assert!(
        !said.stdout().contains(": locks can be taken"),
        "{}",
        said.stdout()
    );
}
