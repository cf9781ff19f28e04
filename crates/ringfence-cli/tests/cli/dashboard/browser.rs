//! The page in a real browser (Chromium, headless), against a real cluster of five nodes, and
//! against a group with Sentinels. The steps are in `browser/test.mjs` and `browser/sentinels.mjs`;
//! this is their partner that acts on the servers.
//!
//! With `RINGFENCE_SCREENSHOTS=FOLDER` the pictures of the documents are written there.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringfence_testkit::{Flavor, Fleet, SentinelGroup, Server};
use rustix::process::Signal;

use super::super::scene::{Finished, Scene};
use super::cast::Cast;
use super::{DashboardProcess, TOKEN, init};

const FILES: [&str; 5] = [
    "package.json",
    "package-lock.json",
    "page.mjs",
    "sentinels.mjs",
    "test.mjs",
];
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

#[test]
fn the_page_shows_in_a_real_browser_what_happens_in_a_cluster() {
    let fleet = Fleet::start(5);
    let scene = Scene::on(&fleet.urls());
    init(&scene);
    let mut cast = Cast::on(&fleet.urls());
    let dashboard = DashboardProcess::with_token(&scene, &[]);
    play("test.mjs", &dashboard, |words| match words {
        ["fill", count] => {
            fleet.iter().for_each(|server| fill(server, count));
            String::new()
        }
        ["clear"] => {
            fleet.iter().for_each(clear);
            String::new()
        }
        ["kill", index] => {
            fleet[index.parse::<usize>().expect("a number")].kill();
            String::new()
        }
        ["restart", index] => {
            fleet[index.parse::<usize>().expect("a number")].restart();
            String::new()
        }
        ["end-dashboard"] => {
            dashboard.running.signal(Signal::KILL);
            String::new()
        }
        words => cast.act(words),
    });
}

#[test]
fn the_page_shows_in_a_real_browser_what_happens_in_a_group_with_sentinels() {
    let group = SentinelGroup::start(Flavor::Redis);
    let scene = Scene::on(&group.url());
    init(&scene);
    let dashboard = DashboardProcess::with_token(&scene, &[]);
    play("sentinels.mjs", &dashboard, |words| {
        if words == ["fail-over"] {
            group.fail_over();
            // A client that may lock writes the birth record of the new master.
            let locks = Finished::of(scene.ringfence(&["run", "-w", "0", "x", "--", "true"]));
            assert_eq!(locks.code(), 69, "{}", locks.stderr());
        }
        group.master().addr().to_string()
    });
}

/// Writes keys of another program.
fn fill(server: &Server, count: &str) {
    let script = "for i = 1, ARGV[1] do redis.call('SET', 'other:' .. i, i) end";
    server.command(&["EVAL", script, "0", count]);
}

/// Deletes them again: a search among them takes longer, above all on a busy machine.
fn clear(server: &Server) {
    let script = "local i = 1 while redis.call('UNLINK', 'other:' .. i) == 1 do i = i + 1 end";
    server.command(&["EVAL", script, "0"]);
}

/// Runs the steps in the file `name`, and does what they ask for with `act`.
fn play(name: &str, dashboard: &DashboardProcess, mut act: impl FnMut(&[&str]) -> String) {
    let folder = steps();
    let mut node = Command::new("node")
        .arg(name)
        .current_dir(folder)
        .env("DASHBOARD", format!("http://127.0.0.1:{}", dashboard.port))
        .env("DASHBOARD_TOKEN", TOKEN)
        .env("CHROMIUM", browser())
        .envs(env::var_os("RINGFENCE_SCREENSHOTS").map(|folder| ("SHOTS", folder)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node is installed");
    let mut answers = node.stdin.take().expect("a pipe");
    let said = BufReader::new(node.stdout.take().expect("a pipe"));
    let mut failed: Option<String> = None;
    for line in said.lines() {
        let line = line.expect("text");
        let Some(demand) = line.strip_prefix("do ") else {
            println!("{line}");
            if failed.is_some() || line.starts_with("FAILED") {
                failed = Some(failed.unwrap_or_default() + &line + "\n");
            }
            continue;
        };
        let words: Vec<String> = serde_json::from_str(demand).expect("a list of words");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = act(&words);
        writeln!(answers, "{}", answer.replace('\n', " ")).expect("the steps go on");
    }
    let status = node.wait().expect("our own child");
    assert_eq!(failed, None);
    assert!(status.success(), "{status}");
}

/// A folder with the steps and the packages that they need, which the first of the tests installs.
/// Each may be a process of its own.
fn steps() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    fs::create_dir_all(&folder).expect("our own folder");
    let lock = File::create(folder.join("lock")).expect("our own file");
    lock.lock().expect("a lock on our own file");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/dashboard/browser");
    let wanted = FILES.map(|file| fs::read(source.join(file)).expect("our own file"));
    let stamp = folder.join("installed");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted.concat()) {
        return folder;
    }
    for (file, content) in FILES.iter().zip(&wanted) {
        fs::write(folder.join(file), content).expect("our own file");
    }
    let installed = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&folder)
        .output()
        .expect("npm is installed");
    assert!(installed.status.success(), "{installed:?}");
    fs::write(stamp, wanted.concat()).expect("our own folder");
    folder
}

/// The browser of the system.
fn browser() -> PathBuf {
    let folders = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&folders).collect();
    let all = BROWSERS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let mut found = all.filter(|path| path.exists());
    found
        .next()
        .expect("Chromium is missing: install `chromium`")
}
