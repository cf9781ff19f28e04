//! What the program of a new user shows when something is wrong with the nodes: real processes, real
//! servers.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ringfence_testkit::{Flavor, Fleet, Server, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Cargo builds the program, an example target, beside the folder of this test.
fn program(what: &str, nodes: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let program: PathBuf = test.ancestors().nth(2).unwrap().join("examples/newcomer");
    assert!(
        program.is_file(),
        "{} was not built: run cargo build --examples --all-features",
        program.display()
    );
    let mut command = Command::new(program);
    command.args([what, nodes]).env_remove("RUST_LOG");
    command
}

/// What the program logs, and what it prints to stderr, when it ends with an error.
fn fails(what: &str, nodes: &str) -> (String, String) {
    let output = program(what, nodes).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// The URL of a port where nobody listens.
fn nobody() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    format!("redis://{}", port.unwrap())
}

#[test]
fn a_missing_password_is_said_in_the_line_that_the_program_prints() {
    let server = Server::builder(Flavor::Redis)
        .requirepass("hunter2")
        .start();
    let nodes = format!("redis://127.0.0.1:{}", server.port());
    let advice = "asks for a password; put it into the URL";
    for what in ["main", "ready", "anyhow main", "anyhow line"] {
        let (_, printed) = fails(what, &nodes);
        assert_eq!(printed.matches(advice).count(), 1, "{what}: {printed}");
    }
    let (_, printed) = fails("anyhow line", &nodes);
    let line = format!(
        "Error: the node is not fit to hold locks: 127.0.0.1:{}: asks",
        server.port()
    );
    assert!(printed.starts_with(&line), "{printed}");
    // Three nodes: each is named, and what all say is said once.
    let fleet = Fleet::start_with(3, |_| Server::builder(Flavor::Redis).requirepass("hunter2"));
    let nodes: Vec<String> = fleet
        .iter()
        .map(|server| format!("redis://127.0.0.1:{}", server.port()))
        .collect();
    let (_, printed) = fails("anyhow line", &nodes.join(","));
    assert_eq!(printed.matches(advice).count(), 1, "{printed}");
    for node in &nodes {
        let address = node.strip_prefix("redis://").unwrap();
        assert!(printed.contains(address), "{printed}");
    }
}

#[test]
fn a_wrong_port_is_logged_at_once_and_is_the_cause_of_the_error() {
    let nodes = nobody();
    let address = nodes.strip_prefix("redis://").unwrap();
    let (logged, printed) = fails("anyhow line", &nodes);
    let cause = format!("{address}: cannot be reached: Connection refused");
    assert!(
        printed.starts_with("Error: `orders:42` cannot be locked: "),
        "{printed}"
    );
    assert_eq!(printed.matches(&cause).count(), 1, "{printed}");
    let warnings: Vec<&str> = logged
        .lines()
        .filter(|line| line.contains(" WARN "))
        .collect();
    assert_eq!(warnings.len(), 1, "{logged}");
    assert!(
        warnings[0].contains("connected without a majority of the nodes"),
        "{logged}"
    );
    assert_eq!(warnings[0].matches(&cause).count(), 1, "{logged}");
    let (_, printed) = fails("ready", &nodes);
    assert!(printed.contains(&cause), "{printed}");
}

#[test]
fn each_dead_node_of_a_quorum_is_named_by_the_error() {
    let server = Server::start(Flavor::Redis);
    let nodes = [server.url_without_quarantine(), nobody(), nobody()];
    let (_, printed) = fails("anyhow line", &nodes.join(","));
    let start = "Error: no majority of the nodes answers for `orders:42`: ";
    assert!(printed.starts_with(start), "{printed}");
    for node in &nodes[1..] {
        let address = node.strip_prefix("redis://").unwrap();
        assert_eq!(printed.matches(address).count(), 1, "{printed}");
    }
    assert!(
        printed.contains("cannot be reached: Connection refused"),
        "{printed}"
    );
    let (_, printed) = fails("main", &nodes.join(","));
    assert!(
        printed.contains("cannot be reached: Connection refused"),
        "{printed}"
    );
}

#[test]
fn the_causes_of_an_error_are_listed_below_it() {
    let nodes = [nobody(), nobody(), nobody()];
    let (_, printed) = fails("anyhow main", &nodes.join(","));
    let (line, causes) = printed.split_once("Caused by:").expect("causes");
    assert!(line.contains("no majority of the nodes answers"), "{line}");
    for node in &nodes {
        let address = node.strip_prefix("redis://").unwrap();
        assert_eq!(causes.matches(address).count(), 1, "{printed}");
    }
}

/// Also if one of the nodes is slower than the others: it is no node that is down.
#[test]
fn three_new_nodes_fail_with_what_a_program_has_to_do() {
    let fleet = Fleet::start(3);
    for _ in 0..2 {
        let (_, printed) = fails("anyhow line", &fleet.urls());
        assert!(
            printed.contains("`Builder::init` in a program"),
            "{printed}"
        );
        assert!(!printed.contains("have not answered"), "{printed}");
    }
}

#[test]
fn a_file_for_tls_that_is_missing_is_named() {
    let nodes = "rediss://127.0.0.1:1?ca=/no/such/authority.pem";
    for what in ["main", "anyhow main", "anyhow line"] {
        let (_, printed) = fails(what, nodes);
        assert!(printed.contains("/no/such/authority.pem"), "{printed}");
    }
    let (_, printed) = fails("anyhow line", nodes);
    let line = "Error: cannot use `/no/such/authority.pem` for TLS: ";
    assert!(printed.starts_with(line), "{printed}");
}

/// A program in progress, and the lines of its log.
struct Running {
    child: Child,
    lines: Receiver<String>,
    logged: Vec<String>,
}

impl Running {
    fn start(nodes: &str) -> Self {
        let mut command = program("lines", nodes);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let logged = Vec::new();
        Self {
            child,
            lines,
            logged,
        }
    }

    /// Has the program take a lock.
    fn lock(&mut self) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "orders:42").unwrap();
    }

    /// Has the program take locks until so many lines of its log contain `text`.
    fn logs(&mut self, lines: usize, text: &str) {
        wait_until(text, PATIENCE, || {
            self.lock();
            let line = self.lines.recv_timeout(Duration::from_millis(200));
            self.logged.extend(line);
            self.with(text).len() >= lines
        });
    }

    fn with(&self, text: &str) -> Vec<&String> {
        let lines = self.logged.iter();
        lines.filter(|line| line.contains(text)).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nodes_that_hang_and_come_back_are_logged_once_each() {
    let fleet = Fleet::start(3);
    let mut program = Running::start(&fleet.urls_without_quarantine());
    let servers: Vec<&Server> = fleet.iter().collect();
    program.logs(1, "fence ");
    for server in &servers[..2] {
        server.pause();
    }
    let (gone, back) = ("the node does not vote", "the node is back and votes");
    program.logs(2, gone);
    for server in &servers[..2] {
        server.resume();
    }
    program.logs(2, back);
    for server in &servers[..2] {
        let node = format!("node=\"127.0.0.1:{}\"", server.port());
        let about = program.with(&node);
        let levels: Vec<bool> = about.iter().map(|line| line.contains(" WARN ")).collect();
        assert_eq!(levels, [true, false], "{:#?}", program.logged);
        assert!(about[1].contains(" INFO "), "{:#?}", program.logged);
    }
}
