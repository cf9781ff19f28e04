//! `run --shared`: many shared commands at the same time, and no exclusive one.

use super::scene::{Finished, PATIENCE, Scene};
use ringfence_testkit::wait_until;

#[test]
fn shared_commands_run_at_the_same_time_and_exclude_others() {
    let scene = Scene::embedded();
    let script = |name: &str| {
        format!("echo $RINGFENCE_FENCE > $DIR/{name}; while [ ! -e $DIR/go ]; do sleep 0.05; done")
    };
    let one = scene.run(&["--shared"], &script("one"));
    let other = scene.run(&["--shared", "-n"], &script("other"));
    assert!(scene.line("one").trim().parse::<u64>().is_ok());
    scene.line("other");
    let alone = Finished::of(scene.ringfence(&["run", "-n", "x", "--", "true"]));
    assert_eq!(alone.code(), 75, "{}", alone.stderr());
    scene.write("go", "");
    assert_eq!(one.finish().code(), 0);
    assert_eq!(other.finish().code(), 0);
    wait_until("the lock to be free", PATIENCE, || scene.is_free());
    let writer = scene.run(&[], "echo > $DIR/writer; exec sleep 1000");
    scene.line("writer");
    let refused = Finished::of(scene.ringfence(&["run", "--shared", "-n", "x", "--", "true"]));
    assert_eq!(refused.code(), 75, "{}", refused.stderr());
    drop(writer);
}
