//! `--metrics-file`: what a job shows to Prometheus' textfile collector.

use std::fs;
use std::process::{Command, Stdio};

use ringfence_testkit::wait_until;
use rustix::process::Signal;

use crate::scene::{Finished, PATIENCE, Running, Scene};

/// The value of the only sample that begins with `name` and has these `labels`.
fn value(page: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let is_wanted = |line: &&str| {
        let is_named = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{'));
        is_named && labels.iter().all(|label| line.contains(label))
    };
    let mut found = page.lines().filter(is_wanted);
    let sample = found.next()?;
    assert_eq!(found.next(), None, "{page}");
    sample.rsplit_once(' ')?.1.parse().ok()
}

fn page(scene: &Scene) -> String {
    fs::read_to_string(scene.path("job.prom")).unwrap_or_default()
}

/// Fails if `promtool` finds a mistake in the page.
#[track_caller]
fn assert_is_metrics(page: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed (Debian: the package prometheus)");
    let mut input = promtool.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, page.as_bytes()).expect("promtool reads");
    drop(input);
    let done = promtool.wait_with_output().expect("our own child");
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(done.status.success(), "{said}\n{page}");
}

#[test]
fn run_shows_the_lock_while_it_is_held_and_its_hold_afterwards() {
    let scene = Scene::embedded();
    let file = scene.path("job.prom");
    let options = ["--metrics-file", file.to_str().expect("UTF-8")];
    let run = scene.run(&options, "until [ -e $DIR/go ]; do sleep 0.01; done");
    let held = |page: &str| value(page, "ringfence_held", &["name=\"x\"", "kind=\"mutex\""]);
    wait_until("the grant to be shown", PATIENCE, || {
        held(&page(&scene)) == Some(1.0)
    });
    assert_is_metrics(&page(&scene));
    scene.write("go", "");
    let done = run.finish();
    assert_eq!(done.code(), 0, "{}", done.stderr());
    let page = page(&scene);
    assert_eq!(held(&page), Some(0.0), "{page}");
    let granted = ["name=\"x\"", "kind=\"mutex\"", "outcome=\"granted\""];
    let count = value(&page, "ringfence_acquire_duration_seconds_count", &granted);
    assert_eq!(count, Some(1.0), "{page}");
    let holds = value(
        &page,
        "ringfence_hold_duration_seconds_count",
        &["name=\"x\""],
    );
    assert_eq!(holds, Some(1.0), "{page}");
    assert_is_metrics(&page);
    let left = fs::read_dir(file.parent().expect("a folder")).expect("our own folder");
    let left = left.flatten().map(|entry| entry.file_name());
    let beside: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with(".job.prom"))
        .collect();
    assert!(beside.is_empty(), "{beside:?}");
}

#[test]
fn elect_shows_that_it_leads() {
    let scene = Scene::embedded();
    let file = scene.path("job.prom");
    let file = file.to_str().expect("UTF-8");
    let args = ["elect", "--metrics-file", file, "x", "--", "sleep", "1000"];
    let elect = Running::start(scene.ringfence(&args));
    wait_until("the lead to be shown", PATIENCE, || {
        value(&page(&scene), "ringfence_leading", &["name=\"x\""]) == Some(1.0)
    });
    elect.signal(Signal::TERM);
    assert_eq!(elect.finish().code(), 128 + 15);
    let leading = value(&page(&scene), "ringfence_leading", &["name=\"x\""]);
    assert_eq!(leading, Some(0.0));
}

#[test]
fn a_refused_run_is_shown_too() {
    let scene = Scene::embedded();
    let _holder = scene.run(&[], "echo $$ > $DIR/pid; sleep 1000");
    scene.process("pid");
    let file = scene.path("job.prom");
    let refused = scene.run(
        &["-n", "--metrics-file", file.to_str().expect("UTF-8")],
        "true",
    );
    assert_eq!(refused.finish().code(), 75);
    let count = value(
        &page(&scene),
        "ringfence_acquire_duration_seconds_count",
        &["outcome=\"held\""],
    );
    assert_eq!(count, Some(1.0));
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_before_the_lock_is_taken() {
    let scene = Scene::embedded();
    let file = scene.path("missing/job.prom");
    let file = file.to_str().expect("UTF-8");
    let args = ["run", "--metrics-file", file, "x", "--", "touch", "never"];
    let refused = Finished::of(scene.ringfence(&args));
    assert_eq!(refused.code(), 64);
    assert!(
        refused.stderr().contains("--metrics-file"),
        "{}",
        refused.stderr()
    );
}

#[test]
fn a_file_that_can_no_longer_be_written_does_not_end_the_command() {
    let scene = Scene::embedded();
    let folder = scene.path("metrics");
    fs::create_dir(&folder).expect("our own folder");
    let file = folder.join("job.prom");
    let options = ["--metrics-file", file.to_str().expect("UTF-8")];
    let run = scene.run(
        &options,
        "echo $$ > $DIR/pid; until [ -e $DIR/go ]; do sleep 0.01; done",
    );
    scene.process("pid");
    // Renamed, not removed: the file may be written at this moment.
    fs::rename(&folder, scene.path("elsewhere")).expect("our own folder");
    scene.write("go", "");
    let done = run.finish();
    assert_eq!(done.code(), 0, "{}", done.stderr());
    assert!(
        done.stderr().contains("is not written"),
        "{}",
        done.stderr()
    );
}
