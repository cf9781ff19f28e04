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
    assert_eq!(value["state"], "held");
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

/// Acquires `x` with `options`, and returns the token.
fn acquired(scene: &Scene, options: &[&str]) -> String {
    let taken = ringfence(scene, &[&["acquire", "x"], options].concat());
    assert_eq!(taken.code(), 0, "{}", taken.stderr());
    taken.stdout().trim().to_owned()
}

fn with_token(scene: &Scene, command: &str, token: &str) -> i32 {
    ringfence(scene, &[command, "x", "--token", token]).code()
}

#[test]
fn a_share_is_extended_and_released_by_its_token() {
    let (_server, scene) = Scene::served();
    let shares = [(); 2].map(|()| acquired(&scene, &["--shared"]));
    let writer = ["acquire", "-n", "x"];
    for share in &shares {
        assert_eq!(with_token(&scene, "extend", share), 0);
        assert_eq!(ringfence(&scene, &writer).code(), 75);
        assert_eq!(with_token(&scene, "release", share), 0);
    }
    assert_eq!(with_token(&scene, "release", &shares[0]), 79);
    assert_eq!(ringfence(&scene, &writer).code(), 0);
}

#[test]
fn a_permit_is_extended_and_released_by_its_token() {
    let (_server, scene) = Scene::served();
    let options = ["--permits", "2"];
    let permits = [(); 2].map(|()| acquired(&scene, &options));
    let third = ["acquire", "-n", "--permits", "2", "x"];
    assert_eq!(ringfence(&scene, &third).code(), 75);
    assert_eq!(with_token(&scene, "extend", &permits[0]), 0);
    assert_eq!(with_token(&scene, "release", &permits[0]), 0);
    assert_eq!(with_token(&scene, "extend", &permits[0]), 79);
    let taken = ringfence(&scene, &[&["--json"], &third[..]].concat());
    let taken: Value = serde_json::from_str(taken.stdout()).expect("JSON");
    assert_eq!(taken["slot"], 0, "the slot that was released");
    assert_eq!(with_token(&scene, "release", &permits[1]), 0);
}

#[test]
fn a_lock_is_kept_from_others_after_a_release_that_was_too_early() {
    let scene = Scene::embedded();
    let token = acquired(&scene, &["--hold-at-least", "1h"]);
    assert_eq!(with_token(&scene, "release", &token), 0);
    assert!(!scene.is_free());
    let seen = ringfence(&scene, &["--json", "status", "x"]);
    let seen: Value = serde_json::from_str(seen.stdout()).expect("JSON");
    assert_eq!(seen["kept"], true);
    let left = seen["remaining_ms"].as_u64().expect("a number");
    assert!((3_000_000..=3_600_000).contains(&left), "{left}");
}

#[test]
fn the_lock_delay_counts_for_the_lease_and_stays_after_an_extend() {
    let scene = Scene::embedded();
    let token = acquired(&scene, &["--ttl", "100s", "--lock-delay", "1h"]);
    let lease_ms = || {
        let seen = ringfence(&scene, &["--json", "status", "x"]);
        let seen: Value = serde_json::from_str(seen.stdout()).expect("JSON");
        seen["remaining_ms"].as_u64().expect("a number")
    };
    assert!(lease_ms() > 3_600_000);
    assert_eq!(with_token(&scene, "extend", &token), 0);
    assert!(lease_ms() > 3_600_000);
    for options in [
        &["--shared", "--lock-delay", "1s"][..],
        &["--shared", "--hold-at-least", "1s"],
        &["--permits", "2", "--hold-at-least", "1s"],
        &["--permits", "2", "--shared"],
    ] {
        let refused = ringfence(&scene, &[&["acquire", "x"], options].concat());
        assert_eq!(refused.code(), 64, "{options:?}");
    }
}

#[test]
fn a_token_whose_ttl_is_over_is_lost_and_cuts_no_lock_delay() {
    let scene = Scene::embedded();
    let token = acquired(&scene, &["--ttl", "1s", "--lock-delay", "1h"]);
    let lease_ms = || {
        let seen = ringfence(&scene, &["--json", "status", "x"]);
        let seen: Value = serde_json::from_str(seen.stdout()).expect("JSON");
        seen["remaining_ms"].as_u64().expect("a number")
    };
    wait_until("the ttl to be over", PATIENCE, || lease_ms() <= 3_600_000);
    for command in ["extend", "release"] {
        assert_eq!(with_token(&scene, command, &token), 79, "{command}");
    }
    assert!(!scene.is_free(), "the delay is kept");
}

#[test]
fn the_token_of_a_command_under_a_permit_is_of_its_permit() {
    let scene = Scene::embedded();
    let rf = super::scene::program();
    for options in [&["--permits", "2"][..], &["--shared"], &[]] {
        let run = scene.run(options, &format!("{rf} extend x")).finish();
        assert_eq!(run.code(), 0, "{options:?}: {}", run.stderr());
    }
}
