//! The dashboard and the alert rules: `promtool` accepts every expression, and each names only
//! metrics that the exporter shows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence::Locks;
use serde_json::Value;

use crate::metrics::exporter::Exporter;

fn dist(file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    root.join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(dist(file)).expect("the file is part of the repository")
}

/// Fails with what `promtool` says, if it does not succeed.
#[track_caller]
fn promtool(args: &[&str], file: &Path) {
    let done = Command::new("promtool").args(args).arg(file).output();
    let done = done.expect("promtool is installed (Debian: the package prometheus)");
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(done.status.success(), "{said}");
}

/// Every expression of the board, with the variables of Grafana replaced.
fn board_expressions() -> Vec<String> {
    let board: Value = serde_json::from_str(&text("grafana/ringfence.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expressions = targets.flatten().map(|target| {
        let expression = target["expr"].as_str().expect("an expression");
        expression
            .replace("$__rate_interval", "5m")
            .replace("$job", ".*")
            .replace("$instance", ".*")
    });
    expressions.collect()
}

#[test]
fn promtool_accepts_the_alert_rules_and_their_tests() {
    promtool(&["check", "rules"], &dist("prometheus/ringfence.rules.yml"));
    promtool(&["test", "rules"], &dist("prometheus/ringfence.test.yml"));
}

#[test]
fn promtool_accepts_every_expression_of_the_dashboard() {
    let expressions = board_expressions();
    assert!(expressions.len() > 10, "{expressions:?}");
    let rules = expressions.iter().enumerate().map(|(number, expression)| {
        assert!(!expression.contains('$'), "{expression}");
        let quoted = Value::from(expression.as_str());
        format!("      - record: board:{number}\n        expr: {quoted}\n")
    });
    let rules: String = rules.collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("board.yml");
    let rules = format!("groups:\n  - name: board\n    rules:\n{rules}");
    fs::write(&file, rules).expect("our own folder");
    promtool(&["check", "rules"], &file);
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_the_rules_is_shown_by_an_exporter() {
    let exporter = Exporter::install();
    let locks = Locks::connect("memory:").await.expect("a client");
    drop(locks.mutex("x").lock().await.expect("it is free"));
    let page = exporter.scrape();
    let shown: BTreeSet<&str> = page.names().into_iter().collect();
    assert_eq!(shown.len(), 11, "{shown:?}");
    let uses = [
        text("grafana/ringfence.json"),
        text("prometheus/ringfence.rules.yml"),
    ];
    for text in &uses {
        let used = metrics_in(text);
        assert!(used.len() >= 8, "{used:?}");
        let unknown: Vec<_> = used.difference(&shown).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
    // The guide describes each of them.
    let guide = fs::read_to_string(dist("../docs/observability.md")).expect("the guide");
    for name in &shown {
        assert!(guide.contains(name), "{name} is not in the guide");
    }
    let alerts = uses[1]
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        assert!(guide.contains(alert), "{alert} is not in the guide");
    }
}

/// The metrics in `text`, without the suffixes of a histogram.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    let words = words.filter(|word| word.starts_with("ringfence_"));
    let name = |word| {
        let suffixes = ["_bucket", "_count", "_sum"];
        let mut whole = suffixes
            .iter()
            .filter_map(|end| str::strip_suffix(word, end));
        whole.next().unwrap_or(word)
    };
    words.map(name).collect()
}
