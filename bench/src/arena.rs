//! Servers, and contenders that run on them in turn.

use std::env;
use std::net::SocketAddr;
use std::process::Command;
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
    peer: Option<Peer>,
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
        // These servers have only just started.
        let parameters = match library {
            Library::Ringfence | Library::RingfencePlain => "?quarantine=off",
            _ => "",
        };
        let urls = self
            .addrs
            .iter()
            .map(|addr| format!("redis://{addr}{parameters}"));
        let urls = urls.collect::<Vec<_>>().join(",");
        let mut rust = Command::new(env::current_exe().expect("this program"));
        rust.arg("serve");
        Peer::start(library, &urls, &rust)
    }

    /// Begins to measure the cost of `peer` and the servers.
    pub(crate) fn meter(&self, peer: &Peer) -> Meter {
        Meter::start([peer.pid()], self.pids())
    }

    /// The servers' processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.fleet.iter().map(|server| server.pid())
    }

    /// Runs `command` with each of `libraries` in turn, `rounds` times after one warm-up round,
    /// with a different one first each time. Clients that support one node take part only if there
    /// is one.
    pub(crate) fn contest(&self, libraries: &[Library], rounds: usize, command: &str) -> Contest {
        let single = self.fleet.iter().count() == 1;
        let fit = libraries
            .iter()
            .filter(|library| single || !library.is_single());
        let mut contest = Contest {
            entries: Vec::new(),
            missing: Vec::new(),
        };
        for &library in fit {
            match self.start(library) {
                Ok(peer) => contest.entries.push(Entry {
                    library,
                    rounds: Vec::new(),
                    peer: Some(peer),
                }),
                Err(missing) => contest
                    .missing
                    .push(format!("missing: {library}: {missing}")),
            }
        }
        for round in 0..=rounds {
            // A contender after a runtime that is still compiling is at a disadvantage, so the
            // order changes.
            if !contest.entries.is_empty() {
                contest.entries.rotate_left(1);
            }
            for entry in &mut contest.entries {
                let Some(peer) = &mut entry.peer else {
                    continue;
                };
                let meter = self.meter(peer);
                match peer.run_within(PATIENCE, command) {
                    // The first round opens connections, loads scripts and warms up compilers.
                    Ok(_) if round == 0 => {}
                    Ok(report) => {
                        let cost = meter.per_lock(report.total());
                        entry.rounds.push(Round { report, cost });
                    }
                    Err(failure) => {
                        contest
                            .missing
                            .push(format!("failed: {}: {failure}", entry.library));
                        entry.peer = None;
                    }
                }
            }
        }
        let order = |entry: &Entry| libraries.iter().position(|one| *one == entry.library);
        contest.entries.sort_by_key(order);
        contest
    }
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

    fn each_cost(&self, cost: impl Fn(&PerLock) -> f64) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(move |round| cost(&round.cost))
    }
}
