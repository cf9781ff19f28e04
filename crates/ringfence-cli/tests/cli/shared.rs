//! `run --shared`: many commands beside each other, and none that runs alone.

use super::scene::{Finished, PATIENCE, Scene};
use ringfence_testkit::wait_until;

#[test]
fn shared_runs_are_beside_each_other_and_keep_others_out() {
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
