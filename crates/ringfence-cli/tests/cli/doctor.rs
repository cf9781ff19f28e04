//! `ringfence doctor` on real servers: it finds each problem that a node can have, and changes
//! nothing.

use std::fs;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_testkit::{Certificates, Flavor, Fleet, Persistence, Server, WallClock, wait_until};
use serde_json::Value;

use super::diagnosis::{assert_says, doctor, finding};
use super::scene::{Finished, PATIENCE, Scene};

/// Three servers that vote.
fn initialised(fleet: &Fleet) -> Scene {
    let scene = Scene::on(&fleet.urls());
    let init = Finished::of(scene.ringfence(&["init"]));
    assert_eq!(init.code(), 0, "{}", init.stderr());
    scene
}

#[test]
fn a_healthy_cluster_on_one_host_is_a_warning_and_exits_0() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor));
        let scene = initialised(&fleet);
        let (text, value) = doctor(&scene, 0);
        assert_says(finding(&value, "hosts", None), "warning", &["one host"]);
        assert_eq!(value["warnings"], 1, "{value:#}");
        assert!(value["nodes"][0]["round_trip_us"].as_u64().unwrap() > 0);
        assert!(
            text.ends_with("1 warning: locks can be taken with 3 of 3 nodes\n"),
            "{text}"
        );
    }
}

#[test]
fn a_new_cluster_asks_for_init_and_stays_new() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    let (text, value) = doctor(&scene, 1);
    assert_says(
        finding(&value, "votes", None),
        "problem",
        &["`ringfence init`"],
    );
    assert_says(
        finding(&value, "birth", Some(&fleet[1])),
        "warning",
        &["is new"],
    );
    assert!(
        text.ends_with("no lock can be taken with 0 of 3 nodes\n"),
        "{text}"
    );
    for server in fleet.iter() {
        assert_eq!(server.command(&["DBSIZE"]), "0");
    }
    // A first client starts the quarantine, and the doctor does not start it again.
    let refused = scene.run(&["-n"], "true").finish();
    assert_eq!(refused.code(), 69, "{}", refused.stderr());
    let born = fleet[0].command(&["GET", "ringfence:born"]);
    let (_, value) = doctor(&scene, 1);
    assert_says(
        finding(&value, "votes", None),
        "problem",
        &["otherwise wait 3"],
    );
    assert_eq!(fleet[0].command(&["GET", "ringfence:born"]), born);
}

#[test]
fn the_doctor_changes_nothing_on_nodes_with_locks() {
    let fleet = Fleet::start(3);
    let scene = initialised(&fleet);
    let run = scene.run(&["--ttl", "20s"], "echo > $DIR/on; exec sleep 1000");
    scene.line("on");
    // A majority is enough to start the command; the last node may get the lock later.
    wait_until("every node to have the lock", PATIENCE, || {
        fleet
            .iter()
            .all(|node| node.command(&["EXISTS", "x"]) == "1")
    });
    let everything = |server: &Server| {
        let mut keys: Vec<String> = server
            .command(&["KEYS", "*"])
            .lines()
            .map(|key| format!("{key} {}", server.command(&["DUMP", key])))
            .collect();
        keys.sort();
        keys
    };
    let writes = |server: &Server| {
        let stats = server.command(&["INFO", "persistence"]);
        let count = stats
            .lines()
            .find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        count.unwrap().trim().to_owned()
    };
    let before: Vec<_> = fleet.iter().map(|s| (everything(s), writes(s))).collect();
    let (_, value) = doctor(&scene, 0);
    let after: Vec<_> = fleet.iter().map(|s| (everything(s), writes(s))).collect();
    assert_eq!(before, after);
    assert_eq!(value["problems"], 0);
    drop(run);
}

#[test]
fn a_node_that_is_down_is_a_problem() {
    let fleet = Fleet::start(3);
    let scene = initialised(&fleet);
    fleet[1].kill();
    let (text, value) = doctor(&scene, 1);
    let down = finding(&value, "reach", Some(&fleet[1]));
    assert_says(down, "problem", &["cannot be reached", "start it"]);
    assert_eq!(value["nodes"][1]["votes"], false);
    assert_eq!(value["quorum"], true);
    assert!(
        text.ends_with("locks can be taken with 2 of 3 nodes\n"),
        "{text}"
    );
    for server in fleet.iter() {
        server.kill();
    }
    let (text, _) = doctor(&scene, 1);
    assert!(
        text.ends_with("no lock can be taken with 0 of 3 nodes\n"),
        "{text}"
    );
}

#[test]
fn a_node_that_hangs_does_not_hang_the_doctor() {
    let fleet = Fleet::start(3);
    let scene = initialised(&fleet);
    fleet[2].pause();
    let began = Clock::System.now();
    let (_, value) = doctor(&scene, 1);
    let took = Clock::System.now().since(began);
    fleet[2].resume();
    assert_says(
        finding(&value, "reach", Some(&fleet[2])),
        "problem",
        &["did not answer"],
    );
    // It tries twice, with two seconds each.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn a_wrong_password_is_a_problem_and_is_not_shown() {
    let server = Server::builder(Flavor::Redis)
        .requirepass("hunter2")
        .start();
    let wrong = server.url().replace("hunter2", "swordfish");
    let (text, value) = doctor(&Scene::on(&wrong), 1);
    assert_says(
        finding(&value, "reach", Some(&server)),
        "problem",
        &["password"],
    );
    assert!(!format!("{text}{value}").contains("swordfish"), "{text}");
    assert_says(
        finding(&value, "votes", None),
        "problem",
        &["the node does not vote"],
    );
    let none = format!("redis://{}", server.addr());
    let (_, value) = doctor(&Scene::on(&none), 1);
    assert_says(
        finding(&value, "reach", Some(&server)),
        "problem",
        &["asks for a password"],
    );
}

#[test]
fn an_untrusted_certificate_is_a_problem_whose_advice_names_ca() {
    let certificates = Certificates::generate();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let others = Certificates::generate();
    let url = format!("{}?ca={}", server.url(), others.authority_file().display());
    let (_, value) = doctor(&Scene::on(&url), 1);
    assert_says(
        finding(&value, "reach", Some(&server)),
        "problem",
        &["certificate", "?ca="],
    );
    let missing = format!("{}?ca=/no/such/file", server.url());
    let (_, value) = doctor(&Scene::on(&missing), 1);
    assert_says(
        finding(&value, "reach", Some(&server)),
        "problem",
        &["/no/such/file"],
    );
    let plain = format!("redis://{}", server.addr());
    let (_, value) = doctor(&Scene::on(&plain), 1);
    finding(&value, "reach", Some(&server));
}

/// More trusted roots would not help.
#[test]
fn a_certificate_of_another_host_is_a_problem_whose_advice_does_not_name_ca() {
    let certificates = Certificates::for_hosts(&["other.example"]);
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let trusted = certificates.authority_file();
    let url = format!("{}?ca={}", server.url(), trusted.display());
    let (_, value) = doctor(&Scene::on(&url), 1);
    let found = finding(&value, "reach", Some(&server));
    assert_says(found, "problem", &["certificate"]);
    assert!(!found.to_string().contains("?ca="), "{found}");
}

#[test]
fn servers_that_cannot_keep_locks_are_problems() {
    let primary = Server::start(Flavor::Redis);
    let replica = Server::builder(Flavor::Redis).replica_of(&primary).start();
    let cluster = Server::builder(Flavor::Redis).cluster_mode().start();
    let evicting = Server::builder(Flavor::Redis)
        .arg("--maxmemory", "100mb")
        .arg("--maxmemory-policy", "volatile-lru")
        .start();
    let urls = [&replica, &cluster, &evicting].map(Server::url).join(",");
    let (_, value) = doctor(&Scene::on(&urls), 1);
    let master = primary.addr().to_string();
    assert_says(
        finding(&value, "role", Some(&replica)),
        "problem",
        &["replica", &master],
    );
    assert_says(
        finding(&value, "role", Some(&cluster)),
        "problem",
        &["cluster mode"],
    );
    assert_says(
        finding(&value, "eviction", Some(&evicting)),
        "problem",
        &["volatile-lru"],
    );
    assert_eq!(value["nodes"][0]["role"], "replica");
    assert_eq!(value["nodes"][0]["version"], value["nodes"][2]["version"]);
    let allowed = format!("{}?eviction=allow", evicting.url());
    let (_, value) = doctor(&Scene::on(&allowed), 0);
    assert_says(
        finding(&value, "eviction", Some(&evicting)),
        "warning",
        &["volatile-lru"],
    );
}

#[test]
fn a_server_given_twice_and_an_even_number_of_nodes_are_reported() {
    let server = Server::start(Flavor::Valkey);
    let twice = format!("{},redis://localhost:{}", server.url(), server.port());
    let (text, value) = doctor(&Scene::on(&twice), 1);
    let duplicates = finding(&value, "duplicates", None);
    let localhost = format!("localhost:{}", server.port());
    assert_says(
        duplicates,
        "problem",
        &[&server.addr().to_string(), &localhost, "same server"],
    );
    assert_says(finding(&value, "count", None), "warning", &["use 1 or 3"]);
    assert!(text.contains("no lock can be taken"), "{text}");
}

#[test]
fn a_clock_an_hour_wrong_is_a_problem() {
    const HOUR_US: i64 = 3_600_000_000;
    let clocks = [0, HOUR_US, 0].map(WallClock::ahead_by);
    let fleet = Fleet::start_with(3, |node| {
        Server::builder(Flavor::Redis).wall_clock(&clocks[node])
    });
    let scene = initialised(&fleet);
    let (text, value) = doctor(&scene, 1);
    let wrong = finding(&value, "clock", Some(&fleet[1]));
    assert_says(wrong, "problem", &["1 h ahead", "cannot vote", "chrony"]);
    let ahead_us = value["nodes"][1]["clock_ahead_us"].as_i64().unwrap();
    assert!((ahead_us - HOUR_US).abs() < 1_000_000, "{ahead_us}");
    assert!(
        text.ends_with("locks can be taken with 2 of 3 nodes\n"),
        "{text}"
    );
    // From a machine whose own clock is wrong, the same node is the problem.
    let mut command = scene.ringfence(&["doctor", "--json"]);
    command.envs(clocks[1].environment());
    let done = Finished::of(command);
    assert_eq!(done.code(), 1, "{}", done.stderr());
    let value: Value = serde_json::from_str(done.stdout()).expect("JSON");
    assert_says(
        finding(&value, "clock", Some(&fleet[1])),
        "problem",
        &["cannot vote"],
    );
    assert_says(
        finding(&value, "own-clock", None),
        "warning",
        &["1 h ahead"],
    );
}

#[test]
fn a_key_of_ours_without_expiry_is_found() {
    let server = Server::start(Flavor::Redis);
    for number in 0..2_000 {
        server.command(&["SET", &format!("other:{number}"), "x"]);
    }
    server.command(&["SET", "ringfence:{x}:record:x", "junk"]);
    server.command(&[
        "SET",
        "ringfence:{y}:record:y\u{1b}[2J",
        "junk",
        "PX",
        "100000",
    ]);
    let (_, value) = doctor(&Scene::on(&server.url()), 0);
    let lasting = finding(&value, "expiry", Some(&server));
    assert_says(
        lasting,
        "warning",
        &["1 key of ours", "`ringfence:{x}:record:x`", "2 checked"],
    );
    server.command(&["PERSIST", "ringfence:{y}:record:y\u{1b}[2J"]);
    server.command(&["DEL", "ringfence:{x}:record:x"]);
    let (text, _) = doctor(&Scene::on(&server.url()), 0);
    assert!(text.contains(r"ringfence:{y}:record:y\u{1b}[2J"), "{text}");
}

#[test]
fn durability_and_restarts_are_reported() {
    let server = Server::builder(Flavor::Redis)
        .persistence(Persistence::AofAlways)
        .start();
    let (text, _) = doctor(&Scene::on(&server.url()), 0);
    assert!(text.contains("durable: a lock is on disk"), "{text}");
    let fleet = Fleet::start(3);
    let scene = initialised(&fleet);
    fleet[0].restart();
    let (_, value) = doctor(&scene, 0);
    assert_says(
        finding(&value, "birth", Some(&fleet[0])),
        "warning",
        &["is new"],
    );
    assert_eq!(value["nodes"][0]["votes"], false);
    assert_eq!(fleet[0].command(&["DBSIZE"]), "0");
}

#[test]
fn an_embedded_file_is_checked_and_not_created() {
    let scene = Scene::embedded();
    let (text, _) = doctor(&scene, 0);
    assert!(text.contains("does not exist yet"), "{text}");
    assert!(!scene.has("locks.db"));
    assert!(scene.is_free());
    let folder = |scene: &Scene| {
        let entries = fs::read_dir(scene.path(".")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (folder(&scene), fs::read(scene.path("locks.db")).unwrap());
    let (text, _) = doctor(&scene, 0);
    assert!(text.contains("is a lock file of ringfence"), "{text}");
    assert!(text.contains("write-ahead log"), "{text}");
    assert_eq!(
        before,
        (folder(&scene), fs::read(scene.path("locks.db")).unwrap())
    );
    // The same while a client holds a lock in it.
    let run = scene.run(&[], "echo > $DIR/on; exec sleep 1000");
    scene.line("on");
    let (text, _) = doctor(&scene, 0);
    assert!(text.contains("write-ahead log"), "{text}");
    assert!(!scene.is_free());
    drop(run);
    scene.write("text", &"not a database ".repeat(100));
    let text = Scene::on(&format!("sqlite:{}", scene.path("text").display()));
    assert!(doctor(&text, 1).0.contains("is not a SQLite database"));
    let missing = Scene::on("sqlite:/no/such/folder/locks.db");
    assert!(doctor(&missing, 1).0.contains("its folder does not exist"));
}

#[cfg(target_os = "linux")]
#[test]
fn an_embedded_file_that_is_mounted_without_its_folder_is_a_problem() {
    let scene = Scene::embedded();
    assert!(scene.is_free());
    let mounted = Scene::embedded();
    mounted.write("locks.db", "");
    let mut there = ringfence_testkit::unshared(&["--mount"]);
    there.args([
        "sh",
        "-c",
        "mount --bind \"$1\" \"$2\" && exec \"$0\" doctor",
    ]);
    let ringfence = mounted.ringfence(&[]);
    there.arg(env!("CARGO_BIN_EXE_ringfence"));
    there.args([scene.path("locks.db"), mounted.path("locks.db")]);
    for (name, value) in ringfence.get_envs() {
        value.map(|value| there.env(name, value));
    }
    let output = there.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("mount the folder"), "{text}");
}

#[test]
fn locks_in_memory_are_a_problem() {
    let (text, _) = doctor(&Scene::on("memory:"), 1);
    assert!(text.contains("exclude no other"), "{text}");
}
