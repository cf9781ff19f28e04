//! Servers, and contenders that run on them in turn.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ringfence_peers::{Library, Missing, Peer, Report};
use ringfence_testkit::{Fleet, Server};

use crate::cost::{Meter, PerLock};
use crate::distance::{self, Distance};
use crate::sheet::{Cell, Sheet};

/// Longer than any workload here, unless its client hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The servers of a run.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) fleet: Fleet,
    /// Where clients connect, in node order: the servers, or relays in front of them.
    addrs: Vec<SocketAddr>,
}

/// The contenders and their reports, round by round.
#[derive(Debug)]
pub(crate) struct Contest {
    pub(crate) entries: Vec<Entry>,
    /// The contenders that could not take part, and why.
    pub(crate) missing: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) library: Library,
    rounds: Vec<Round>,
    /// Its processes; none after it failed.
    peers: Vec<Peer>,
}

/// Who takes part: a client, and the program that runs it if it is one of the Rust clients.
#[derive(Debug, Clone)]
pub(crate) struct Contender {
    pub(crate) library: Library,
    program: PathBuf,
    /// The number of its database: two builds may have two formats of records.
    database: usize,
}

impl Contender {
    /// `library` as this program runs it.
    pub(crate) fn of_this_program(library: Library) -> Self {
        let program = env::current_exe().expect("this program");
        Self {
            library,
            program,
            database: 0,
        }
    }

    /// Builds of ringfence, each with a database of its own.
    pub(crate) fn of_builds(programs: &[PathBuf]) -> Vec<Self> {
        let builds = programs.iter().cloned().enumerate();
        builds
            .map(|(database, program)| Self {
                library: Library::Ringfence,
                program,
                database,
            })
            .collect()
    }
}

/// What a contender reported, and what it cost.
#[derive(Debug)]
struct Round {
    report: Report,
    cost: PerLock,
}

impl Arena {
    pub(crate) fn with_nodes(nodes: usize) -> Self {
        let fleet = Fleet::start(nodes);
        let addrs = fleet.iter().map(Server::addr).collect();
        Self { fleet, addrs }
    }

    /// As many servers as there are distances, each that far away.
    pub(crate) fn behind(distances: &[Distance]) -> Self {
        let fleet = Fleet::start(distances.len());
        let far = fleet.iter().zip(distances).zip(1..);
        let addrs = far
            .map(|((server, distance), seed)| {
                distance::relay_to(server.addr(), *distance, seed << 32)
            })
            .collect();
        Self { fleet, addrs }
    }

    /// Starts `library` in its own process.
    pub(crate) fn start(&self, library: Library) -> Result<Peer, Missing> {
        self.start_contender(&Contender::of_this_program(library))
    }

    fn start_contender(&self, contender: &Contender) -> Result<Peer, Missing> {
        let library = contender.library;
        // These servers have only just started.
        let parameters = match library {
            Library::Ringfence | Library::RingfencePlain => "?quarantine=off",
            _ => "",
        };
        let database = contender.database;
        let urls = self
            .addrs
            .iter()
            .map(|addr| format!("redis://{addr}/{database}{parameters}"));
        let urls = urls.collect::<Vec<_>>().join(",");
        let mut rust = Command::new(&contender.program);
        rust.arg("serve");
        Peer::start(library, &urls, &rust)
    }

    /// Begins to measure the cost of `peers` and the servers.
    pub(crate) fn meter(&self, peers: &[Peer]) -> Meter {
        Meter::start(peers.iter().map(Peer::pid), self.pids())
    }

    /// The servers' processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.fleet.iter().map(|server| server.pid())
    }

    /// Runs `command` with each of `libraries` in turn. Clients that support one node take part only
    /// if there is one.
    pub(crate) fn contest(&self, libraries: &[Library], rounds: usize, command: &str) -> Contest {
        self.contest_of_processes(libraries, 1, rounds, command)
    }

    /// The same with several processes of each client, which run `command` at the same time.
    pub(crate) fn contest_of_processes(
        &self,
        libraries: &[Library],
        processes: usize,
        rounds: usize,
        command: &str,
    ) -> Contest {
        let single = self.fleet.iter().count() == 1;
        let fit = libraries
            .iter()
            .filter(|library| single || !library.is_single());
        let contenders: Vec<Contender> = fit.copied().map(Contender::of_this_program).collect();
        self.contest_of(&contenders, processes, rounds, command)
    }

    /// Runs `command` with each of `contenders` in turn, `rounds` times after one warm-up round,
    /// with a different one first each time.
    pub(crate) fn contest_of(
        &self,
        contenders: &[Contender],
        processes: usize,
        rounds: usize,
        command: &str,
    ) -> Contest {
        let mut missing = Vec::new();
        let mut entries = Vec::new();
        for (place, contender) in contenders.iter().enumerate() {
            let library = contender.library;
            let peers = (0..processes).map(|_| self.start_contender(contender));
            match peers.collect() {
                Ok(peers) => entries.push((
                    place,
                    Entry {
                        library,
                        rounds: Vec::new(),
                        peers,
                    },
                )),
                Err(why) => missing.push(format!("missing: {library}: {why}")),
            }
        }
        for round in 0..=rounds {
            // A contender after a runtime that is still compiling is at a disadvantage, so the
            // order changes.
            if !entries.is_empty() {
                entries.rotate_left(1);
            }
            for (_, entry) in &mut entries {
                if entry.peers.is_empty() {
                    continue;
                }
                let meter = self.meter(&entry.peers);
                let commands = vec![command.to_owned(); processes];
                match run_together(&mut entry.peers, &commands) {
                    // The first round opens connections, loads scripts and warms up compilers.
                    Ok(_) if round == 0 => {}
                    Ok(report) => {
                        let cost = meter.per_lock(report.total());
                        entry.rounds.push(Round { report, cost });
                    }
                    Err(failure) => {
                        missing.push(format!("failed: {}: {failure}", entry.library));
                        entry.peers.clear();
                    }
                }
            }
        }
        entries.sort_by_key(|(place, _)| *place);
        let entries = entries.into_iter().map(|(_, entry)| entry).collect();
        Contest { entries, missing }
    }
}

/// Runs one of `commands` in each process, all at once.
pub(crate) fn run_together(peers: &mut [Peer], commands: &[String]) -> Result<Report, String> {
    let reports: Result<Vec<Report>, String> = thread::scope(|scope| {
        let running = peers.iter_mut().zip(commands);
        let running: Vec<_> = running
            .map(|(peer, command)| scope.spawn(|| peer.run_within(PATIENCE, command)))
            .collect();
        let joined = running.into_iter().map(|run| run.join().expect("no panic"));
        joined.collect()
    });
    Ok(Report::together(reports?))
}

impl Contest {
    /// What a lock and its release cost, in microseconds of a core: where the time of the other
    /// figures is spent.
    pub(crate) fn costs(&self, key: &'static str, workload: String) -> Sheet {
        let title = format!("What they cost, in µs of a core per lock + release: {workload}");
        let mut sheet = Sheet::new(key, title, &["both", "client", "servers"]);
        for entry in &self.entries {
            let cells = vec![
                Cell::of(entry.each_cost(|cost| cost.client_us + cost.servers_us)),
                Cell::of(entry.each_cost(|cost| cost.client_us)),
                Cell::of(entry.each_cost(|cost| cost.servers_us)),
            ];
            sheet.row(entry.library.name(), cells);
        }
        sheet
    }
}

impl Entry {
    /// One figure of each round.
    pub(crate) fn each(&self, figure: impl Fn(&Report) -> f64) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| figure(&round.report))
    }

    pub(crate) fn each_cost(&self, cost: impl Fn(&PerLock) -> f64) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| cost(&round.cost))
    }
}
