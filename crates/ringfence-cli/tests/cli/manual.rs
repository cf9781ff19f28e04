//! `man`, `completions` and `bench`: what they print, and that the files in `dist/` are up to date.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::person::Person;
use super::scene::{Finished, Scene, program};

fn done(scene: &Scene, args: &[&str]) -> Finished {
    let done = Finished::of(scene.ringfence(args));
    assert_eq!(done.code(), 0, "{args:?}: {}", done.stderr());
    done
}

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist")
}

/// The files of a folder and their text.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let files = entries.map(|entry| {
        let entry = entry.expect("an entry");
        let text = fs::read_to_string(entry.path()).expect("text");
        (entry.file_name().into_string().expect("UTF-8"), text)
    });
    files.collect()
}

/// `dist/update` writes these files again.
#[test]
fn the_manual_pages_and_completions_in_dist_are_up_to_date() {
    let scene = Scene::embedded();
    let folder = scene.path("man");
    done(&scene, &["man", "--dir", folder.to_str().unwrap()]);
    let (written, kept) = (files(&folder), files(&dist().join("man")));
    assert_eq!(
        written.keys().collect::<Vec<_>>(),
        kept.keys().collect::<Vec<_>>()
    );
    for (name, text) in written {
        assert_eq!(text, kept[&name], "{name} is old: run dist/update");
    }
    for (shell, file) in [
        ("bash", "ringfence.bash"),
        ("zsh", "_ringfence"),
        ("fish", "ringfence.fish"),
    ] {
        let script = done(&scene, &["completions", shell]);
        let kept = fs::read_to_string(dist().join("completions").join(file)).expect("text");
        assert_eq!(script.stdout(), kept, "{file} is old: run dist/update");
    }
}

#[test]
fn every_page_has_its_sections_and_every_page_that_is_cited_exists() {
    let pages = files(&dist().join("man"));
    assert!(pages.len() > 10, "{:?}", pages.keys());
    for (file, text) in &pages {
        for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES"] {
            let plain = text.contains(&format!(".SH {section}\n"));
            let quoted = text.contains(&format!(".SH \"{section}\"\n"));
            assert!(plain || quoted, "{file} has no {section}");
        }
        let cited = text.replace("\\-", "-").replace(" (1)", "(1)");
        let words = cited.split(|c: char| c.is_whitespace() || c == ',');
        let cited = words.filter_map(|word| {
            let at = word.find("ringfence")?;
            word[at..].strip_suffix("(1)")
        });
        for name in cited {
            assert!(pages.contains_key(&format!("{name}.1")), "{file}: {name}");
        }
    }
    let has = |command: &str| pages.contains_key(&format!("ringfence-{command}.1"));
    let commands = [
        "run", "elect", "acquire", "extend", "release", "status", "break",
    ];
    assert!(commands.iter().all(|command| has(command)));
}

#[test]
fn a_page_can_be_formatted_without_a_complaint() {
    let scene = Scene::embedded();
    let page = done(&scene, &["man", "run"]);
    scene.write("run.1", page.stdout());
    let shown = Command::new("groff")
        .args(["-man", "-Tutf8", "-ww"])
        .arg(scene.path("run.1"))
        .output()
        .expect("groff");
    assert!(shown.status.success());
    assert_eq!(String::from_utf8_lossy(&shown.stderr), "");
    let unknown = Finished::of(scene.ringfence(&["man", "nonsense"]));
    assert_eq!(unknown.code(), 64);
}

/// What a real bash proposes for a line that ends at the cursor.
fn completed(scene: &Scene, words: &[&str]) -> String {
    let script = done(scene, &["completions", "bash"]);
    scene.write("complete.bash", script.stdout());
    let listed: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let last = words.len() - 1;
    let asked = format!(
        "PATH=$DIR:$PATH; . $DIR/complete.bash; COMP_WORDS=({}); COMP_CWORD={last}; COMP_TYPE=9; \
         _ringfence ringfence \"${{COMP_WORDS[COMP_CWORD]}}\" ''; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        listed.join(" ")
    );
    let link = scene.path("ringfence");
    let _ = std::os::unix::fs::symlink(program(), &link);
    scene.write("only-here.txt", "");
    let output = Command::new("bash")
        .args(["--norc", "-c", &asked])
        .env("DIR", scene.path(""))
        .env("RINGFENCE_NODES", scene.nodes())
        .env("RINGFENCE_CONFIG", "")
        .current_dir(scene.path(""))
        .output()
        .expect("bash");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn bash_completes_commands_options_and_the_command_under_the_lock() {
    let scene = Scene::embedded();
    let has = |words: &[&str], wanted: &str| {
        let proposed = completed(&scene, words);
        assert!(
            proposed.lines().any(|line| line.trim() == wanted),
            "{words:?}: {proposed}"
        );
    };
    has(&["ringfence", "acq"], "acquire");
    has(&["ringfence", "run", "--hold"], "--hold-at-least");
    has(&["ringfence", "run", "x", "--", "mkdi"], "mkdir");
    has(
        &["ringfence", "run", "x", "--", "cat", "only-h"],
        "only-here.txt",
    );
}

#[test]
fn bash_completes_the_names_of_locks() {
    let scene = Scene::embedded();
    for name in ["orders-42", "orders-43", "backup"] {
        done(&scene, &["acquire", "--ttl", "10m", name]);
    }
    let proposed = completed(&scene, &["ringfence", "status", "ord"]);
    let names: Vec<&str> = proposed.split_whitespace().collect();
    assert_eq!(names, ["orders-42", "orders-43"]);
    // Bash divides a word at its colons.
    done(&scene, &["acquire", "--ttl", "10m", "eu:job:7"]);
    let proposed = completed(&scene, &["ringfence", "status", "eu", ":", "job", ":", ""]);
    assert_eq!(proposed.split_whitespace().collect::<Vec<_>>(), ["7"]);
    let proposed = completed(&scene, &["ringfence", "status", "e"]);
    assert_eq!(
        proposed.split_whitespace().collect::<Vec<_>>(),
        ["eu:job:7"]
    );
}

/// A client chooses the names of its locks. A person who presses TAB and Enter must not execute them.
#[test]
fn no_shell_executes_a_name_or_a_file_that_it_completes() {
    let scene = Scene::embedded();
    let hostile = "nightly$(touch${IFS}$DIR/owned)";
    done(&scene, &["acquire", "--ttl", "10m", hostile]);
    done(&scene, &["acquire", "--ttl", "10m", "night-shift"]);
    scene.write("only-hostile$(touch owned)", "");
    let proposed = completed(&scene, &["ringfence", "status", "night"]);
    assert_eq!(
        proposed.split_whitespace().collect::<Vec<_>>(),
        ["night-shift"]
    );
    let file = completed(&scene, &["ringfence", "run", "x", "--", "cat", "only-ho"]);
    assert_eq!(file.trim(), r"only-hostile\$\(touch\ owned\)");
    assert!(done(&scene, &["ls"]).stdout().contains("nightly$(touch"));
    for shell in ["bash --norc", "zsh -f", "fish --no-config"] {
        let person = Person::at(&scene);
        std::fs::create_dir_all(scene.path("home")).unwrap();
        let load = match shell.split(' ').next() {
            Some("bash") => ". $DIR/completions",
            Some("zsh") => "autoload -U compinit; compinit -u -D; . $DIR/completions",
            _ => "source $DIR/completions",
        };
        let name = shell.split(' ').next().unwrap();
        scene.write("completions", done(&scene, &["completions", name]).stdout());
        person.types("cd $DIR; export HOME=$DIR/home PATH=$DIR:$PATH\n");
        person.sees("prompt> ");
        person.types(&format!("{shell}\n{load}; echo load''ed42\n"));
        person.sees("loaded42");
        person.types("ringfence status night\t\n");
        person.sees("night-shift");
        person.types("ringfence run -n y -- echo seen only-ho\t\n");
        person.sees("seen");
        person.types("exit\n");
        person.sees("prompt> ");
        assert!(!scene.path("owned").exists(), "{shell} executed a name");
    }
}

#[test]
fn a_measurement_asks_first_and_shows_a_table() {
    let scene = Scene::embedded();
    let refused = Finished::of(scene.ringfence(&["bench"]));
    assert_eq!(refused.code(), 64);
    assert!(refused.stderr().contains("--yes"), "{}", refused.stderr());
    let shown = done(&scene, &["bench", "--yes", "--duration", "400ms"]);
    for words in ["tasks", "locks/s", "lock p50", "lock p99", "\n1 ", "\n64 "] {
        assert!(shown.stdout().contains(words), "{}", shown.stdout());
    }
    let widest = shown.stdout().lines().map(|line| line.chars().count());
    assert!(widest.max() <= Some(80), "{}", shown.stdout());
    let args = [
        "--json",
        "bench",
        "-y",
        "--duration",
        "10s",
        "--requests",
        "100",
    ];
    let shown = done(&scene, &args);
    let value: Value = serde_json::from_str(shown.stdout()).expect("JSON");
    let measured = value["measurements"].as_array().expect("a list");
    let locks: u64 = measured
        .iter()
        .filter_map(|one| one["locks"].as_u64())
        .sum();
    assert!((1..=50).contains(&locks), "bounded in requests: {locks}");
}

#[test]
fn an_interrupted_measurement_leaves_no_lock() {
    let (server, scene) = Scene::served();
    let person = Person::at(&scene);
    person.types("$RF bench --duration 1m\n");
    person.sees("Begin? [y/N]");
    person.types("y\n");
    person.sees("1 task");
    person.types("\u{3}");
    person.sees("prompt> ");
    let held = server.command(&["KEYS", "ringfence-bench:*"]);
    assert_eq!(held.trim(), "", "{held}");
}
