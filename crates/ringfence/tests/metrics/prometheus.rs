//! A real Prometheus that scrapes an exporter, and answers queries.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ringfence_testkit::{Process, wait_until};
use serde_json::Value;
use tempfile::TempDir;

use crate::metrics::http;

/// Long enough for a busy machine. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Prometheus {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// Scrapes `target` several times in a second.
    pub(crate) fn scraping(target: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |name| folder.path().join(name);
        let settings = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs:\n  - job_name: test\n    static_configs: [{{targets: ['{target}']}}]\n"
        );
        fs::write(file("prometheus.yml"), settings).expect("our own folder");
        let log = File::create(file("log")).expect("our own folder");
        let mut command = Command::new("prometheus");
        command
            .args(["--web.listen-address=127.0.0.1:0", "--config.file"])
            .arg(file("prometheus.yml"))
            .arg("--storage.tsdb.path")
            .arg(file("data"))
            .stderr(log);
        let process = Process::spawn(&mut command);
        Self {
            address: listening_address(&file("log")),
            _process: process,
            _folder: folder,
        }
    }

    /// The values of all series that `selector` selects, by name and labels.
    pub(crate) fn series(&self, selector: &str) -> BTreeMap<String, f64> {
        let query: String = selector.bytes().map(|b| format!("%{b:02x}")).collect();
        let reply = http::get(self.address, &format!("/api/v1/query?query={query}"));
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        let samples = reply["data"]["result"].as_array().expect("a vector");
        samples.iter().map(read).collect()
    }
}

/// Name and labels in the form of a page, and the value.
fn read(sample: &Value) -> (String, f64) {
    let labels = sample["metric"].as_object().expect("labels");
    // Labels that Prometheus adds to what it scrapes.
    let added = ["__name__", "instance", "job"];
    let own = labels
        .iter()
        .filter(|(key, _)| !added.contains(&key.as_str()));
    let own: Vec<_> = own.map(|(key, value)| format!("{key}={value}")).collect();
    let name = labels["__name__"].as_str().expect("a name");
    let value = sample["value"][1].as_str().expect("a value");
    (
        format!("{name}{{{}}}", own.join(",")),
        value.parse().expect("a number"),
    )
}

/// Prometheus logs the port that the system gave it, and when it answers queries.
fn listening_address(log: &Path) -> SocketAddr {
    let mut address = None;
    wait_until("Prometheus to be ready", PATIENCE, || {
        let log = fs::read_to_string(log).expect("its log");
        let line = log.lines().find(|line| line.contains("\"Listening on\""));
        let word = line.and_then(|line| line.rsplit_once("address="));
        address = word.and_then(|(_, address)| address.trim().parse().ok());
        address.is_some() && log.contains("Server is ready")
    });
    address.expect("it was found")
}
