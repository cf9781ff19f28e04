//! `ringfence config`: shows the settings in force, and where each comes from.

use std::path::Path;
use std::time::Duration;

use ringfence::url::{parse_nodes, without_passwords};
use serde_json::{Value, json};

use crate::args::{ConfigArgs, DEFAULT_STOP_GRACE, DEFAULT_TTL, Global};
use crate::config::{Config, FileSetting, LockSettings, SYSTEM_FILE, user_file};
use crate::duration;
use crate::exit::Exit;
use crate::nodes::{self, NodesOrigin, has_password};
use crate::report::{CliFailure, Report, one_line};

/// One setting as it is shown.
struct SettingRow {
    key: &'static str,
    /// What is in force; `None` if there is no value.
    value: Option<String>,
    from: String,
}

pub(super) fn config(
    args: &ConfigArgs,
    given: &Global,
    config: &Config,
    report: Report,
) -> Result<Exit, CliFailure> {
    // The warnings about passwords are for the commands that use them.
    let quiet = Report {
        quiet: true,
        ..report
    };
    let nodes = nodes::locate(given, config, quiet)?;
    let from = origin(nodes.origin());
    let mut rows = vec![SettingRow::new("nodes", shown_urls(nodes.urls()), &from)];
    let [nodes_file, password_file] = nodes.files();
    let file = |path: &Path| path.display().to_string();
    if let Some(path) = nodes_file {
        rows.push(SettingRow::new("nodes-file", file(path), &from));
    }
    if let (Some(path), Some(from)) = (password_file, nodes.password_origin()) {
        rows.push(SettingRow::new("password-file", file(path), &origin(from)));
    }
    rows.extend(lock_rows(config, args.name.as_deref()));
    let read: Vec<String> = config.files.iter().map(|one| file(one.path())).collect();
    let value = json!({
        "name": args.name,
        "settings": rows.iter().map(SettingRow::json).collect::<Vec<_>>(),
        "files": read,
    });
    report.result(&text(&rows, &read, config), &value)?;
    // What is in force is shown also if no command can use it.
    match parse_nodes(nodes.urls()) {
        Ok(_) => Ok(Exit::Success),
        Err(error) => Err(CliFailure::usage(error.to_string())),
    }
}

impl SettingRow {
    fn new(key: &'static str, value: String, from: &str) -> Self {
        Self {
            key,
            value: Some(value),
            from: from.to_owned(),
        }
    }

    fn json(&self) -> Value {
        json!({"key": self.key, "value": self.value, "from": self.from})
    }
}

/// The settings of locks.
fn lock_rows(config: &Config, name: Option<&str>) -> Vec<SettingRow> {
    let row = |key, set: Option<FileSetting<'_, String>>, default: Option<&str>| match set {
        Some(set) => SettingRow::new(key, set.value, &in_file(set.file, set.pattern)),
        None => SettingRow {
            key,
            value: default.map(str::to_owned),
            from: "default".to_owned(),
        },
    };
    let span = |has: fn(&LockSettings) -> Option<Duration>| {
        config.of_lock(name, move |of| has(of).map(duration::typed))
    };
    let label = config.of_lock(name, |of| of.label.clone());
    let [ttl, stop_grace] = [DEFAULT_TTL, DEFAULT_STOP_GRACE].map(duration::typed);
    vec![
        row("ttl", span(|of| of.ttl), Some(&ttl)),
        row("wait", span(|of| of.wait), Some("for ever")),
        row(
            "no-quorum-after",
            span(|of| of.no_quorum_after),
            Some("the wait, at most 15s"),
        ),
        row("max-hold", span(|of| of.max_hold), None),
        row("lock-delay", span(|of| of.lock_delay), None),
        row(
            "kill-grace",
            span(|of| of.kill_grace),
            Some("a third of the TTL"),
        ),
        row("stop-grace", span(|of| of.stop_grace), Some(&stop_grace)),
        row("label", label, Some("host:pid:command")),
    ]
}

/// The URLs without passwords, and whether there are any.
fn shown_urls(urls: &str) -> String {
    let shown = without_passwords(urls).unwrap_or_else(|_| "not valid".to_owned());
    let shown = shown.replace(',', ", ");
    match has_password(urls) {
        true => format!("{shown} (passwords not shown)"),
        false => shown,
    }
}

fn origin(origin: &NodesOrigin) -> String {
    match origin {
        NodesOrigin::Flag(flag) => (*flag).to_owned(),
        NodesOrigin::Environment(variable) => (*variable).to_owned(),
        NodesOrigin::File(path) => in_file(path, None),
        NodesOrigin::Default => "default".to_owned(),
    }
}

fn in_file(file: &Path, pattern: Option<&str>) -> String {
    let file = file.display();
    match pattern {
        Some(pattern) => format!("{file} [[lock]] {pattern}"),
        None => file.to_string(),
    }
}

/// Each setting in a line, with its origin below if it has one: paths are long.
fn text(rows: &[SettingRow], read: &[String], config: &Config) -> String {
    let mut lines = Vec::new();
    for row in rows {
        let value = row.value.as_deref().unwrap_or("none");
        let line = format!("{:<17}{}", row.key, one_line(value));
        if row.from == "default" {
            lines.push(format!("{line} (default)"));
        } else {
            lines.push(line);
            lines.push(format!("{:<17}  from {}", "", one_line(&row.from)));
        }
    }
    lines.push(match read {
        [] if config.is_named => "no config file is read".to_owned(),
        [] => {
            let own =
                user_file().map(|path| format!("\n  {}", one_line(&path.display().to_string())));
            let own = own.unwrap_or_default();
            format!("there is no config file; these are looked for:{own}\n  {SYSTEM_FILE}")
        }
        read => {
            let read: Vec<String> = read.iter().map(|file| one_line(file)).collect();
            format!("files that were read:\n  {}", read.join("\n  "))
        }
    });
    lines.join("\n")
}
