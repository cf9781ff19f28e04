//! The embedded file: locks of one and of eight processes, and the whole `ringfence run` compared
//! with `flock(1)`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use ringfence::clock::Clock;
use ringfence_peers::{Library, Peer, Report};

use crate::arena::run_together;
use crate::sheet::{Aim, Cell, Sheet};

const COMMANDS: usize = 40;

pub(crate) fn locks(rounds: usize, ms: u64) -> Sheet {
    let columns = ["lock + release per s", "p50 µs", "p99 µs"];
    let mut sheet = Sheet::new(
        "embedded",
        "Embedded: one SQLite file, which syncs what a boot must not forget",
        &columns,
    );
    for processes in [1, 8] {
        let reports: Vec<Report> = (0..rounds).map(|_| together(processes, ms)).collect();
        let of = |figure: fn(&Report) -> f64| Cell::of(reports.iter().map(figure));
        let cells = vec![
            of(Report::per_second),
            of(|report| report.p50_us),
            of(|report| report.p99_us),
        ];
        sheet.row(format!("{processes} processes"), cells);
    }
    let p99_ms = sheet.median("8 processes", 2).map(|us| us / 1000.0);
    sheet.judge("p99 of 8 processes, ms", p99_ms, Aim::AtMost(5.0));
    sheet
}

/// Processes with one task each on one new file.
fn together(processes: usize, ms: u64) -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let mut rust = Command::new(env::current_exe().expect("this program"));
    rust.arg("serve");
    let mut peers: Vec<Peer> = (0..processes)
        .map(|_| Peer::start(Library::Ringfence, &url, &rust).expect("ours"))
        .collect();
    let commands = (0..processes).map(|number| format!("cycles 1 {ms} bench{number} 10000"));
    run_together(&mut peers, &commands.collect::<Vec<_>>()).expect("a report")
}

/// `true` under a lock, repeatedly, by one caller and by eight at once.
pub(crate) fn commands(rounds: usize, tool: Option<&Path>) -> Sheet {
    let columns = ["1 caller, ms each", "8 callers, ms each"];
    let mut sheet = Sheet::new("run", "The whole command: run NAME -- true", &columns);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lock");
    let Some(tool) = tool.map(Path::to_owned).or_else(tool_beside) else {
        sheet
            .notes
            .push("missing: the ringfence binary; build it with cargo build --release".to_owned());
        return sheet;
    };
    let nodes = format!("sqlite:{}", folder.path().join("locks.db").display());
    let ringfence = || {
        let mut command = Command::new(&tool);
        command.args(["--nodes", &nodes, "run", "job", "--", "true"]);
        command
    };
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(&file).arg("true");
        command
    };
    let mut measured = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..rounds {
        for (column, callers) in [1, 8].into_iter().enumerate() {
            measured[0][column].push(each_ms(callers, &ringfence));
            measured[1][column].push(each_ms(callers, &flock));
        }
    }
    for (who, columns) in ["ringfence run", "flock(1)"].into_iter().zip(measured) {
        sheet.row(who, columns.into_iter().map(Cell::of).collect());
    }
    let ratio = sheet
        .median("ringfence run", 0)
        .zip(sheet.median("flock(1)", 0));
    sheet.judge(
        "ringfence run against flock(1), 1 caller",
        ratio.map(|(ours, flock)| ours / flock),
        Aim::AtMost(2.5),
    );
    sheet
}

/// Wall-clock milliseconds for each command.
fn each_ms(callers: usize, command: &(impl Fn() -> Command + Sync)) -> f64 {
    let begun = Clock::System.now();
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                for _ in 0..COMMANDS / callers {
                    let status = command().stdout(Stdio::null()).status().expect("a command");
                    assert!(status.success(), "{status}");
                }
            });
        }
    });
    Clock::System.now().since(begun).as_secs_f64() * 1000.0 / COMMANDS as f64
}

/// The command-line tool, if it was built beside this program.
fn tool_beside() -> Option<PathBuf> {
    let this = env::current_exe().ok()?;
    let tool = this.parent().unwrap_or(Path::new(".")).join("ringfence");
    tool.is_file().then_some(tool)
}
