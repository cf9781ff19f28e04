//! `ringfence break`: an operator ends the hold of another client.

use ringfence_testkit::{Certificates, Flavor, Fleet, Server};
use serde_json::Value;

use super::person::Person;
use super::scene::{Finished, Scene};

fn ringfence(scene: &Scene, args: &[&str]) -> Finished {
    Finished::of(scene.ringfence(args))
}

#[track_caller]
fn json(finished: &Finished) -> Value {
    assert_eq!(finished.code(), 0, "{}", finished.stderr());
    serde_json::from_str(finished.stdout()).expect("JSON")
}

/// Takes the lock `x` as a client that dies, and returns its fence.
fn dead_holder(scene: &Scene) -> u64 {
    let taken = ringfence(scene, &["acquire", "x", "--label", "dead", "--json"]);
    json(&taken)["fence"].as_u64().expect("a fence")
}

#[test]
fn a_broken_lock_is_free_and_has_a_higher_fence() {
    let scene = Scene::embedded();
    let old = dead_holder(&scene);
    let broken = ringfence(&scene, &["break", "x", "--yes", "--json"]);
    let fence = json(&broken)["fence"].as_u64().expect("a fence");
    assert!(fence > old);
    let next = ringfence(&scene, &["acquire", "x", "-n", "--json"]);
    assert!(json(&next)["fence"].as_u64().expect("a fence") > fence);
    let free = ringfence(&scene, &["break", "free", "--yes"]);
    assert_eq!(free.code(), 64);
    assert!(
        free.stderr().contains("`free` is free"),
        "{}",
        free.stderr()
    );
}

#[test]
fn without_a_terminal_nothing_is_broken_unless_yes_is_given() {
    let scene = Scene::embedded();
    dead_holder(&scene);
    let refused = ringfence(&scene, &["break", "x"]);
    assert_eq!(refused.code(), 64);
    for words in ["held by dead", "--yes"] {
        assert!(refused.stderr().contains(words), "{}", refused.stderr());
    }
    assert!(!scene.is_free());
}

#[test]
fn a_person_is_asked_first_and_told_that_the_holder_may_still_run() {
    let scene = Scene::embedded();
    dead_holder(&scene);
    let person = Person::at(&scene);
    person.types("$RF break x\n");
    person.sees("held by dead");
    person.sees("Break it? [y/N]");
    person.types("n\n");
    person.sees("nothing was broken");
    person.types("$RF break x\n");
    person.sees("Break it? [y/N]");
    person.types("y\n");
    person.sees("broke `x`: its fence is");
    person.sees("may still be running");
    assert!(scene.is_free());
}

#[test]
fn a_living_holder_learns_who_broke_its_lock_and_why() {
    let (_server, scene) = Scene::served();
    let run = scene.run(&["--ttl", "2s"], "echo up > $DIR/up; exec sleep 60");
    scene.line("up");
    let reason = "host-7 seems dead";
    let mut breaking = scene.ringfence(&["break", "x", "--yes", "--reason", reason]);
    breaking.env("USER", "olga").env_remove("SUDO_USER");
    let broken = Finished::of(breaking);
    assert_eq!(broken.code(), 0, "{}", broken.stderr());
    let lost = run.finish();
    assert_eq!(lost.code(), 79, "{}", lost.stderr());
    // The real user comes first; what the variable says is only added.
    let real = real_user();
    for words in [&format!("broken by {real}@"), "(USER=olga)", reason] {
        assert!(lost.stderr().contains(words), "{}", lost.stderr());
    }
}

#[test]
fn a_lock_that_hold_at_least_keeps_can_be_broken() {
    let scene = Scene::embedded();
    let args = ["run", "--hold-at-least", "1h", "x", "--", "true"];
    assert_eq!(ringfence(&scene, &args).code(), 0);
    assert!(!scene.is_free());
    let broken = ringfence(&scene, &["break", "x", "-y"]);
    assert_eq!(broken.code(), 0, "{}", broken.stderr());
    assert!(broken.stdout().contains("no client held it"));
    assert!(scene.is_free());
}

#[test]
fn a_lock_is_broken_on_five_nodes_of_which_two_are_down() {
    let fleet = Fleet::start(5);
    let scene = Scene::on(&fleet.urls_without_quarantine());
    let old = dead_holder(&scene);
    fleet[1].kill();
    fleet[3].kill();
    let broken = ringfence(&scene, &["break", "x", "--yes", "--json"]);
    assert!(json(&broken)["fence"].as_u64().expect("a fence") > old);
    assert!(scene.is_free());
    fleet[0].kill();
    let refused = ringfence(&scene, &["break", "x", "--yes"]);
    assert_eq!(refused.code(), 69, "{}", refused.stderr());
}

#[test]
fn the_last_slot_of_the_largest_semaphore_can_be_named() {
    let scene = Scene::embedded();
    let broken = ringfence(&scene, &["break", "x", "--slot", "255", "-y"]);
    let said = broken.stderr();
    assert!(said.contains("there is no slot 255"), "{said}");
}

#[test]
fn one_slot_of_a_semaphore_is_broken_and_the_other_stays() {
    let (_server, scene) = Scene::served();
    let run = |name: &str| {
        let script = format!("echo $RINGFENCE_SLOT > $DIR/{name}; exec sleep 60");
        scene.run(&["--permits", "2", "--ttl", "2s"], &script)
    };
    let first = run("a");
    let slot = scene.line("a");
    let second = run("b");
    scene.line("b");
    let broken = ringfence(&scene, &["break", "x", "--slot", &slot, "-y"]);
    assert_eq!(broken.code(), 0, "{}", broken.stderr());
    assert_eq!(first.finish().code(), 79);
    let status = ringfence(&scene, &["status", "x"]);
    assert!(
        status.stdout().contains("1 of 2 permits taken"),
        "{}",
        status.stdout()
    );
    drop(second);
}

#[test]
fn the_marks_of_resources_are_raised_to_the_new_fence() {
    let (server, scene) = Scene::served();
    dead_holder(&scene);
    let data = server.url();
    let args = [
        "break",
        "x",
        "-y",
        "--json",
        "--raise-mark",
        &data,
        "--resource",
        "balance:1",
    ];
    let fence = json(&ringfence(&scene, &args))["fence"].to_string();
    let marks = server.command(&["HGET", "ringfence-marks:{balance:1}:balance:1", "write"]);
    assert_eq!(marks, fence);

    dead_holder(&scene);
    let file = scene.path("data.db");
    rusqlite::Connection::open(&file)
        .expect("a file")
        .execute_batch("CREATE TABLE t (x)")
        .unwrap();
    let url = format!("sqlite:{}", file.display());
    let args = ["break", "x", "-y", "--json", "--raise-mark", &url];
    let fence = json(&ringfence(&scene, &args))["fence"].as_i64();
    let database = rusqlite::Connection::open(&file).expect("a file");
    let mark = database.query_row(
        "SELECT write_mark FROM ringfence_marks WHERE resource = 'x'",
        [],
        |row| row.get(0),
    );
    assert_eq!(mark.ok(), fence);

    dead_holder(&scene);
    let printed = ringfence(
        &scene,
        &["break", "x", "-y", "--raise-mark", "postgres://db/app"],
    );
    let text = printed.stdout();
    assert!(
        text.contains("INSERT INTO ringfence_marks") && text.contains("'x'"),
        "{text}"
    );

    dead_holder(&scene);
    let refused = ringfence(&scene, &["break", "x", "-y", "--raise-mark", "memory:"]);
    assert_eq!(refused.code(), 64);
    assert!(
        !scene.is_free(),
        "nothing is broken if the mark cannot be raised"
    );
}

#[test]
fn one_reader_is_broken_and_the_other_stays() {
    let (_server, scene) = Scene::served();
    let run = |name: &str| {
        let script = format!("echo $RINGFENCE_TOKEN > $DIR/{name}; exec sleep 60");
        scene.run(&["--shared", "--ttl", "2s"], &script)
    };
    let first = run("a");
    let token = scene.line("a");
    let second = run("b");
    scene.line("b");
    let (id, _) = token.split_once('.').expect("an id");
    let unknown = ringfence(&scene, &["break", "x", "--reader", "0000000000", "-y"]);
    assert_eq!(unknown.code(), 64, "{}", unknown.stderr());
    let broken = ringfence(&scene, &["break", "x", "--reader", id, "-y"]);
    assert_eq!(broken.code(), 0, "{}", broken.stderr());
    assert_eq!(first.finish().code(), 79);
    assert!(second.process().is_alive());
    let all = ringfence(&scene, &["break", "x", "-y"]);
    assert_eq!(all.code(), 0, "{}", all.stderr());
    assert_eq!(second.finish().code(), 79);
}

#[test]
fn the_mark_of_a_resource_behind_tls_is_raised_too() {
    let (_server, scene) = Scene::served();
    let certificates = Certificates::generate();
    let data = Server::builder(Flavor::Redis).tls(&certificates).start();
    let trusted = certificates.authority_file();
    let url = format!("{}?ca={}", data.url(), trusted.display());
    dead_holder(&scene);
    let raised = ringfence(&scene, &["break", "x", "-y", "--raise-mark", &url]);
    assert_eq!(raised.code(), 0, "{}", raised.stderr());
    let text = raised.stdout();
    assert!(text.contains("raised the mark of `x`"), "{text}");
    // A server that is not trusted gets no mark, and the operator is told the fence.
    dead_holder(&scene);
    let others = Certificates::generate();
    let url = format!("{}?ca={}", data.url(), others.authority_file().display());
    let refused = ringfence(&scene, &["break", "x", "-y", "--raise-mark", &url]);
    assert_eq!(refused.code(), 70, "{}", refused.stdout());
    let told = refused.stderr().contains("its fence is");
    assert!(told, "{}", refused.stderr());
}

/// The name of the user who runs the tests.
fn real_user() -> String {
    let output = std::process::Command::new("id").arg("-un").output();
    let name = output.expect("id").stdout;
    String::from_utf8(name).expect("UTF-8").trim().to_owned()
}
