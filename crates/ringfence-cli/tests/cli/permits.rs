//! `run --permits N`: N commands at a time.

use serde_json::Value;

use super::scene::{Finished, Scene};

/// A command that writes its slot to the file `NAME` and keeps running.
fn holder(name: &str) -> String {
    format!("echo $RINGFENCE_SLOT > $DIR/{name}; exec sleep 1000")
}

#[test]
fn as_many_run_at_once_as_there_are_permits() {
    let scene = Scene::embedded();
    let permits = ["--permits", "2"];
    let first = scene.run(&permits, &holder("a"));
    let second = scene.run(&permits, &holder("b"));
    let mut slots = [scene.line("a"), scene.line("b")];
    slots.sort();
    assert_eq!(slots, ["0", "1"]);
    let refused = scene.run(&["--permits", "2", "-n"], "true").finish();
    assert_eq!(refused.code(), 75);
    assert!(
        refused
            .stderr()
            .contains("`x` is full: 2 of 2 permits are taken"),
        "{}",
        refused.stderr()
    );
    assert!(scene.is_free(), "a lock of that name is independent");
    let waiting = scene.run(
        &permits,
        "echo $RINGFENCE_SLOT $RINGFENCE_FENCE $RINGFENCE_NAME",
    );
    waiting.wait_for_line();
    let status = Finished::of(scene.ringfence(&["status", "x"]));
    let lines: Vec<&str> = status.stdout().lines().collect();
    assert_eq!(lines[0], "semaphore: all 2 permits are taken");
    for (slot, line) in lines[1..3].iter().enumerate() {
        assert!(line.starts_with(&format!("  slot {slot}: ")), "{line}");
        assert!(line.contains(", fence "), "{line}");
    }
    assert!(lines[3].starts_with("  1 waits, for "), "{}", lines[3]);
    assert!(lines[4].ends_with(": votes"), "{}", lines[4]);
    assert_eq!(lines.len(), 5);
    let taken = scene.ringfence(&["status", "--exit-code", "x"]);
    assert_eq!(Finished::of(taken).code(), 75);
    first.signal(rustix::process::Signal::TERM);
    assert_eq!(first.finish().code(), 128 + 15);
    let waited = waiting.finish();
    assert_eq!(waited.code(), 0);
    let status = Finished::of(scene.ringfence(&["status", "--json", "x"]));
    let status: Value = serde_json::from_str(status.stdout()).unwrap();
    let status = &status["semaphore"];
    assert_eq!(status["taken"], 1, "{status}");
    assert_eq!(status["waiting"], 0, "{status}");
    let slots = status["slots"].as_array().unwrap();
    let held = slots.iter().find(|slot| slot["state"] == "held").unwrap();
    assert_eq!(held["slot"].to_string(), scene.line("b"));
    assert!(held["fence"].as_u64().is_some(), "{status}");
    assert!(
        waited
            .stderr()
            .contains("waiting for `x`: all 2 permits are taken"),
        "{}",
        waited.stderr()
    );
    let words: Vec<&str> = waited.stdout().split_whitespace().collect();
    assert_eq!((words[0], words[2]), (scene.line("a").as_str(), "x"));
    assert!(words[1].parse::<u64>().is_ok_and(|fence| fence > 0));
    second.signal(rustix::process::Signal::TERM);
    assert_eq!(second.finish().code(), 128 + 15);
}

#[test]
fn a_lock_has_no_slot_and_a_semaphore_at_least_one() {
    let scene = Scene::embedded();
    let done = scene.run(&[], "echo \"<$RINGFENCE_SLOT>\"").finish();
    assert_eq!(done.stdout(), "<>\n");
    for permits in ["0", "257", "x"] {
        let args = ["run", "--permits", permits, "x", "--", "true"];
        assert_eq!(Finished::of(scene.ringfence(&args)).code(), 64);
    }
}
