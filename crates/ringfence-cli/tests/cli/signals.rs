//! Signals to ringfence itself: passed on, and in the end nothing survives.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Signal;

use super::scene::{Process, Running, Scene, program};

/// A grandchild that ignores everything but KILL, in the command's group.
const STUBBORN: &str =
    "sh -c 'trap \"\" INT TERM HUP QUIT; echo $$ > $DIR/stubborn; while :; do sleep 1; done' &";
/// A grandchild that has left the command's group and session.
const ESCAPED: &str = "setsid sh -c 'echo $$ > $DIR/escaped; exec sleep 1000' &";

fn grandchildren(scene: &Scene) -> [Process; 2] {
    [scene.process("stubborn"), scene.process("escaped")]
}

#[test]
fn nothing_survives_a_terminating_signal_and_the_lock_is_freed() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let scene = Scene::embedded();
        let script = format!("{STUBBORN} {ESCAPED} echo $$ > $DIR/child; wait");
        let run = scene.run(&["--kill-grace", "100ms"], &script);
        let child = scene.process("child");
        let grandchildren = grandchildren(&scene);
        run.signal(signal);
        assert_eq!(run.finish().code(), 128 + signal.as_raw());
        for process in grandchildren.into_iter().chain([child]) {
            assert!(!process.is_alive(), "{signal:?}");
        }
        assert!(scene.is_free());
    }
}

#[test]
fn a_command_that_handles_the_signal_keeps_its_exit_code() {
    let scene = Scene::embedded();
    let run = scene.run(
        &[],
        "trap 'exit 7' TERM; echo $$ > $DIR/child; while :; do sleep 0.01; done",
    );
    scene.line("child");
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code(), 7);
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_after_the_grace() {
    let scene = Scene::embedded();
    let run = scene.run(
        &["--kill-grace", "100ms"],
        "trap '' TERM; echo $$ > $DIR/child; while :; do sleep 0.01; done",
    );
    let child = scene.process("child");
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code(), 128 + 9);
    assert!(!child.is_alive());
    assert!(scene.is_free());
}

#[test]
fn other_signals_are_passed_on() {
    let scene = Scene::embedded();
    let script = "trap 'echo usr1 > $DIR/usr1' USR1; trap 'exit 5' USR2;
                  echo $$ > $DIR/child; while :; do sleep 0.01; done";
    let run = scene.run(&[], script);
    scene.line("child");
    run.signal(Signal::USR1);
    assert_eq!(scene.line("usr1"), "usr1");
    run.signal(Signal::USR2);
    assert_eq!(run.finish().code(), 5);
}

#[test]
fn the_command_dies_with_a_ringfence_that_is_killed() {
    let scene = Scene::embedded();
    let run = scene.run(&[], "echo $$ > $DIR/child; exec sleep 1000");
    let child = scene.process("child");
    run.signal(Signal::KILL);
    child.wait_gone();
}

#[test]
fn a_signal_ends_the_wait_for_a_lock() {
    let scene = Scene::embedded();
    let holder = scene.run(&[], "echo $$ > $DIR/child; exec sleep 1000");
    scene.line("child");
    let waiting = scene.run(&[], "touch $DIR/entered");
    // It listens before it asks, and says so after a second.
    waiting.wait_for_words();
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.finish().code(), 128 + 15);
    holder.signal(Signal::TERM);
    holder.finish();
    assert!(!scene.has("entered"));
    assert!(scene.is_free());
}

#[test]
fn what_was_ignored_from_the_start_stays_ignored() {
    let scene = Scene::embedded();
    let mut command = Command::new("sh");
    let script = format!(
        "trap '' HUP; exec {} run x -- sh -c 'echo $$ > $DIR/child; while [ ! -e $DIR/go ]; do sleep 0.01; done'",
        program()
    );
    command
        .args(["-c", &script])
        .env("RINGFENCE_NODES", scene.nodes())
        .env("DIR", scene.path(""))
        .process_group(0);
    let run = Running::start(command);
    let child = scene.process("child");
    run.signal(Signal::HUP);
    child.signal(Signal::HUP);
    scene.write("go", "");
    assert_eq!(run.finish().code(), 0);
}

#[test]
fn children_from_before_are_strangers() {
    let scene = Scene::embedded();
    let mut command = Command::new("sh");
    let script = format!(
        "sleep 1000 >/dev/null 2>&1 & echo $! > $DIR/stranger;
         exec {} run --leftovers wait x -- sh -c 'kill -TERM $$'",
        program()
    );
    command
        .args(["-c", &script])
        .env("RINGFENCE_NODES", scene.nodes())
        .env("DIR", scene.path(""));
    let run = Running::start(command);
    let stranger = scene.process("stranger");
    assert_eq!(run.finish().code(), 128 + 15);
    assert!(stranger.is_alive());
    stranger.signal(Signal::KILL);
}
