//! Bad input: exit code 64 and a line with what to do, before any node is contacted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::scene::{Finished, Scene};

#[track_caller]
fn refuses(args: &[&str], word: &str) {
    let scene = Scene::embedded();
    let refused = Finished::of(scene.ringfence(args));
    assert_eq!(refused.code(), 64, "{}", refused.stderr());
    assert!(refused.stderr().contains(word), "{}", refused.stderr());
    assert_eq!(refused.stdout(), "");
    assert!(!scene.has("locks.db"), "a node was contacted");
}

#[test]
fn invalid_values_are_refused() {
    refuses(&[], "Usage");
    refuses(&["frobnicate"], "frobnicate");
    refuses(&["run", "x"], "COMMAND");
    refuses(&["run", "", "--", "true"], "must not be empty");
    refuses(
        &["run", "ringfence:x", "--", "true"],
        "begin with `ringfence:`",
    );
    refuses(&["run", &"x".repeat(1025), "--", "true"], "1024 bytes");
    refuses(&["run", "--ttl", "10", "x", "--", "true"], "10s");
    refuses(&["run", "--ttl", "soon", "x", "--", "true"], "500ms");
    refuses(&["run", "-n", "-w", "1s", "x", "--", "true"], "--wait");
    refuses(&["run", "--attempts", "0", "x", "--", "true"], "attempts");
    refuses(&["run", "--on-lost", "cry", "x", "--", "true"], "ignore");
    refuses(
        &["run", "--kill-grace", "6s", "x", "--", "true"],
        "--ttl to 12s",
    );
    refuses(&["break", "x", "--slot", "256"], "255");
    let one = "redis://127.0.0.1:1";
    refuses(
        &["--nodes", one, "init", "--quarantine", "400d"],
        "365 days",
    );
    refuses(&["release", "x"], "--token");
    refuses(&["release", "x", "--token", "guess"], "token");
    refuses(
        &["--nodes", "memory:", "run", "x", "--", "true"],
        "exclude no other process",
    );
    refuses(
        &["--nodes", " MEMORY:x", "run", "x", "--", "true"],
        "exclude no other process",
    );
    refuses(&["--nodes", "foo://x", "run", "x", "--", "true"], "foo://x");
    refuses(&["--nodes", "", "run", "x", "--", "true"], "--nodes");
}

#[test]
fn an_error_for_a_ttl_out_of_range_names_the_limit() {
    let scene = Scene::embedded();
    for (ttl, bound) in [
        ("0s", "at least 50ms"),
        ("1ms", "at least 50ms"),
        ("1000d", "longest"),
    ] {
        let refused = Finished::of(scene.ringfence(&["run", "--ttl", ttl, "x", "--", "true"]));
        assert_eq!(refused.code(), 64, "{}", refused.stderr());
        assert!(refused.stderr().contains(bound), "{}", refused.stderr());
    }
}

#[test]
fn a_name_that_is_not_utf_8_is_refused() {
    let scene = Scene::embedded();
    let mut command = scene.ringfence(&["run"]);
    command.arg(OsStr::from_bytes(b"\xff")).args(["--", "true"]);
    let refused = Finished::of(command);
    assert_eq!(refused.code(), 64);
    assert!(refused.stderr().contains("UTF-8"), "{}", refused.stderr());
}

#[test]
fn arguments_of_the_command_may_be_any_bytes() {
    let scene = Scene::embedded();
    let mut command = scene.ringfence(&["run", "x", "--", "printf", "%s"]);
    command.arg(OsStr::from_bytes(b"\xff"));
    assert_eq!(Finished::of(command).code(), 0);
}

#[test]
fn a_malformed_token_is_not_shown() {
    const SECRET: &str = "00112233445566778899aabbccddeeff";
    let token = format!("0123456789.{SECRET}.12x");
    let scene = Scene::embedded();
    for args in [
        &["release", "x", "--token", &token][..],
        &["--json", "release", "x", "--token", &token],
        &["extend", "x", "--token", &token],
        &["release", "x"],
    ] {
        let mut command = scene.ringfence(args);
        command.env("RINGFENCE_TOKEN", &token);
        let refused = Finished::of(command);
        assert_eq!(refused.code(), 64, "{}", refused.stderr());
        assert!(!refused.stderr().contains(SECRET), "{}", refused.stderr());
        assert!(refused.stderr().contains("--token"), "{}", refused.stderr());
        assert!(!scene.has("locks.db"), "a node was contacted");
    }
}

#[test]
fn control_characters_of_a_name_do_not_reach_the_terminal() {
    let scene = Scene::embedded();
    let name = "a\u{1b}[2J\u{9b}2J\u{85}b\n";
    let is_harmless = |done: &Finished| {
        let output = format!("{}{}", done.stdout(), done.stderr());
        let bad = |c: char| c.is_control() && c != '\n';
        assert!(!output.contains(bad), "{output:?}");
    };
    let taken = Finished::of(scene.ringfence(&["acquire", name]));
    let held = [
        &["run", "-n", name, "--", "true"][..],
        &["run", "-w", "1500ms", name, "--", "true"],
        &["status", name],
        &["--json", "status", name],
        &["--json", "run", "-n", name, "--", "true"],
        &["release", name, "--token", "x"],
        &["frobnicate", name],
        &["run", "--ttl", name, "x", "--", "true"],
        &["release", name, "--token", taken.stdout().trim()],
    ];
    let results: Vec<Finished> = held
        .into_iter()
        .map(|args| Finished::of(scene.ringfence(args)))
        .collect();
    results.iter().for_each(is_harmless);
    assert_eq!(results[0].code(), 75, "{}", results[0].stderr());
    assert!(
        results[1].stderr().contains("waiting for"),
        "{}",
        results[1].stderr()
    );
    let released = results.last().expect("the last");
    assert_eq!(released.code(), 0, "{}", released.stderr());
    assert_eq!(
        released.stdout().lines().count(),
        1,
        "{}",
        released.stdout()
    );
}

#[test]
fn usage_errors_are_json_too() {
    let scene = Scene::embedded();
    let refused =
        Finished::of(scene.ringfence(&["--json", "run", "x", "--ttl", "10", "--", "true"]));
    assert_eq!(refused.code(), 64);
    let value: serde_json::Value = serde_json::from_str(refused.stderr()).expect("JSON");
    assert!(
        value["error"]
            .as_str()
            .is_some_and(|text| text.contains("10s"))
    );
    assert_eq!(value["exit"], 64);
}

#[test]
fn without_a_home_folder_the_error_suggests_a_file() {
    let scene = Scene::embedded();
    let mut command = scene.ringfence(&["run", "x", "--", "true"]);
    for key in ["RINGFENCE_NODES", "HOME", "XDG_STATE_HOME"] {
        command.env_remove(key);
    }
    let refused = Finished::of(command);
    assert_eq!(refused.code(), 64);
    assert!(
        refused.stderr().contains("--nodes sqlite:"),
        "{}",
        refused.stderr()
    );
}

#[test]
fn the_default_is_a_file_in_the_users_state_folder() {
    let scene = Scene::embedded();
    let mut command = scene.ringfence(&["run", "x", "--", "sh", "-c", "echo $RINGFENCE_NODES"]);
    command
        .env_remove("RINGFENCE_NODES")
        .env_remove("XDG_STATE_HOME")
        .env("HOME", scene.path(""));
    let done = Finished::of(command);
    assert_eq!(done.code(), 0, "{}", done.stderr());
    let file = scene.path(".local/state/ringfence/locks.db");
    assert_eq!(done.stdout().trim(), format!("sqlite:{}", file.display()));
}

#[test]
fn help_fits_80_columns_and_names_every_exit_code() {
    let scene = Scene::embedded();
    let pages: [&[&str]; 10] = [
        &["-h"],
        &["--help"],
        &["run", "-h"],
        &["run", "--help"],
        &["elect", "-h"],
        &["elect", "--help"],
        &["acquire", "-h"],
        &["extend", "-h"],
        &["release", "-h"],
        &["status", "-h"],
    ];
    for page in pages {
        let help = Finished::of(scene.ringfence(page));
        assert_eq!(help.code(), 0);
        for line in help.stdout().lines() {
            assert!(line.chars().count() <= 80, "{page:?}: {line}");
        }
    }
    let run = Finished::of(scene.ringfence(&["run", "-h"]));
    for word in [
        "75", "79", "69", "64", "70", "126", "127", "128+n", "SIGKILL", "cannot", "25s", "HUP",
    ] {
        assert!(run.stdout().contains(word), "{word}");
    }
    let top = Finished::of(scene.ringfence(&["-h"]));
    assert!(top.stdout().contains("do not exclude each other"));
    assert!(top.stdout().contains("--nodes sqlite:/var/lib"));
}

#[test]
fn completions_and_the_manual_are_printed() {
    let scene = Scene::embedded();
    for (args, word) in [
        (&["completions", "bash"][..], "_ringfence"),
        (&["completions", "zsh"], "#compdef"),
        (&["man"], ".TH RINGFENCE"),
    ] {
        let printed = Finished::of(scene.ringfence(args));
        assert_eq!(printed.code(), 0);
        assert!(printed.stdout().contains(word), "{args:?}");
    }
}
