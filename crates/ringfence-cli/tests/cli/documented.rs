//! The fields that `docs/cli.md` names are those that the program prints.

use std::collections::BTreeSet;

use serde_json::Value;

use super::scene::{Finished, Scene};

const PAGE: &str = include_str!("../../../../docs/cli.md");

/// The paths of all fields in `value`: `queue[].id`.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                paths(field, &path, found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                paths(item, &format!("{path}[]"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// The fields that the table of `command` names in its first column.
fn documented(command: &str) -> BTreeSet<String> {
    let (_, table) = PAGE
        .split_once(&format!("| field of `{command}` | what |"))
        .expect("the table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let fields = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    fields.map(str::to_owned).collect()
}

#[test]
fn the_documented_fields_of_status_are_the_printed_ones() {
    let scene = Scene::embedded();
    let _held = scene.run(&["--shared"], "echo $$ > $DIR/held; exec sleep 1000");
    scene.line("held");
    let _permit = scene.run(
        &["--permits", "1"],
        "echo $$ > $DIR/permit; exec sleep 1000",
    );
    scene.line("permit");
    let waiting = scene.run(&[], "true");
    waiting.wait_for("waiting for");
    let seen = Finished::of(scene.ringfence(&["--json", "status", "x"]));
    let seen: Value = serde_json::from_str(seen.stdout()).expect("JSON");
    let mut printed = BTreeSet::new();
    paths(&seen, "", &mut printed);
    let mut documented = documented("status NAME --json");
    // Null here, or a list with what is documented elsewhere.
    assert!(documented.remove("semaphore"));
    assert_eq!(printed, documented);
}

/// The fields of all lines.
fn printed(scene: &Scene, args: &[&str]) -> BTreeSet<String> {
    let seen = Finished::of(scene.ringfence(args));
    let mut printed = BTreeSet::new();
    for line in seen.stdout().lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        paths(&line, "", &mut printed);
    }
    printed
}

#[test]
fn the_documented_fields_of_ls_are_the_printed_ones() {
    let scene = Scene::embedded();
    let _held = scene.run(&[], "echo $$ > $DIR/held; exec sleep 1000");
    scene.line("held");
    assert_eq!(printed(&scene, &["ls", "--json"]), documented("ls --json"));
    let broken = Finished::of(scene.ringfence(&["break", "x", "--yes"]));
    assert_eq!(broken.code(), 0, "{}", broken.stderr());
    let breaks = printed(&scene, &["ls", "--broken", "--json"]);
    assert_eq!(breaks, documented("ls --broken --json"));
}

#[test]
fn the_documented_kinds_of_errors_are_the_printed_ones() {
    let scene = Scene::embedded();
    let _held = scene.run(&[], "echo $$ > $DIR/held; exec sleep 1000");
    scene.line("held");
    let unreachable = [
        "--nodes",
        "redis://127.0.0.1:1",
        "--json",
        "acquire",
        "-n",
        "x",
    ];
    for (args, kind, exit) in [
        (&["--json", "acquire", "-n", "x"][..], "held", 75),
        (&["--json", "release", "x"], "usage", 64),
        (&unreachable, "no_quorum", 69),
    ] {
        let failed = Finished::of(scene.ringfence(args));
        let line = failed.stderr().lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            (&error["kind"], &error["exit"]),
            (&kind.into(), &exit.into()),
            "{line}"
        );
        assert_eq!(failed.code(), exit);
        let row = format!("| {exit} | `{kind}` |");
        assert!(PAGE.contains(&row), "{row}");
    }
}
