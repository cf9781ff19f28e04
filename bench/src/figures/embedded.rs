//! The embedded file: locks of one and of eight processes, and the whole `ringfence run` compared
//! with `flock(1)`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence_peers::{Library, Peer, Report};

use crate::sheet::{Cell, Sheet};

const COMMANDS: usize = 40;

pub(crate) fn locks(rounds: usize, ms: u64) -> Sheet {
    let columns = ["lock + release per s", "p50 µs", "p99 µs"];
    let mut sheet = Sheet::new(
        "embedded",
        "Embedded: one SQLite file, every grant synced to disk",
        &columns,
    );
    for processes in [1, 8] {
        let rounds: Vec<Vec<Report>> = (0..rounds.min(3))
            .map(|_| together(processes, ms))
            .collect();
        let sum = |figure: fn(&Report) -> f64| {
            Cell::of(rounds.iter().map(|all| all.iter().map(figure).sum::<f64>()))
        };
        let worst = |figure: fn(&Report) -> f64| {
            Cell::of(
                rounds
                    .iter()
                    .map(|all| all.iter().map(figure).fold(0.0, f64::max)),
            )
        };
        let cells = vec![
            sum(Report::per_second),
            worst(|report| report.p50_us),
            worst(|report| report.p99_us),
        ];
        sheet.row(format!("{processes} processes"), cells);
    }
    sheet
}

/// Processes with one task each on one new file.
fn together(processes: usize, ms: u64) -> Vec<Report> {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let mut rust = Command::new(env::current_exe().expect("this program"));
    rust.arg("serve");
    let peers: Vec<Peer> = (0..processes)
        .map(|_| Peer::start(Library::Ringfence, &url, &rust).expect("ours"))
        .collect();
    thread::scope(|scope| {
        let running: Vec<_> = peers
            .into_iter()
            .enumerate()
            .map(|(number, mut peer)| {
                let command = format!("cycles 1 {ms} bench{number} 10000");
                scope.spawn(move || peer.run_within(Duration::from_secs(60), &command))
            })
            .collect();
        running
            .into_iter()
            .map(|run| run.join().expect("no panic").expect("a report"))
            .collect()
    })
}

/// `true` under a lock, repeatedly, by one caller and by eight at once.
pub(crate) fn commands(rounds: usize) -> Sheet {
    let columns = ["1 caller, ms each", "8 callers, ms each"];
    let mut sheet = Sheet::new("run", "The whole command: run NAME -- true", &columns);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lock");
    let Some(tool) = tool() else {
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
    for _ in 0..rounds.min(3) {
        for (column, callers) in [1, 8].into_iter().enumerate() {
            measured[0][column].push(each_ms(callers, &ringfence));
            measured[1][column].push(each_ms(callers, &flock));
        }
    }
    for (who, columns) in ["ringfence run", "flock(1)"].into_iter().zip(measured) {
        sheet.row(who, columns.into_iter().map(Cell::of).collect());
    }
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
fn tool() -> Option<PathBuf> {
    let this = env::current_exe().ok()?;
    let tool = this.parent().unwrap_or(Path::new(".")).join("ringfence");
    tool.is_file().then_some(tool)
}
