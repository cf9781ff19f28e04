//! A lost lock: the command ends before another client can hold the lock.

use rustix::process::Signal;

use super::scene::Scene;

/// A child that ignores TERM but records it, a grandchild in its process group, and one that left
/// the group.
pub(crate) const TREE: &str = "
    echo $RINGFENCE_TOKEN > $DIR/token
    trap 'echo term > $DIR/term' TERM
    sh -c 'trap \"\" TERM; echo $$ > $DIR/beside; while :; do sleep 1; done' &
    setsid sh -c 'trap \"\" TERM; echo $$ > $DIR/escaped; while :; do sleep 1; done' &
    while [ ! -s $DIR/beside ] || [ ! -s $DIR/escaped ]; do sleep 0.01; done
    echo $$ > $DIR/child
    while :; do sleep 0.01; done";

/// A command that runs until it is ended.
const SLEEPER: &str = "echo $RINGFENCE_TOKEN > $DIR/token; echo $$ > $DIR/child; exec sleep 1000";

#[track_caller]
pub(crate) fn assert_tree_gone(scene: &Scene) {
    for name in ["child", "beside", "escaped"] {
        assert!(!scene.process(name).is_alive(), "{name}");
    }
}

#[test]
fn after_a_loss_come_term_and_kill_and_no_process_survives() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "2s", "--kill-grace", "300ms"], TREE);
    scene.line("child");
    scene.steal();
    let lost = run.finish();
    assert_eq!(lost.code(), 79);
    assert_tree_gone(&scene);
    assert!(scene.has("term"), "TERM came first");
    let stderr = lost.stderr();
    assert!(stderr.contains("lost the lock `x`"), "{stderr}");
    let ours = stderr.lines().filter(|line| line.starts_with("ringfence:"));
    assert_eq!(ours.count(), 1, "{stderr}");
}

#[test]
fn the_exit_code_for_a_lost_lock_can_be_chosen() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "1s", "--lost-exit-code", "42"], SLEEPER);
    scene.line("child");
    scene.steal();
    assert_eq!(run.finish().code(), 42);
}

#[test]
fn with_on_lost_kill_there_is_no_term() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "1s", "--on-lost", "kill"], TREE);
    scene.line("child");
    scene.steal();
    assert_eq!(run.finish().code(), 79);
    assert_tree_gone(&scene);
    assert!(!scene.has("term"));
}

#[test]
fn with_on_lost_ignore_the_command_runs_on_and_keeps_its_exit_code() {
    let scene = Scene::embedded();
    let run = scene.run(
        &["--ttl", "1s", "--on-lost", "ignore"],
        "echo $RINGFENCE_TOKEN > $DIR/token; echo $$ > $DIR/child
         while [ ! -e $DIR/go ]; do sleep 0.01; done; exit 6",
    );
    let child = scene.process("child");
    scene.steal();
    run.wait_for_line();
    assert!(child.is_alive());
    scene.write("go", "");
    let done = run.finish();
    assert_eq!(done.code(), 6);
}

#[test]
fn max_hold_ends_the_command() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "1s", "--max-hold", "1s"], SLEEPER);
    let child = scene.process("child");
    assert_eq!(run.finish().code(), 79);
    assert!(!child.is_alive());
}

#[test]
fn a_stopped_command_is_killed_when_its_lock_is_lost() {
    let scene = Scene::embedded();
    let run = scene.run(&["--ttl", "1s"], SLEEPER);
    let child = scene.process("child");
    child.signal(Signal::STOP);
    scene.steal();
    assert_eq!(run.finish().code(), 79);
    assert!(!child.is_alive());
}
