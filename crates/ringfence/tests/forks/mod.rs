//! A forked child sends and writes nothing with what it inherited, and its parent's locks, renewals
//! and waits go on: real processes, real servers.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ringfence_testkit::{Certificates, Flavor, Server, fork_environment};

/// Cargo builds the program, an example target, beside the folder of this test, unless only this
/// test is built.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples/forks");
    assert!(
        program.is_file(),
        "{} was not built: run cargo build --examples --all-features",
        program.display()
    );
    program
}

/// Runs the program with `nodes`. Its child ends in each of the ways `how`.
fn parent_is_undisturbed(nodes: &str, how: &[&str]) {
    for how in how {
        let mut command = Command::new(program());
        command.args([how, nodes]).stdin(Stdio::null());
        command
            .envs([fork_environment()])
            .env("RUST_BACKTRACE", "0");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{how} on {nodes}: {output:?}");
        let child = String::from_utf8(output.stdout).unwrap();
        let expected = if how.ends_with("panic") { "101" } else { "0" };
        assert_eq!(child.trim(), expected, "{how} on {nodes}");
    }
}

/// A tokio runtime with several threads cannot end in a child: it waits for threads that are not
/// there. So its child exits.
const ASYNC: [&str; 6] = [
    "current-calls",
    "current-return",
    "current-panic",
    "current-exit",
    "multi-calls",
    "multi-exit",
];
const BLOCKING: [&str; 4] = [
    "blocking-calls",
    "blocking-return",
    "blocking-panic",
    "blocking-exit",
];

#[test]
fn on_a_server() {
    let server = Server::start(Flavor::Redis);
    parent_is_undisturbed(&server.url(), &ASYNC);
}

#[test]
fn on_a_server_without_async() {
    let server = Server::start(Flavor::Valkey);
    parent_is_undisturbed(&server.url(), &BLOCKING);
}

#[test]
fn over_tls() {
    let certificates = Certificates::generate();
    let server = Server::builder(Flavor::Redis).tls(&certificates).start();
    let authority = certificates.authority_file();
    let nodes = format!("{}?ca={}", server.url(), authority.display());
    parent_is_undisturbed(&nodes, &ASYNC);
    parent_is_undisturbed(&nodes, &BLOCKING);
}

#[test]
fn on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = format!("sqlite:{}", folder.path().join("locks.db").display());
    parent_is_undisturbed(&nodes, &ASYNC);
    parent_is_undisturbed(&nodes, &BLOCKING);
}

#[test]
fn in_memory() {
    parent_is_undisturbed("memory:forks", &ASYNC);
    parent_is_undisturbed("memory:forks", &BLOCKING);
}
