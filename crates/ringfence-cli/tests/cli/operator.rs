//! What an operator tries: mistakes, scripts, pipes and cron, beside what `flock` does.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::Value;

use super::person::Person;
use super::scene::{Finished, Scene, in_own_mounts, program};

fn done(scene: &Scene, args: &[&str]) -> Finished {
    Finished::of(scene.ringfence(args))
}

#[test]
fn a_relative_file_is_the_same_file_for_a_ringfence_in_another_folder() {
    let scene = Scene::embedded();
    fs::create_dir(scene.path("below")).unwrap();
    let inner = format!("cd below && {} run -n x -- true", program());
    let mut command = scene.ringfence(&["run", "x", "--", "sh", "-c", &inner]);
    command
        .env("RINGFENCE_NODES", "sqlite:own.db")
        .current_dir(scene.path(""));
    let nested = Finished::of(command);
    assert_eq!(nested.code(), 75, "{}", nested.stderr());
    assert!(!scene.has("below/own.db"), "a lock of its own");
}

#[test]
fn mistakes_in_the_list_of_nodes_are_explained() {
    let scene = Scene::embedded();
    for (nodes, word) in [
        ("sqlite:/tmp/x.db?mode=ro", "unknown parameter `mode`"),
        (
            "redis://127.0.0.1:1,127.0.0.1:2",
            "write `redis://127.0.0.1:2`",
        ),
    ] {
        let refused = done(&scene, &["--nodes", nodes, "status"]);
        assert_eq!(refused.code(), 64, "{}", refused.stderr());
        assert!(refused.stderr().contains(word), "{}", refused.stderr());
    }
}

#[test]
fn a_quiet_skip_is_silent() {
    let scene = Scene::embedded();
    let held = scene.run(&[], "echo $$ > $DIR/pid; exec sleep 1000");
    scene.line("pid");
    let skipped = done(&scene, &["-q", "run", "-n", "x", "--", "true"]);
    assert_eq!(skipped.code(), 75);
    assert_eq!((skipped.stdout(), skipped.stderr()), ("", ""));
    let told = done(&scene, &["run", "-n", "x", "--", "true"]);
    assert!(
        told.stderr().contains("unless renewed"),
        "{}",
        told.stderr()
    );
    drop(held);
}

#[test]
fn the_log_of_v_has_no_colours_in_a_file_and_is_json_with_json() {
    let scene = Scene::embedded();
    let text = done(&scene, &["-v", "run", "x", "--", "true"]);
    assert!(text.stderr().contains("released `x`"), "{}", text.stderr());
    assert!(
        text.stderr().contains("acquired `x` after"),
        "{}",
        text.stderr()
    );
    assert!(!text.stderr().contains('\x1b'), "{}", text.stderr());
    let json = done(&scene, &["-v", "--json", "run", "x", "--", "true"]);
    assert!(json.stderr().lines().count() > 2, "{}", json.stderr());
    for line in json.stderr().lines() {
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert!(
            value["log"].is_object() || value["info"].is_string(),
            "{line}"
        );
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let scene = Scene::embedded();
    for args in [
        &["status", "x"][..],
        &["completions", "bash"],
        &["man"],
        &["-h"],
    ] {
        let mut command = scene.ringfence(args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ringfence starts");
        // The reader goes away before anything is written, as `head` does sooner or later.
        drop(child.stdout.take());
        let mut stderr = String::new();
        let mut errors = child.stderr.take().expect("a pipe");
        errors.read_to_string(&mut stderr).expect("text");
        let status = child.wait().expect("our own child");
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_max_hold_that_leaves_the_command_no_time_is_refused() {
    let scene = Scene::embedded();
    for args in [
        &["run", "--max-hold", "3s", "x", "--", "true"][..],
        &[
            "elect",
            "--max-hold",
            "1s",
            "--kill-grace",
            "1s",
            "x",
            "--",
            "true",
        ],
    ] {
        let refused = done(&scene, args);
        assert_eq!(refused.code(), 64, "{}", refused.stderr());
        assert!(
            refused.stderr().contains("--kill-grace"),
            "{}",
            refused.stderr()
        );
    }
    let allowed = done(&scene, &["run", "--max-hold", "30s", "x", "--", "true"]);
    assert_eq!(allowed.code(), 0, "{}", allowed.stderr());
}

#[test]
fn extend_prolongs_by_the_ttl_of_acquire_and_never_shortens() {
    let scene = Scene::embedded();
    let taken = done(&scene, &["acquire", "--ttl", "100s", "x"]);
    let token = taken.stdout().trim().to_owned();
    let valid_for = |args: &[&str]| {
        let args = [&["--json", "extend", "x", "--token", &token], args].concat();
        let extended = done(&scene, &args);
        assert_eq!(extended.code(), 0, "{}", extended.stderr());
        let value: Value = serde_json::from_str(extended.stdout()).expect("JSON");
        value["valid_for_ms"].as_u64().expect("a number")
    };
    let by_default = valid_for(&[]);
    assert!(by_default > 60_000, "{by_default}");
    assert!(valid_for(&["--ttl", "200s"]) > 110_000);
    let help = done(&scene, &["extend", "-h"]);
    assert!(help.stdout().contains("it is never"), "{}", help.stdout());
}

#[test]
fn a_token_of_the_environment_is_used_for_its_own_lock_only() {
    let scene = Scene::embedded();
    let rf = program();
    let script = format!("{rf} acquire y > $DIR/token && {rf} release y");
    let refused = scene.run(&[], &script).finish();
    assert_eq!(refused.code(), 64, "{}", refused.stderr());
    assert!(
        refused.stderr().contains("that of the lock `x`"),
        "{}",
        refused.stderr()
    );
    // The lock x was not released under its command, and y still has its token.
    let token = scene.line("token");
    let released = done(&scene, &["release", "y", "--token", &token]);
    assert_eq!(released.code(), 0, "{}", released.stderr());
    let own = scene.run(&[], &format!("{rf} extend x")).finish();
    assert_eq!(own.code(), 0, "{}", own.stderr());
}

#[test]
fn a_wait_without_a_unit_is_in_seconds_as_with_flock() {
    let scene = Scene::embedded();
    for wait in ["5", "1.5", "0"] {
        let taken = done(&scene, &["run", "-w", wait, "x", "--", "true"]);
        assert_eq!(taken.code(), 0, "{}", taken.stderr());
    }
}

#[test]
fn help_explains_a_command() {
    let scene = Scene::embedded();
    let help = done(&scene, &["help", "run"]);
    assert_eq!(help.code(), 0, "{}", help.stderr());
    assert!(help.stdout().contains("--kill-grace"), "{}", help.stdout());
}

#[test]
fn status_shows_all_readers_with_their_labels() {
    let scene = Scene::embedded();
    let hold = |label: &str| {
        let options = ["--shared", "--label", label];
        let run = scene.run(
            &options,
            &format!("echo $$ > $DIR/{label}; exec sleep 1000"),
        );
        scene.line(label);
        run
    };
    let _held = [hold("one"), hold("two")];
    let seen = done(&scene, &["status", "x"]);
    assert!(
        seen.stdout().starts_with("shared by 2\n"),
        "{}",
        seen.stdout()
    );
    for label in ["one", "two"] {
        let line = seen.stdout().lines().find(|line| line.contains(label));
        let line = line.unwrap_or_else(|| panic!("{}", seen.stdout()));
        for word in ["held for", "unless renewed", "fence "] {
            assert!(line.contains(word), "{line}");
        }
    }
}

#[test]
fn a_holder_has_the_name_of_its_command_as_label() {
    let scene = Scene::embedded();
    let _held = scene.run(&[], "echo $$ > $DIR/pid; exec sleep 1000");
    scene.line("pid");
    let seen = done(&scene, &["--json", "status", "x"]);
    let seen: Value = serde_json::from_str(seen.stdout()).expect("JSON");
    let label = seen["label"].as_str().expect("a label");
    let parts: Vec<&str> = label.rsplitn(3, ':').collect();
    assert_eq!(parts[0], "sh", "{label}");
    assert!(
        parts[1].parse::<u32>().is_ok() && !parts[2].is_empty(),
        "{label}"
    );
    assert_eq!(seen["kind"], "exclusive");
}

#[test]
fn a_look_creates_no_file_and_works_where_nothing_may_be_written() {
    let scene = Scene::embedded();
    let free = done(&scene, &["status", "--exit-code", "x"]);
    assert_eq!(free.code(), 0, "{}", free.stderr());
    assert!(free.stdout().starts_with("free"), "{}", free.stdout());
    assert!(!scene.has("locks.db"), "the look created the file");

    let taken = done(&scene, &["acquire", "--ttl", "60s", "--label", "me", "x"]);
    assert_eq!(taken.code(), 0, "{}", taken.stderr());
    let folder = scene.path("");
    let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    for file in fs::read_dir(&folder).unwrap() {
        let file = file.unwrap().path();
        fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
    }
    mode(0o555);
    let args = ["status", "--exit-code", "x"];
    let mut command = scene.ringfence(&args);
    if rustix::process::geteuid().is_root() {
        // Root may write everywhere.
        command = std::process::Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--clear-groups", program()])
            .args(args)
            .env("RINGFENCE_NODES", scene.nodes());
    }
    let seen = Finished::of(command);
    mode(0o755);
    assert_eq!(seen.code(), 75, "{}", seen.stderr());
    assert!(
        seen.stdout().starts_with("held by me\n"),
        "{}",
        seen.stdout()
    );
}

#[test]
fn a_wait_at_a_terminal_is_one_line_that_goes_away() {
    let scene = Scene::embedded();
    let held = scene.run(
        &["--label", "backup"],
        "echo $$ > $DIR/pid; exec sleep 1000",
    );
    scene.line("pid");
    let person = Person::at(&scene);
    person.types("$RF run x -- echo mine\n");
    person.sees("waiting for `x`, held by backup, next in the queue");
    person.sees("\r\u{1b}[K");
    drop(held);
    person.sees("mine");
    person.sees_code(0);
}

#[test]
fn a_wait_without_a_terminal_is_told_once() {
    let scene = Scene::embedded();
    let held = scene.run(
        &["--label", "backup"],
        "echo $$ > $DIR/pid; exec sleep 1000",
    );
    scene.line("pid");
    let waiting = done(&scene, &["run", "-w", "3", "x", "--", "true"]);
    assert_eq!(waiting.code(), 75);
    let told = waiting.stderr().matches("waiting for `x`").count();
    assert_eq!(told, 1, "{}", waiting.stderr());
    drop(held);
}

#[test]
fn without_a_majority_the_exit_code_of_status_says_so() {
    let scene = Scene::on("redis://127.0.0.1:1");
    let seen = done(&scene, &["status", "--exit-code", "x"]);
    assert_eq!(seen.code(), 69, "{}", seen.stderr());
}

#[test]
fn without_proc_a_command_is_not_started_and_the_reason_is_told() {
    let scene = Scene::embedded();
    let mut command = in_own_mounts();
    command
        .args(["sh", "-c"])
        .arg("mount -t tmpfs none /proc && exec $RF run x -- touch $DIR/started")
        .env("RF", program())
        .env("DIR", scene.path(""))
        .env("RINGFENCE_NODES", scene.nodes())
        .env("RINGFENCE_CONFIG", "");
    let refused = Finished::of(command);
    assert_eq!(refused.code(), 64, "{}", refused.stderr());
    let told = refused.stderr().contains("/proc is not mounted");
    assert!(told, "{}", refused.stderr());
    assert!(!scene.has("started"));
}

#[test]
fn init_of_an_embedded_file_does_not_speak_of_failovers() {
    let init = done(&Scene::embedded(), &["init"]);
    assert_eq!(
        (init.code(), init.stdout().trim()),
        (0, "1 node may vote now"),
        "{}",
        init.stderr()
    );
}
