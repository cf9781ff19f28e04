//! `acquire`, `extend`, `release` and `status`: locks that outlive a process.

use ringfence_testkit::wait_until;
use serde_json::Value;

use super::scene::{Finished, PATIENCE, Scene};

fn ringfence(scene: &Scene, args: &[&str]) -> Finished {
    Finished::of(scene.ringfence(args))
}

#[test]
fn a_lock_is_held_until_it_is_released_and_only_once() {
    let scene = Scene::embedded();
    let taken = ringfence(&scene, &["acquire", "x"]);
    assert_eq!(taken.code(), 0, "{}", taken.stderr());
    let token = taken.stdout().trim().to_owned();
    assert!(!scene.is_free());
    let extended = ringfence(&scene, &["extend", "x", "--token", &token]);
    assert_eq!(extended.code(), 0, "{}", extended.stderr());
    assert_eq!(
        ringfence(&scene, &["release", "x", "--token", &token]).code(),
        0
    );
    assert!(scene.is_free());
    assert_eq!(
        ringfence(&scene, &["release", "x", "--token", &token]).code(),
        79
    );
    assert_eq!(
        ringfence(&scene, &["extend", "x", "--token", &token]).code(),
        79
    );
}

#[test]
fn an_unreleased_lock_shows_its_holder_and_ends_with_its_ttl() {
    let scene = Scene::embedded();
    let args = ["acquire", "x", "--ttl", "1s", "--label", "alice"];
    assert_eq!(ringfence(&scene, &args).code(), 0);
    let refused = ringfence(&scene, &["acquire", "x", "-n"]);
    assert_eq!(refused.code(), 75);
    assert!(refused.stderr().contains("alice"), "{}", refused.stderr());
    wait_until("the lock to end", PATIENCE, || {
        ringfence(&scene, &["acquire", "x", "-n"]).code() == 0
    });
}

#[test]
fn json_has_the_fields_that_a_program_needs() {
    let scene = Scene::embedded();
    let taken = ringfence(&scene, &["--json", "acquire", "x"]);
    let value: Value = serde_json::from_str(taken.stdout()).expect("JSON");
    assert_eq!(value["name"], "x");
    assert_eq!(value["token"].as_str().unwrap().split('.').count(), 4);
    assert!(value["fence"].as_u64().is_some_and(|fence| fence > 0));
    assert!(
        value["valid_for_ms"]
            .as_u64()
            .is_some_and(|ms| ms <= 10_000)
    );

    let refused = ringfence(&scene, &["--json", "acquire", "x", "-n"]);
    assert_eq!(refused.code(), 75);
    let value: Value = serde_json::from_str(refused.stderr()).expect("JSON");
    assert!(
        value["error"]
            .as_str()
            .is_some_and(|text| text.contains("held"))
    );
    assert_eq!(value["nodes"].as_array().map(Vec::len), Some(1));
    assert!(!refused.stderr().contains(taken.stdout().trim()));
}

#[test]
fn status_shows_who_holds_a_lock_and_changes_nothing() {
    let scene = Scene::embedded();
    let free = ringfence(&scene, &["status", "x"]);
    assert_eq!(free.code(), 0, "{}", free.stderr());
    assert!(free.stdout().starts_with("free"), "{}", free.stdout());
    ringfence(&scene, &["acquire", "x", "--label", "al\u{1b}ice"]);
    let held = ringfence(&scene, &["status", "x"]);
    assert!(
        held.stdout().starts_with("held by al\\u{1b}ice"),
        "{}",
        held.stdout()
    );
    let held = ringfence(&scene, &["--json", "status", "x"]);
    let value: Value = serde_json::from_str(held.stdout()).expect("JSON");
    assert_eq!(value["held"], true);
    assert_eq!(value["label"], "al\u{1b}ice");
    assert!(value["fence"].as_u64().is_some());
    assert!(
        value["remaining_ms"]
            .as_u64()
            .is_some_and(|ms| ms <= 10_000)
    );
    assert_eq!(value["nodes"].as_array().map(Vec::len), Some(1));
}

#[test]
fn status_without_a_name_shows_the_nodes() {
    let scene = Scene::embedded();
    let nodes = ringfence(&scene, &["status"]);
    assert_eq!(nodes.code(), 0, "{}", nodes.stderr());
    assert!(nodes.stdout().contains("locks.db"), "{}", nodes.stdout());
    assert!(
        nodes.stdout().trim_end().ends_with("votes"),
        "{}",
        nodes.stdout()
    );
    let nodes = ringfence(&scene, &["--json", "status"]);
    let value: Value = serde_json::from_str(nodes.stdout()).expect("JSON");
    assert_eq!(value["quorum"], true);
    assert_eq!(value["nodes"][0]["votes"], true);
}

#[test]
fn init_is_for_new_nodes_only() {
    let scene = Scene::embedded();
    let new = ringfence(&scene, &["init"]);
    assert_eq!(new.code(), 0, "{}", new.stderr());
    let again = ringfence(&scene, &["init"]);
    assert_eq!(again.code(), 64, "{}", again.stderr());
    assert!(again.stderr().contains("--force"), "{}", again.stderr());
    assert_eq!(ringfence(&scene, &["init", "--force"]).code(), 0);
}
