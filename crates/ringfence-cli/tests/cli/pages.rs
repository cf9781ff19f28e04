//! Every console block of the README and of `docs/`: run with local servers, or listed here with the
//! reason why it is not, and then at least valid shell.

use std::fs;
use std::path::Path;
use std::process::Command;

use ringfence_testkit::{Flavor, Server};

use super::scene::{Scene, program};

/// The blocks that are run: text of the block, what the shell does before, and the exit code.
const RUN: &[(&str, &str, i32)] = &[
    ("cargo run --release -- run hello", "", 0),
    ("a minority may fail", "", 0),
    (
        "ringfence init                                # once",
        "",
        0,
    ),
    ("--wait 5s job -- python3 work.py", "", 0),
    ("jq -r .token", "", 0),
    ("--metrics-file /var/lib/node_exporter", "", 0),
    ("ringfence init\nringfence doctor", "", 0),
    (
        "ringfence break nightly",
        "ringfence acquire nightly > held",
        0,
    ),
    ("redis-cli DEL ringfence:born", "", 0),
];

/// The blocks that are not run, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("./verify", "runs this test"),
    (
        "cargo run -p ringfence --",
        "run by the tests `examples` of the library",
    ),
    (
        "cargo run -p ringfence-verify",
        "minutes of proof, in ./verify and ./verify long",
    ),
    ("cargo run --release -p ringfence-verify", "the same"),
    ("cargo fuzz", "in ./verify long"),
    ("cargo build --release", "installs into the system"),
    (
        "groupadd",
        "changes the users of the system; tests/cli/rights.rs does the same",
    ),
    (
        "redis+sentinel://",
        "needs Sentinels; tests/cli/failover.rs has them",
    ),
    (
        "127.0.0.1:7391",
        "its output is compared by tests/cli/doctor.rs",
    ),
    (
        " dashboard",
        "serves until it is ended; tests/cli/dashboard has it",
    ),
    ("RINGFENCE_LONG=1 cargo test", "minutes of measuring"),
    (
        "redis-cli --eval",
        "run by the tests `resource` of the library",
    ),
];

struct Block {
    page: String,
    text: String,
}

/// The commands of all blocks, without prompts and output.
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
        let mut open: Option<(bool, String)> = None;
        for line in text.lines().map(str::trim_start) {
            match (&mut open, line) {
                (None, "```console" | "```sh") => {
                    open = Some((line.contains("cons"), String::new()))
                }
                (Some((_, text)), "```") => {
                    let (page, text) = (name.to_string(), std::mem::take(text));
                    blocks.push(Block { page, text });
                    open = None;
                }
                (Some((false, text)), line) => *text += &format!("{line}\n"),
                (Some((true, text)), line) => match line.strip_prefix("$ ") {
                    Some(command) => *text += &format!("{command}\n"),
                    None if text.ends_with("\\\n") => *text += &format!("{line}\n"),
                    None => {}
                },
                (None, _) => {}
            }
        }
    }
    blocks
}

#[test]
fn every_console_block_runs_or_says_why_not() {
    let blocks = blocks();
    assert!(blocks.len() > 15, "{}", blocks.len());
    for Block { page, text } in &blocks {
        let is_shell = Command::new("bash").args(["-n", "-c", text]).status();
        assert!(is_shell.expect("bash").success(), "{page}: {text}");
        let listed = RUN.iter().find(|(part, ..)| text.contains(part));
        let excused = NOT_RUN.iter().any(|(part, _)| text.contains(part));
        match listed {
            Some((_, before, code)) => run(page, text, before, *code),
            None => assert!(
                excused,
                "{page}: list this block in tests/cli/pages.rs:\n{text}"
            ),
        }
    }
    for (part, ..) in RUN {
        assert!(
            blocks.iter().any(|block| block.text.contains(part)),
            "{part}"
        );
    }
}

/// Runs a block on servers of its own, in a folder of its own.
#[track_caller]
fn run(page: &str, text: &str, before: &str, code: i32) {
    let servers = [(); 3].map(|()| Server::start(Flavor::Redis));
    let scene = Scene::embedded();
    let folder = scene.path("");
    let [a, b, c] = [0, 1, 2].map(|at: usize| servers[at].addr().to_string());
    let ports = [
        ("7001", &servers[0]),
        ("7002", &servers[1]),
        ("7003", &servers[2]),
    ];
    let text = ports.iter().fold(text.to_owned(), |text, (port, server)| {
        text.replace(port, &server.port().to_string())
    });
    let text = text
        .replace("redis://a:6379", &format!("redis://{a}"))
        .replace("redis://b:6379", &format!("redis://{b}"))
        .replace("redis://c:6379", &format!("redis://{c}"))
        .replace("cargo run --release -- ", "ringfence ")
        .replace("cargo install --locked --path crates/ringfence-cli", ":")
        .replace("/var/lib/node_exporter/", "")
        // The servers of the test run already.
        .replace("redis-server --port", ": --port")
        // A test has no terminal to be asked at.
        .replace("ringfence break ", "ringfence break --yes ");
    scene.write("report.sh", "#!/bin/sh\necho report\n");
    scene.write("work.py", "print('work')\n");
    // What `jq -r .token` does, where jq is not installed.
    scene.write(
        "jq",
        "#!/bin/sh\nsed 's/.*\"token\":\"\\([^\"]*\\)\".*/\\1/'\n",
    );
    let script = format!(
        "set -e\nchmod +x report.sh jq; ln -s {} ringfence; PATH=$PWD:$PATH\n\
         redis-cli() {{ command redis-cli -p {} \"$@\"; }}\n{before}\n{text}",
        program(),
        servers[0].port(),
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(&folder)
        .env("RINGFENCE_NODES", scene.nodes())
        .env("RINGFENCE_CONFIG", "")
        .output()
        .expect("bash");
    assert_eq!(
        output.status.code(),
        Some(code),
        "{page}: {text}\n{output:?}"
    );
}
