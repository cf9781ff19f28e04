//! What the command leaves running when it exits of its own accord.

use rustix::process::Signal;

use super::scene::Scene;

/// Starts a process that outlives the command and holds none of its pipes.
const LEAVE: &str = "sh -c 'echo $$ > $DIR/left; exec sleep 1000' >/dev/null 2>&1 & while [ ! -s $DIR/left ]; do sleep 0.01; done; exit 4";

#[test]
fn it_lives_on_by_default() {
    let scene = Scene::embedded();
    let done = scene.run(&[], LEAVE).finish();
    assert_eq!(done.code(), 4);
    let left = scene.process("left");
    assert!(left.is_alive());
    assert!(scene.is_free());
    left.signal(Signal::KILL);
}

#[test]
fn the_lock_is_held_until_it_is_gone_if_asked() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "3s", "--leftovers", "wait"], LEAVE);
    let left = scene.process("left");
    // Held, and renewed, beyond the TTL.
    let refused = scene.run(&["-w", "3500ms"], "true").finish();
    assert_eq!(refused.code(), 75);
    left.signal(Signal::KILL);
    assert_eq!(run.finish().code(), 4);
    assert!(scene.is_free());
}

#[test]
fn it_is_ended_before_the_lock_is_freed_if_asked() {
    let scene = Scene::embedded();
    let stubborn = "setsid sh -c 'trap \"\" TERM; echo $$ > $DIR/stubborn; while :; do sleep 1; done' >/dev/null 2>&1 &
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
