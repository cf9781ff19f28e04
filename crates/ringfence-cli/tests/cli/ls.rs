//! `ringfence ls`: the locks that are held or queued for, and those that operators broke.

use std::fs;

use ringfence_testkit::{Flavor, Fleet, Server};
use serde_json::Value;

use super::person::Person;
use super::scene::{Finished, Scene};

#[track_caller]
fn succeeds(scene: &Scene, args: &[&str]) -> String {
    let said = Finished::of(scene.ringfence(args));
    assert_eq!(said.code(), 0, "{args:?}: {}", said.stderr());
    said.stdout().to_owned()
}

fn take(scene: &Scene, name: &str) {
    succeeds(scene, &["acquire", name, "--ttl", "25s", "--label", "dead"]);
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

#[test]
fn all_kinds_on_three_servers_fit_80_columns() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor));
        let scene = Scene::on(&fleet.urls_without_quarantine());
        let long = "n".repeat(200);
        take(&scene, "orders:42");
        take(&scene, &long);
        let _readers = scene.run(&["--shared"], "echo $$ > $DIR/reader; exec sleep 1000");
        scene.line("reader");
        let _permit = scene.run(
            &["--permits", "2", "--label", "encoder"],
            "echo $$ > $DIR/permit; exec sleep 1000",
        );
        scene.line("permit");
        let list = succeeds(&scene, &["ls"]);
        for line in list.lines() {
            assert!(line.chars().count() <= 80, "{list}");
        }
        let row = |begin: &str| list.lines().find(|line| line.starts_with(begin));
        let orders = row("orders:42").expect("a row");
        for words in ["exclusive", "dead", " s ", "/3"] {
            assert!(orders.contains(words), "{list}");
        }
        assert!(row("nnnnn").expect("a row").contains('…'), "{list}");
        let x: Vec<&str> = list.lines().filter(|line| line.starts_with("x ")).collect();
        assert_eq!(x.len(), 2, "{list}");
        assert!(
            x[0].contains("shared") && x[1].contains("1/2: encoder"),
            "{list}"
        );
        let end: Vec<&str> = list.lines().rev().take(2).collect();
        assert!(end[1].starts_with("Searched all 3 nodes in "), "{list}");
        assert!(end[0].contains("not listed"), "{list}");
        let some = succeeds(&scene, &["ls", "ord*"]);
        assert!(
            some.contains("orders:42") && !some.contains("\nx "),
            "{some}"
        );
    }
}

#[test]
fn json_is_a_line_for_each_lock_and_one_at_the_end() {
    let scene = Scene::embedded();
    take(&scene, "a");
    take(&scene, "b");
    let lines = lines(&succeeds(&scene, &["ls", "--json"]));
    let names: Vec<&Value> = lines.iter().map(|line| &line["name"]).collect();
    assert_eq!(names, [&Value::from("a"), &"b".into(), &Value::Null]);
    assert_eq!(
        (&lines[0]["label"], &lines[0]["votes"]),
        (&"dead".into(), &1.into())
    );
    assert_eq!(
        (&lines[2]["complete"], &lines[2]["locks"]),
        (&true.into(), &2.into())
    );
}

#[test]
fn a_look_creates_no_file() {
    let scene = Scene::embedded();
    let list = succeeds(&scene, &["ls"]);
    assert!(list.starts_with("nothing is held"), "{list}");
    assert!(!scene.has("locks.db"));
    take(&scene, "x");
    let before = fs::read(scene.path("locks.db")).expect("a file");
    assert!(succeeds(&scene, &["ls"]).contains("exclusive"));
    assert_eq!(fs::read(scene.path("locks.db")).expect("a file"), before);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let scene = Scene::embedded();
    take(&scene, "x");
    scene.write("job", "($RF ls --watch; echo code=$? >&2) | head -1");
    let person = Person::at(&scene);
    person.types("sh $DIR/job\n");
    person.sees("NAME");
    person.sees("code=0");
}

#[test]
fn watch_draws_the_list_again_on_a_terminal_until_ctrl_c() {
    let scene = Scene::embedded();
    let person = Person::at(&scene);
    person.types("$RF ls --watch\n");
    person.sees("nothing is held");
    take(&scene, "x");
    person.sees("\x1b[2J");
    person.sees("exclusive");
    person.types("\x03");
    person.sees("prompt> ");
    person.sees_code(130);
}

#[test]
fn without_a_majority_it_exits_with_69() {
    let scene = Scene::on("redis://127.0.0.1:1");
    for args in [
        &["ls"][..],
        &["ls", "--json"],
        &["ls", "--broken"],
        &["watch", "x"],
    ] {
        let failed = Finished::of(scene.ringfence(args));
        assert_eq!(failed.code(), 69, "{args:?}: {}", failed.stderr());
    }
}

#[test]
fn broken_shows_who_broke_what_and_why() {
    let (_server, served) = Scene::served();
    for scene in [served, Scene::embedded()] {
        let none = succeeds(&scene, &["ls", "--broken"]);
        assert_eq!(none, "no operator broke a lock lately\n");
        take(&scene, "x");
        succeeds(
            &scene,
            &["break", "x", "--yes", "--reason", "host-7 burnt down"],
        );
        let list = succeeds(&scene, &["ls", "--broken"]);
        for words in [
            "x: broken ",
            " ago by ",
            "host-7 burnt down",
            "held by dead, fence ",
        ] {
            assert!(list.contains(words), "{list}");
        }
        let line = lines(&succeeds(&scene, &["ls", "--broken", "--json"]));
        assert_eq!(line[0]["reason"], "host-7 burnt down");
        assert!(line[0]["new_fence"].as_u64() > line[0]["fence"].as_u64());
        assert_eq!(succeeds(&scene, &["ls", "--broken", "y*"]), none);
    }
}

/// Names and labels come from other programs.
#[test]
fn a_name_cannot_write_to_the_terminal() {
    let scene = Scene::embedded();
    take(&scene, "\u{1b}[2Jx\ny");
    let list = succeeds(&scene, &["ls"]);
    assert!(
        !list.contains('\u{1b}') && list.contains("[2Jx\\ny"),
        "{list}"
    );
}
