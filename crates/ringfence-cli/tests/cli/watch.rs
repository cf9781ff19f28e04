//! `ringfence watch`: a line whenever a lock changes hands.

use ringfence_testkit::wait_until;
use rustix::process::Signal;
use serde_json::Value;

use super::person::Person;
use super::scene::{Finished, PATIENCE, Running, Scene};

#[test]
fn a_line_says_who_holds_the_lock_and_each_change() {
    let (_server, scene) = Scene::served();
    let watch = Running::start(scene.ringfence(&["watch", "x"]));
    watch.wait_for_output("free");
    let held = scene.run(
        &["--label", "first", "--ttl", "2s"],
        "echo $$ > $DIR/held; exec sleep 1000",
    );
    watch.wait_for_output("taken by first (fence ");
    drop(held);
    let stopped = scene.process("held");
    stopped.wait_gone();
    watch.wait_for_output("first (fence ");
    watch.wait_for_output("is gone");
    watch.signal(Signal::TERM);
    assert_eq!(watch.finish().code(), 143);
}

#[test]
fn json_has_a_line_for_each_change() {
    let scene = Scene::embedded();
    let taken = Finished::of(scene.ringfence(&["acquire", "x", "--label", "dead"]));
    assert_eq!(taken.code(), 0, "{}", taken.stderr());
    let watch = Running::start(scene.ringfence(&["watch", "x", "--json"]));
    watch.wait_for_output("\n");
    watch.signal(Signal::INT);
    let done = watch.finish();
    assert_eq!(done.code(), 130);
    let line: Value = serde_json::from_str(done.stdout()).expect("JSON");
    assert_eq!(
        (&line["change"], &line["holder"]["who"]),
        (&"held".into(), &"dead".into())
    );
    assert!(done.stderr().is_empty(), "{}", done.stderr());
}

#[test]
fn it_says_when_it_lost_the_majority_and_when_it_is_back() {
    let (server, scene) = Scene::served();
    let watch = Running::start(scene.ringfence(&["watch", "x"]));
    watch.wait_for_output("free");
    server.pause();
    watch.wait_for_output("no majority");
    server.resume();
    watch.wait_for_output("a majority answers again");
}

#[test]
fn it_ends_when_its_reader_has_gone_although_nothing_changes() {
    let scene = Scene::embedded();
    scene.write("job", "($RF watch x; echo code=$? >&2) | head -1");
    let person = Person::at(&scene);
    person.types("sh $DIR/job\n");
    person.sees("free");
    person.sees("code=0");
}

#[test]
fn ctrl_c_ends_it_without_a_message() {
    let scene = Scene::embedded();
    let person = Person::at(&scene);
    person.types("$RF watch x\n");
    person.sees("free");
    person.types("\x03");
    person.sees("prompt> ");
    person.sees_code(130);
}

/// An attempt that fails raises the fence of the name. Its holder keeps its own.
#[test]
fn a_fence_that_failed_attempts_raise_is_no_hand_over() {
    let (server, scene) = Scene::served();
    let taken = Finished::of(scene.ringfence(&["acquire", "x", "--ttl", "10m"]));
    let token = taken.stdout().trim().to_owned();
    let watch = Running::start(scene.ringfence(&["watch", "x"]));
    watch.wait_for_output("held by");
    let record = "ringfence:{x}:record:x";
    let text = server.command(&["GET", record]);
    let mut fields: Vec<&str> = text.trim().splitn(3, ':').collect();
    let fence: u64 = fields[1].parse().expect("a fence");
    let raised = (fence + 4_000_000).to_string();
    fields[1] = &raised;
    server.command(&["SET", record, &fields.join(":"), "KEEPTTL"]);
    // Until it has looked again.
    let looks = || {
        let stats = server.command(&["INFO", "commandstats"]);
        let lines = stats
            .lines()
            .filter(|line| line.starts_with("cmdstat_eval"));
        let calls = lines.filter_map(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok());
        calls.sum::<u64>()
    };
    let before = looks();
    wait_until("more looks", PATIENCE, || looks() > before + 30);
    let released = Finished::of(scene.ringfence(&["release", "x", "--token", &token]));
    assert_eq!(released.code(), 0, "{}", released.stderr());
    watch.wait_for_output("is gone");
    let said = watch.stdout();
    assert!(!said.contains("rose") && !said.contains("hands"), "{said}");
}
