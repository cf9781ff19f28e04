//! Every console block of the README and of `docs/`: run with local servers, or listed here with the
//! test that runs it, and then at least valid shell. What a block prints is what the page shows.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ringfence_testkit::{Flavor, SentinelGroup, Server};
use rustix::process::geteuid;

use super::scene::{Scene, in_own_mounts, program};

/// A block that is run.
struct Runnable {
    /// A text that only this block contains.
    part: &'static str,
    /// What the shell does before.
    before: &'static str,
    stage: Stage,
}

/// What a block is run with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Three servers.
    Servers,
    /// A master with replicas and Sentinels.
    Sentinels,
    /// Users and groups of its own, which needs root.
    Users,
}

const fn on_servers(part: &'static str, before: &'static str) -> Runnable {
    let stage = Stage::Servers;
    Runnable {
        part,
        before,
        stage,
    }
}

const RUN: &[Runnable] = &[
    on_servers("cargo run -- run hello", ""),
    on_servers("a minority may fail", ""),
    on_servers("ringfence init                                # once", ""),
    on_servers("--wait 5s job -- python3 work.py", ""),
    on_servers("jq -r .token", ""),
    on_servers("--metrics-file /var/lib/node_exporter", ""),
    on_servers("ringfence init\nringfence doctor", ""),
    on_servers(
        "ringfence break nightly",
        "ringfence acquire nightly > held",
    ),
    on_servers("redis-cli DEL ringfence:born", ""),
    on_servers("install -m 0755 target/release/ringfence", "mkdir bin"),
    // The third server is down. `doctor` ends with exit code 1, which the block shows.
    on_servers(
        "127.0.0.1:7391",
        "ringfence --nodes redis://127.0.0.1:7391,redis://127.0.0.1:7392,redis://127.0.0.1:7393 \
         init > init; command redis-cli -p 7393 shutdown nosave; set +e",
    ),
    on_servers("redis://c dashboard", ""),
    on_servers("dashboard --token-file", ""),
    Runnable {
        part: "ringfence init --nodes 'redis+sentinel://",
        before: "",
        stage: Stage::Sentinels,
    },
    Runnable {
        part: "groupadd",
        before: "cp -a /etc etc; mount --bind etc /etc; useradd deploy",
        stage: Stage::Users,
    },
];

/// The blocks that are not run here, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("./verify", "runs this test"),
    (
        "cargo run -p ringfence --",
        "run by the tests `examples` of the library",
    ),
    (
        "cargo run -p ringfence-verify",
        "minutes of proof, in ./verify and ./verify long; ringfence-verify tests the arguments",
    ),
    ("cargo run --release -p ringfence-verify", "the same"),
    ("cargo fuzz", "in ./verify long"),
    ("RINGFENCE_LONG=1 cargo test", "minutes of measuring"),
    ("redis://c serve", "run by `serve.rs`"),
    ("http://localhost/v1/hold", "run by examples/languages"),
    (
        "redis-cli --eval",
        "run by the tests `resource` of the library",
    ),
];

struct Block {
    page: String,
    /// The commands, without prompts.
    commands: String,
    /// What the page shows as their output.
    output: String,
}

fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let pages = docs.chain([root.join("README.md")]);
    let pages = pages.filter(|page| page.extension().is_some_and(|end| end == "md"));
    let mut blocks = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).expect("a page");
        let name = page.file_name().expect("a name").to_string_lossy();
        let mut lines = text.lines().map(str::trim_start);
        while let Some(opening) = lines.next() {
            let has_prompts = match opening {
                "```console" => true,
                "```sh" => false,
                _ => continue,
            };
            let lines = lines.by_ref().take_while(|line| *line != "```");
            blocks.push(block(name.clone().into_owned(), has_prompts, lines));
        }
    }
    blocks
}

fn block<'a>(page: String, has_prompts: bool, lines: impl Iterator<Item = &'a str>) -> Block {
    let (mut commands, mut output) = (String::new(), String::new());
    for line in lines {
        let command = match line.strip_prefix("$ ") {
            Some(command) => Some(command),
            None if !has_prompts || commands.ends_with("\\\n") => Some(line),
            None => None,
        };
        match command {
            Some(command) => commands += &format!("{command}\n"),
            None => output += &format!("{line}\n"),
        }
    }
    Block {
        page,
        commands,
        output,
    }
}

#[test]
fn every_console_block_runs_or_says_why_not() {
    let blocks = blocks();
    assert!(blocks.len() > 15, "{}", blocks.len());
    for block @ Block { page, commands, .. } in &blocks {
        let is_shell = Command::new("bash").args(["-n", "-c", commands]).status();
        assert!(is_shell.expect("bash").success(), "{page}: {commands}");
        let listed = RUN.iter().find(|one| commands.contains(one.part));
        let excused = NOT_RUN.iter().any(|(part, _)| commands.contains(part));
        match listed {
            Some(listed) => run(block, listed),
            None => assert!(
                excused,
                "{page}: list this block in tests/cli/pages.rs:\n{commands}"
            ),
        }
    }
    for Runnable { part, .. } in RUN {
        assert!(
            blocks.iter().any(|block| block.commands.contains(part)),
            "{part}"
        );
    }
}

/// Runs a block on servers of its own, in a folder of its own.
#[track_caller]
fn run(block: &Block, listed: &Runnable) {
    let mut shell = Command::new("bash");
    if listed.stage == Stage::Users {
        if !geteuid().is_root() {
            return eprintln!("NOT TESTED: {}: needs root", block.commands);
        }
        shell = in_own_mounts();
        shell.arg("bash");
    }
    let servers = [(); 3].map(|()| Server::start(Flavor::Redis));
    let group = (listed.stage == Stage::Sentinels).then(|| SentinelGroup::start(Flavor::Redis));
    let scene = Scene::embedded();
    scene.write("report.sh", "#!/bin/sh\n");
    scene.write("work.py", "");
    // What `jq -r .token` does, where jq is not installed.
    scene.write(
        "jq",
        "#!/bin/sh\nsed 's/.*\"token\":\"\\([^\"]*\\)\".*/\\1/'\n",
    );
    let local = |text: &str| localised(text, &servers, group.as_ref());
    let script = format!(
        "set -e\nchmod +x report.sh jq; ln -s {} ringfence; PATH=$PWD:$PATH\n\
         redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n\
         {SERVE}{}\n{}",
        program(),
        servers[0].port(),
        local(listed.before),
        local(&block.commands),
    );
    let output = shell
        .args(["-c", &script])
        .current_dir(scene.path(""))
        .env("RINGFENCE_NODES", scene.nodes())
        .env("RINGFENCE_CONFIG", "")
        .stdin(Stdio::null())
        .output()
        .expect("bash");
    let page = &block.page;
    assert!(output.status.success(), "{page}: {script}\n{output:?}");
    if !block.output.is_empty() {
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(timeless(&printed), timeless(&block.output), "{page}");
    }
}

/// Runs a command that serves until it is ended: ends it when it has printed a line.
const SERVE: &str = "serve() {
    \"$@\" > served & server=$!
    until grep --quiet . served || ! kill -0 $server; do sleep 0.02; done
    kill $server; wait $server || [ $? -eq 143 ]; cat served
}
";

/// `text` with the addresses of local servers, and with folders that a test may write to.
fn localised(text: &str, servers: &[Server; 3], group: Option<&SentinelGroup>) -> String {
    let [a, b, c] = [0, 1, 2].map(|at: usize| format!("redis://{}", servers[at].addr()));
    let mut text = text.to_owned();
    for (at, server) in servers.iter().enumerate() {
        for first in [7001, 7391] {
            text = text.replace(&(first + at).to_string(), &server.port().to_string());
        }
    }
    if let Some(group) = group {
        text = text.replace("redis+sentinel://s1,s2,s3/orders", &group.url());
    }
    let serving = |line: &str| match line.contains(" dashboard") {
        true => format!("serve {line} --listen 127.0.0.1:0\n"),
        false => format!("{line}\n"),
    };
    let text: String = text.lines().map(serving).collect();
    text.replace(
        "redis://a:6379,redis://b:6379,redis://c:6379",
        &format!("{a},{b},{c}"),
    )
    .replace("redis://a,redis://b,redis://c", &format!("{a},{b},{c}"))
    .replace("cargo run -- ", "ringfence ")
    .replace("cargo install --locked --path crates/ringfence-cli", ":")
    .replace("cargo build --release", ":")
    .replace("target/release/ringfence", program())
    .replace("/usr/local/bin/", "bin/")
    .replace("/usr/local/share/man/man1", "man")
    .replace("/etc/bash_completion.d/ringfence", "completion")
    .replace("/etc/ringfence/viewers", "viewers")
    .replace("/var/lib/node_exporter/", "")
    .replace("/var/lib/ringfence", "lib")
    // The servers of the test run already.
    .replace("redis-server --port", ": --port")
    // A test has no terminal to be asked at.
    .replace("ringfence break ", "ringfence break --yes ")
}

/// `text` without what differs from run to run: numbers, units of time, which of two clocks is ahead,
/// and where lines are broken.
fn timeless(text: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace("ahead of", "behind");
    let words = text.split(' ').map(|word| {
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        let kept: String = word.chars().filter(|c| !digits(*c)).collect();
        match kept.as_str() {
            "s" | "ms" | "min" => "TIME".to_owned(),
            _ => kept,
        }
    });
    let mut words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
    // "1 min 3 s" is one time.
    words.dedup();
    words
}
