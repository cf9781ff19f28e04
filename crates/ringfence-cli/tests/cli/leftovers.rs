//! Processes that run on after the command has exited by itself.

use rustix::process::Signal;

use super::scene::Scene;

/// Starts a process that survives the command and keeps none of its pipes open.
const LEAVE: &str = "sh -c 'echo $$ > $DIR/left; exec sleep 1000' >/dev/null 2>&1 &
    while [ ! -s $DIR/left ]; do sleep 0.01; done; exit 4";

#[test]
fn by_default_leftovers_run_on() {
    let scene = Scene::embedded();
    let done = scene.run(&[], LEAVE).finish();
    assert_eq!(done.code(), 4);
    let left = scene.process("left");
    assert!(left.is_alive());
    assert!(scene.is_free());
    left.signal(Signal::KILL);
}

#[test]
fn with_wait_the_lock_is_held_until_the_leftovers_end() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "3s", "--leftovers", "wait"], LEAVE);
    let left = scene.process("left");
    // The lock is renewed and held for longer than the TTL.
    let refused = scene.run(&["-w", "3500ms"], "true").finish();
    assert_eq!(refused.code(), 75);
    left.signal(Signal::KILL);
    assert_eq!(run.finish().code(), 4);
    assert!(scene.is_free());
}

#[test]
fn with_term_the_leftovers_end_before_the_lock_is_released() {
    let scene = Scene::embedded();
    let stubborn = "setsid sh -c 'trap \"\" TERM; echo $$ > $DIR/stubborn
                    while :; do sleep 1; done' >/dev/null 2>&1 &
                    while [ ! -s $DIR/stubborn ]; do sleep 0.01; done;";
    let run = scene.run(
        &["--leftovers", "term", "--stop-grace", "100ms"],
        &format!("{stubborn} {LEAVE}"),
    );
    assert_eq!(run.finish().code(), 4);
    assert!(!scene.process("left").is_alive());
    assert!(!scene.process("stubborn").is_alive());
    assert!(scene.is_free());
}

#[test]
fn a_signal_ends_the_wait_and_the_leftovers() {
    let scene = Scene::embedded();
    let run = scene.run(&["--leftovers", "wait"], LEAVE);
    let left = scene.process("left");
    run.signal(Signal::TERM);
    run.finish();
    assert!(!left.is_alive());
    assert!(scene.is_free());
}
