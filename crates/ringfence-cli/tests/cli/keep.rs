//! `run --hold-at-least` and `--lock-delay`, and what `status` shows about them.

use rustix::process::Signal;

use super::scene::{Finished, Scene};

#[test]
fn after_a_short_command_hold_at_least_blocks_other_clients() {
    let scene = Scene::embedded();
    let run = scene.run(&["--hold-at-least", "1h"], "exit 3");
    assert_eq!(run.finish().code(), 3, "the command itself is not delayed");
    assert!(!scene.is_free());
    let status = Finished::of(scene.ringfence(&["status", "x"]));
    let kept = status.stdout().starts_with("kept from others; ");
    assert!(
        kept && status.stdout().contains("released it\n  free in 59 min 5"),
        "{}",
        status.stdout()
    );
    let refused = Finished::of(scene.ringfence(&["run", "-n", "x", "--", "true"]));
    assert_eq!(refused.code(), 75);
    assert!(
        refused.stderr().contains("`x` is kept for"),
        "{}",
        refused.stderr()
    );
}

#[test]
fn after_a_long_command_the_lock_is_free_at_once() {
    let scene = Scene::embedded();
    let run = scene.run(&["--hold-at-least", "50ms"], "sleep 0.1");
    assert_eq!(run.finish().code(), 0);
    assert!(scene.is_free());
}

#[test]
fn after_a_crash_the_lock_lasts_for_the_lock_delay_too() {
    let scene = Scene::embedded();
    let run = scene.run(
        &["--ttl", "1s", "--lock-delay", "1h"],
        "echo $$ > $DIR/child; exec sleep 1000",
    );
    let child = scene.process("child");
    run.signal(Signal::KILL);
    child.wait_gone();
    let status = Finished::of(scene.ringfence(&["status", "x"]));
    assert!(
        status.stdout().contains("lease ends in 1 h"),
        "{}",
        status.stdout()
    );
    let in_time = scene.ringfence(&["run", "--lock-delay", "1h", "y", "--", "true"]);
    assert_eq!(Finished::of(in_time).code(), 0);
    let free = Finished::of(scene.ringfence(&["run", "-n", "y", "--", "true"]));
    assert_eq!(free.code(), 0, "after a release in time there is no delay");
}
