//! Two builds of ringfence in turn, round by round: this one and an earlier one. Shows whether a
//! change made anything slower.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringfence_peers::{Library, Peer, Report};
use ringfence_testkit::Fleet;

use super::renewal;
use crate::arena::{Arena, Contender, Entry, run_together};
use crate::sheet::{Aim, Cell, Sheet};

/// How much slower a figure may be: runs differ by that much.
const LEAST: f64 = 0.97;
const TASKS: usize = 64;
const WAITERS: usize = 16;
const GUARDS: usize = 10_000;

/// Which of two measurements is better.
#[derive(Debug, Clone, Copy)]
enum Better {
    More,
    Less,
}

/// Compares this program with `before`, another build of it.
pub(crate) fn measure(before: &Path, rounds: usize, ms: u64) -> Sheet {
    let title = format!("This build against {}", before.display());
    let columns = ["before", "now", "ratio, more is better"];
    let this = env::current_exe().expect("this program");
    let mut builds = Builds {
        programs: [before.to_owned(), this],
        rounds,
        ms,
        sheet: Sheet::new("builds", title, &columns),
    };
    builds.throughput();
    builds.latency();
    builds.hand_over();
    builds.embedded();
    builds.renewal();
    builds.sheet
}

/// Two builds, and what was measured of them.
struct Builds {
    /// The earlier one and this one.
    programs: [PathBuf; 2],
    rounds: usize,
    ms: u64,
    sheet: Sheet,
}

impl Builds {
    fn throughput(&mut self) {
        let command = format!("cycles {TASKS} {} bench 10000", self.ms);
        for nodes in [1, 5] {
            let Some(both) = self.contest(nodes, &command) else {
                continue;
            };
            let what = |unit| format!("throughput, {nodes} nodes, {TASKS} tasks, {unit}");
            let rates = |entry: &Entry| entry.each(Report::per_second).collect();
            self.add(&what("per s"), both.each_ref().map(rates), Better::More);
            let costs = |entry: &Entry| entry.each_cost(|cost| cost.servers_us).collect();
            let unit = "µs of the servers";
            self.add(&what(unit), both.each_ref().map(costs), Better::Less);
            let costs = |entry: &Entry| entry.each_cost(|cost| cost.client_us).collect();
            let unit = "µs of the client";
            self.add(&what(unit), both.each_ref().map(costs), Better::Less);
        }
    }

    fn latency(&mut self) {
        let command = format!("cycles 1 {} bench 10000", self.ms);
        for nodes in [1, 3, 5] {
            if let Some(both) = self.contest(nodes, &command) {
                let times = |entry: &Entry| entry.each(|report| report.p50_us).collect();
                let what = format!("latency, {nodes} nodes, p50 µs");
                self.add(&what, both.each_ref().map(times), Better::Less);
            }
        }
    }

    /// Without a hold: earlier builds measured its length in another way.
    fn hand_over(&mut self) {
        let command = format!("share {WAITERS} {} bench:one 10000 0", self.ms);
        for nodes in [1, 5] {
            if let Some(both) = self.contest(nodes, &command) {
                let rates = |entry: &Entry| entry.each(Report::per_second).collect();
                let what = format!("hand-over, {nodes} nodes, {WAITERS} tasks, per s");
                self.add(&what, both.each_ref().map(rates), Better::More);
            }
        }
    }

    fn embedded(&mut self) {
        for processes in [1, 8] {
            let programs = self.programs.each_ref().map(PathBuf::as_path);
            let rates = embedded(programs, processes, self.rounds, self.ms);
            let what = format!("embedded file, {processes} processes, per s");
            self.add(&what, rates, Better::More);
        }
    }

    fn renewal(&mut self) {
        let percents = self.programs.each_ref().map(|program| {
            let fleet = Fleet::start(5);
            let watched = renewal::watch(program, &fleet.urls_without_quarantine(), GUARDS);
            watched["percent"].as_f64().into_iter().collect()
        });
        let what = format!("renewal, {GUARDS} guards, % of a core");
        self.add(&what, percents, Better::Less);
    }

    /// Runs `command` with both builds in turn.
    fn contest(&mut self, nodes: usize, command: &str) -> Option<[Entry; 2]> {
        let contenders = Contender::of_builds(&self.programs);
        let contest = Arena::with_nodes(nodes).contest_of(&contenders, 1, self.rounds, command);
        self.sheet.notes.extend(contest.missing);
        contest.entries.try_into().ok()
    }

    /// Adds one figure: the rounds before and now.
    fn add(&mut self, what: &str, [before, now]: [Vec<f64>; 2], better: Better) {
        let ratios = before.iter().zip(&now).map(|(before, now)| match better {
            Better::More => now / before,
            Better::Less => before / now,
        });
        let ratio = Cell::of(ratios.collect::<Vec<_>>());
        let cells = vec![Cell::of(before), Cell::of(now), ratio];
        self.sheet.row(what, cells);
        let median = ratio.map(|ratio| ratio.median);
        self.sheet.judge(what, median, Aim::AtLeast(LEAST));
    }
}

/// Locks and releases per second on one file, with one task in each process.
fn embedded(programs: [&Path; 2], processes: usize, rounds: usize, ms: u64) -> [Vec<f64>; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let mut number = 0;
    let mut round = |program: &Path| {
        number += 1;
        let file = folder.path().join(format!("{number}.db"));
        let url = format!("sqlite:{}", file.display());
        let mut rust = Command::new(program);
        rust.arg("serve");
        let peers = (0..processes).map(|_| Peer::start(Library::Ringfence, &url, &rust));
        let mut peers: Vec<Peer> = peers.collect::<Result<_, _>>().expect("ours");
        // Each task its own name: the process number is part of it.
        let commands = peers
            .iter()
            .map(|peer| format!("cycles 1 {ms} b{} 10000", peer.pid()));
        let commands: Vec<String> = commands.collect();
        run_together(&mut peers, &commands)
            .expect("a report")
            .per_second()
    };
    let both: Vec<[f64; 2]> = (0..rounds).map(|_| programs.map(&mut round)).collect();
    [0, 1].map(|build| both.iter().map(|round| round[build]).collect())
}
