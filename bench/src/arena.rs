//! Servers, and contenders that take turns on them.

use std::env;
use std::process::Command;
use std::time::Duration;

use ringfence_peers::{Library, Missing, Peer, Report};
use ringfence_testkit::Fleet;

/// No workload here lasts as long, unless its client hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers of this run.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) fleet: Fleet,
}

/// Contenders, each with what it reported round by round.
#[derive(Debug)]
pub(crate) struct Contest {
    pub(crate) entries: Vec<Entry>,
    /// Who could not take part, and why.
    pub(crate) missing: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) library: Library,
    pub(crate) reports: Vec<Report>,
    peer: Option<Peer>,
}

impl Arena {
    pub(crate) fn with_nodes(nodes: usize) -> Self {
        Self {
            fleet: Fleet::start(nodes),
        }
    }

    /// Starts `library` in a process of its own.
    pub(crate) fn start(&self, library: Library) -> Result<Peer, Missing> {
        let urls = match library {
            Library::Ringfence | Library::RingfencePlain => self.fleet.urls_without_quarantine(),
            _ => self.fleet.urls(),
        };
        let mut rust = Command::new(env::current_exe().expect("this program"));
        rust.arg("serve");
        Peer::start(library, &urls, &rust)
    }

    /// Lets `libraries` run `command` in turn, `rounds` times after one to warm up. Those that know
    /// one node only take part only if there is one.
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
                    reports: Vec::new(),
                    peer: Some(peer),
                }),
                Err(missing) => contest
                    .missing
                    .push(format!("missing: {library}: {missing}")),
            }
        }
        for round in 0..=rounds {
            for entry in &mut contest.entries {
                let Some(peer) = &mut entry.peer else {
                    continue;
                };
                match peer.run_within(PATIENCE, command) {
                    // The first makes connections, loads scripts and warms up compilers.
                    Ok(_) if round == 0 => {}
                    Ok(report) => entry.reports.push(report),
                    Err(failure) => {
                        contest
                            .missing
                            .push(format!("failed: {}: {failure}", entry.library));
                        entry.peer = None;
                    }
                }
            }
        }
        contest
    }
}

impl Entry {
    /// One figure of each round.
    pub(crate) fn each(&self, figure: impl Fn(&Report) -> f64) -> impl Iterator<Item = f64> {
        self.reports.iter().map(figure)
    }
}
