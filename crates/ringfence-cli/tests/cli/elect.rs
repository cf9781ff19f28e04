//! `elect`: the command of the leader runs, and no other.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_testkit::{Flavor, Fleet, Server, wait_until};
use rustix::process::Signal;
use serde_json::Value;

use super::scene::{Finished, PATIENCE, Running, Scene};

/// Writes its token, its term and its process number, and keeps running.
const LEAD: &str = "echo $RINGFENCE_TOKEN > $DIR/token; echo $RINGFENCE_FENCE >> $DIR/terms
    echo $$ > $DIR/$1.new; mv $DIR/$1.new $DIR/$1; exec sleep 1000";

fn elect(scene: &Scene, options: &[&str], who: &str) -> Running {
    let rest = ["x", "--", "sh", "-c", LEAD, "sh", who];
    let args = [&["elect"], options, &rest].concat();
    Running::start(scene.ringfence(&args))
}

fn status(scene: &Scene) -> Value {
    let status = Finished::of(scene.ringfence(&["status", "--json", "x"]));
    assert_eq!(status.code(), 0, "{}", status.stderr());
    serde_json::from_str(status.stdout()).expect("JSON")
}

#[track_caller]
fn wait_for_waiting(scene: &Scene, waiting: u64) {
    wait_until("candidates in the queue", PATIENCE, || {
        status(scene)["waiting"] == waiting
    });
}

fn terms(scene: &Scene) -> Vec<u64> {
    let text = std::fs::read_to_string(scene.path("terms")).expect("terms");
    text.lines()
        .map(|term| term.parse().expect("a term"))
        .collect()
}

/// The leader is killed with SIGKILL: its command dies, its lease ends, then the next candidate
/// leads.
#[track_caller]
fn the_second_leads_only_after_the_first(scene: &Scene) {
    let first = elect(scene, &["--ttl", "2s"], "one");
    let command = scene.process("one");
    let second = elect(scene, &["--ttl", "2s", "--label", "number two"], "two");
    wait_for_waiting(scene, 1);
    assert!(!scene.has("two"), "there are two leaders");
    assert!(command.is_alive());
    let killed = Clock::System.now();
    first.signal(Signal::KILL);
    command.wait_gone();
    let next = scene.process("two");
    // It was renewed at a third of the TTL, so two thirds remained.
    let after = Clock::System.now().since(killed);
    assert!(
        after > Duration::from_millis(500),
        "the lease has to end first: {after:?}"
    );
    assert!(next.is_alive());
    assert_eq!(status(scene)["label"], "number two");
    let terms = terms(scene);
    assert!(terms.len() == 2 && terms[0] < terms[1], "{terms:?}");
    second.signal(Signal::TERM);
    assert_eq!(second.finish().code(), 128 + 15);
    assert!(!next.is_alive());
    wait_until("the leader to resign", PATIENCE, || {
        status(scene)["state"] == "free"
    });
}

#[test]
fn after_sigkill_the_next_candidate_leads_when_the_lease_has_ended() {
    the_second_leads_only_after_the_first(&Scene::embedded());
}

#[test]
fn after_sigkill_the_next_candidate_leads_on_three_nodes_too() {
    let fleet = Fleet::start(3);
    the_second_leads_only_after_the_first(&Scene::on(&fleet.urls_without_quarantine()));
}

#[test]
fn a_leader_that_loses_the_lead_ends_its_command_and_campaigns_again() {
    let scene = Scene::embedded();
    let leader = elect(&scene, &["--ttl", "1s"], "one");
    let before = scene.process("one");
    std::fs::remove_file(scene.path("one")).expect("our own file");
    scene.steal();
    before.wait_gone();
    let after = scene.process("one");
    assert!(after.is_alive());
    let terms = terms(&scene);
    assert!(terms.len() == 2 && terms[0] < terms[1], "{terms:?}");
    leader.signal(Signal::TERM);
    let done = leader.finish();
    assert_eq!(done.code(), 128 + 15);
    assert!(
        done.stderr().contains("lost the lock `x`"),
        "{}",
        done.stderr()
    );
    assert!(!after.is_alive());
}

#[test]
fn after_an_outage_a_leader_campaigns_again() {
    let server = Server::start(Flavor::Redis);
    let scene = Scene::on(&server.url_without_quarantine());
    let leader = elect(&scene, &["--ttl", "1s"], "one");
    let before = scene.process("one");
    std::fs::remove_file(scene.path("one")).expect("our own file");
    server.pause();
    before.wait_gone();
    server.resume();
    let after = scene.process("one");
    assert!(after.is_alive());
    leader.signal(Signal::INT);
    assert_eq!(leader.finish().code(), 128 + 2);
}

#[test]
fn when_the_command_exits_elect_resigns_and_exits_with_its_code() {
    let scene = Scene::embedded();
    let args = ["elect", "x", "--", "sh", "-c", "exit 7"];
    assert_eq!(Finished::of(scene.ringfence(&args)).code(), 7);
    assert!(scene.is_free());
}

#[test]
fn a_candidate_that_does_not_wait_gets_the_name_of_the_leader() {
    let scene = Scene::embedded();
    let _leader = elect(&scene, &["--label", "number one"], "one");
    scene.line("one");
    let args = ["elect", "-n", "-E", "9", "x", "--", "true"];
    let refused = Finished::of(scene.ringfence(&args));
    assert_eq!(refused.code(), 9);
    assert!(
        refused.stderr().contains("held by number one"),
        "{}",
        refused.stderr()
    );
}

#[test]
fn a_candidate_can_be_ended_while_it_waits() {
    let scene = Scene::embedded();
    let _leader = elect(&scene, &[], "one");
    scene.line("one");
    let candidate = elect(&scene, &[], "two");
    wait_for_waiting(&scene, 1);
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.finish().code(), 128 + 15);
    wait_for_waiting(&scene, 0);
}
