//! Exit codes and output of ordinary commands.

use super::scene::{Finished, Scene};

#[test]
fn the_exit_code_is_that_of_the_command() {
    let scene = Scene::embedded();
    assert_eq!(scene.run(&[], "exit 0").finish().code(), 0);
    assert_eq!(scene.run(&[], "exit 3").finish().code(), 3);
    assert_eq!(scene.run(&[], "kill -KILL $$").finish().code(), 128 + 9);
    assert_eq!(scene.run(&[], "kill -TERM $$").finish().code(), 128 + 15);
}

#[test]
fn an_error_names_a_command_that_cannot_be_executed() {
    let scene = Scene::embedded();
    scene.write("plain-file", "");
    let plain_file = scene.path("plain-file");
    let missing = Finished::of(scene.ringfence(&["run", "x", "--", "no-such-command"]));
    assert_eq!(missing.code(), 127);
    assert!(missing.stderr().contains("`no-such-command`"));
    let plain = plain_file.to_str().unwrap();
    let refused = Finished::of(scene.ringfence(&["run", "x", "--", plain]));
    assert_eq!(refused.code(), 126);
    assert!(refused.stderr().contains("plain-file"));
    assert!(scene.is_free());
}

#[test]
fn run_adds_nothing_to_the_commands_output() {
    let scene = Scene::embedded();
    let done = scene.run(&[], "echo out; echo err >&2").finish();
    assert_eq!(done.stdout(), "out\n");
    assert_eq!(done.stderr(), "err\n");
}

#[test]
fn the_command_sees_its_lock_in_the_environment() {
    let scene = Scene::embedded();
    let script =
        "echo $RINGFENCE_NAME; echo $RINGFENCE_NODES; echo $RINGFENCE_FENCE; echo $RINGFENCE_TOKEN";
    let done = scene.run(&[], script).finish();
    let lines: Vec<_> = done.stdout().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "x");
    assert_eq!(lines[1], scene.nodes());
    assert!(lines[2].parse::<u64>().is_ok_and(|fence| fence > 0));
    assert_eq!(lines[3].split('.').count(), 3, "id.secret.ballot");
}

#[test]
fn the_arguments_of_the_command_are_not_changed() {
    let scene = Scene::embedded();
    let args = ["run", "-n", "x", "echo", "-n", "--json", "-h", "*"];
    assert_eq!(Finished::of(scene.ringfence(&args)).stdout(), "--json -h *");
}

#[test]
fn a_held_lock_exits_75_without_waiting() {
    let scene = Scene::embedded();
    let holder = scene.run(&[], "echo $$ > $DIR/pid; exec sleep 1000");
    scene.line("pid");
    let refused = scene.run(&["-n"], "true").finish();
    assert_eq!(refused.code(), 75);
    assert!(
        refused.stderr().contains("`x` is held"),
        "{}",
        refused.stderr()
    );
    assert_eq!(scene.run(&["-n", "-E", "0"], "true").finish().code(), 0);
    let waited = scene.run(&["-w", "1s"], "true").finish();
    assert_eq!(waited.code(), 75);
    holder.signal(rustix::process::Signal::TERM);
    assert_eq!(holder.finish().code(), 128 + 15);
}

#[test]
fn a_long_wait_reports_the_lock_and_its_holder() {
    let scene = Scene::embedded();
    let holder = scene.run(&[], "echo $$ > $DIR/pid; exec sleep 1000");
    scene.line("pid");
    let waited = scene.run(&["-w", "1500ms"], "true").finish();
    assert_eq!(waited.code(), 75);
    assert!(
        waited.stderr().contains("waiting for `x`, held by"),
        "{}",
        waited.stderr()
    );
    let quiet = scene.run(&["-q", "-w", "1500ms"], "true").finish();
    assert!(!quiet.stderr().contains("waiting"), "{}", quiet.stderr());
    drop(holder);
}

#[test]
fn a_run_inside_a_run_of_the_same_lock_causes_a_warning() {
    let scene = Scene::embedded();
    let script = format!("{} run -n x -- true", super::scene::program());
    let done = scene.run(&[], &script).finish();
    assert_eq!(done.code(), 75);
    assert!(
        done.stderr().contains("already running under the lock `x`"),
        "{}",
        done.stderr()
    );
}

#[test]
fn twenty_commands_never_overlap_and_their_fences_rise() {
    let scene = Scene::embedded();
    let script =
        "mkdir $DIR/inside || exit 1; echo $RINGFENCE_FENCE >> $DIR/fences; rmdir $DIR/inside";
    let runs: Vec<_> = (0..20).map(|_| scene.run(&["-q"], script)).collect();
    for run in runs {
        let done = run.finish();
        assert_eq!(done.code(), 0, "{}", done.stderr());
    }
    let fences = scene.line("fences");
    let fences: Vec<u64> = fences.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(fences.len(), 20);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}
