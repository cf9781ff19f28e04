//! Signals to ringfence: it forwards them, and no process survives the end.

use std::os::unix::process::CommandExt;
use std::process::Command;

use ringfence_testkit::wait_until;
use rustix::process::Signal;

use super::scene::{PATIENCE, Process, Running, Scene, program, with_default_signals};

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
        let run = scene.run(&["--stop-grace", "1s"], &script);
        let child = scene.process("child");
        let grandchildren = grandchildren(&scene);
        run.signal(signal);
        let ended = run.finish();
        assert_eq!(ended.code(), 128 + signal.as_raw(), "{}", ended.stderr());
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

/// Ignores TERM, but records each one.
const IGNORES_TERM: &str = "trap 'echo term >> $DIR/terms' TERM; echo $$ > $DIR/child
    while :; do sleep 0.1; done";

/// Ends when `$DIR/go` exists, and records TERM and HUP.
const GRACEFUL: &str = "go() { while [ ! -e $DIR/go ]; do sleep 0.1; done; }
    trap 'echo term > $DIR/term; go; exit 7' TERM; trap 'echo hup > $DIR/hup' HUP
    echo $$ > $DIR/child; go; exit 6";

#[test]
fn a_command_that_ignores_the_signal_is_killed_after_the_stop_grace_and_this_is_reported() {
    let scene = Scene::embedded();
    let run = scene.run(&["--stop-grace", "100ms"], IGNORES_TERM);
    let child = scene.process("child");
    run.signal(Signal::TERM);
    let killed = run.finish();
    assert_eq!(killed.code(), 128 + 9, "{}", killed.stderr());
    assert!(!child.is_alive());
    assert!(scene.is_free());
    let lines: Vec<_> = killed.stderr().lines().collect();
    let [line] = lines[..] else {
        panic!("one line: {lines:?}");
    };
    assert!(line.contains("did not end within"), "{line}");
}

#[test]
fn a_command_may_take_longer_than_the_ttl_to_stop() {
    let (_server, scene) = Scene::served();
    let run = scene.run(&["--ttl", "5s"], GRACEFUL);
    let child = scene.process("child");
    run.signal(Signal::TERM);
    scene.line("term");
    assert_eq!(scene.code_after_renewal(run, child), 7);
}

#[test]
fn a_second_signal_shortens_the_grace() {
    for second in [Signal::TERM, Signal::INT] {
        let scene = Scene::embedded();
        let run = scene.run(&["--kill-grace", "1s", "--stop-grace", "1h"], IGNORES_TERM);
        let child = scene.process("child");
        run.signal(Signal::TERM);
        scene.line("terms");
        assert!(child.is_alive());
        run.signal(second);
        let killed = run.finish();
        // INT ends it at once: it does not ignore INT.
        let signal = if second == Signal::INT { 2 } else { 9 };
        assert_eq!(killed.code(), 128 + signal, "{}", killed.stderr());
        assert!(!child.is_alive());
    }
}

#[test]
fn a_lock_lost_during_the_stop_grace_ends_the_command_before_the_deadline() {
    let scene = Scene::embedded();
    let script = format!("echo $RINGFENCE_TOKEN > $DIR/token; {IGNORES_TERM}");
    let run = scene.run(&["--ttl", "6s", "--stop-grace", "1h"], &script);
    let child = scene.process("child");
    run.signal(Signal::TERM);
    scene.line("terms");
    scene.steal();
    let lost = run.finish();
    assert_eq!(lost.code(), 79, "{}", lost.stderr());
    assert!(!child.is_alive());
}

#[test]
fn hup_is_forwarded_and_kills_nothing() {
    let (_server, scene) = Scene::served();
    let options = ["--ttl", "5s", "--stop-grace", "100ms"];
    let run = scene.run(&options, GRACEFUL);
    let child = scene.process("child");
    run.signal(Signal::HUP);
    assert_eq!(scene.line("hup"), "hup");
    // Longer than both graces.
    assert_eq!(scene.code_after_renewal(run, child), 6);
}

#[test]
fn term_goes_to_the_command_and_not_to_its_descendants() {
    let scene = Scene::embedded();
    // In the command's group, where a signal to the group would reach it.
    scene.write(
        "beside",
        "trap 'echo term > $DIR/wrong' TERM; trap 'n=$((n+1)); echo $n >> $DIR/received' USR1
         echo $$ > $DIR/pid; while [ ! -e $DIR/go ]; do sleep 0.1; done",
    );
    let script = format!("sh $DIR/beside & {GRACEFUL}");
    let run = scene.run(&[], &script);
    let (beside, _) = (scene.process("pid"), scene.line("child"));
    run.signal(Signal::TERM);
    scene.line("term");
    // A shell handles all pending signals together: after two USR1 it has handled TERM.
    beside.signal(Signal::USR1);
    scene.line("received");
    beside.signal(Signal::USR1);
    wait_until("the second USR1", PATIENCE, || {
        scene.line("received").ends_with('2')
    });
    assert!(!scene.has("wrong"));
    scene.write("go", "");
    assert_eq!(run.finish().code(), 7);
}

#[test]
fn int_goes_to_the_whole_group_like_ctrl_c() {
    let scene = Scene::embedded();
    scene.write(
        "inner",
        "trap 'echo int > $DIR/inner-int; exit 0' INT; echo $$ > $DIR/pid
         while :; do sleep 0.01; done",
    );
    let script = "trap 'echo int > $DIR/outer-int' INT; sh $DIR/inner; exit 5";
    let run = scene.run(&[], script);
    scene.line("pid");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code(), 5);
    assert!(scene.has("inner-int") && scene.has("outer-int"));
}

#[test]
fn other_signals_are_forwarded() {
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
fn the_command_dies_when_ringfence_is_killed() {
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
    // It installs its handlers before it asks the nodes, and reports the wait after a second.
    waiting.wait_for_line();
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.finish().code(), 128 + 15);
    holder.signal(Signal::TERM);
    holder.finish();
    assert!(!scene.has("entered"));
    assert!(scene.is_free());
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let scene = Scene::embedded();
    let mut command = Command::new("sh");
    let script = format!(
        "trap '' HUP; exec {} run x -- sh -c 'echo $$ > $DIR/child
         while [ ! -e $DIR/go ]; do sleep 0.01; done'",
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
fn children_from_before_the_command_are_not_killed() {
    let scene = Scene::embedded();
    let mut command = with_default_signals("sh");
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
