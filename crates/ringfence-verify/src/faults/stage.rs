//! The servers of a run, their clocks, and the network between each client and each server.

use std::error::Error;
use std::thread;
use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Fault, Flavor, Fleet, Persistence, Proxy, Server, WallClock, wait_until};

use super::crew::Launch;
use super::plan::Targets;
use super::strike::{FaultKind, Strike};

/// How many client processes run at the same time.
pub(super) const CLIENTS: usize = 4;
/// As small as possible, so that a node that forgot votes again within a run.
const WINDOW: Duration = Duration::from_millis(500);
/// At least `2w + S`; the longest TTL is five seconds less.
const QUARANTINE: Duration = Duration::from_secs(7);

/// How long a replica may take to copy the few keys of its master, on a busy machine.
const SYNCED_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Stage {
    // Before the fleet: fields are dropped in order, and a proxy without its server logs errors.
    proxies: Vec<Vec<Proxy>>,
    pub(super) fleet: Fleet,
    clocks: Vec<WallClock>,
    /// Follows one node at a time, and replaces it for a while.
    standby: Server,
    pub(super) store: Server,
}

impl Stage {
    /// Starts everything and initialises the nodes.
    pub(super) fn set(nodes: usize, flavors: &[Flavor]) -> Result<Self, Box<dyn Error>> {
        let clocks: Vec<WallClock> = (0..nodes).map(|_| WallClock::ahead_by(0)).collect();
        let fleet = Fleet::start_with(nodes, |node| {
            let server = Server::builder(flavors[node % flavors.len()]).wall_clock(&clocks[node]);
            match is_durable(node) {
                true => server.persistence(Persistence::AofAlways),
                false => server,
            }
        });
        let to_each = |_| fleet.iter().map(Proxy::in_front_of).collect();
        let proxies = (0..CLIENTS).map(to_each).collect();
        let stage = Self {
            proxies,
            // All nodes that it may follow are of this flavor: see `is_durable`.
            standby: Server::start(flavors[0]),
            store: Server::start(Flavor::Redis),
            fleet,
            clocks,
        };
        stage.init()?;
        Ok(stage)
    }

    fn init(&self) -> Result<(), Box<dyn Error>> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let builder = Locks::builder().nodes(&self.fleet.urls());
        let builder = builder.window(WINDOW).quarantine(QUARANTINE);
        let runtime = runtime.enable_all().build()?;
        runtime.block_on(builder.init(false))?;
        Ok(())
    }

    pub(super) fn targets(&self) -> Targets {
        Targets {
            durable: (0..self.clocks.len()).map(is_durable).collect(),
            clients: CLIENTS,
        }
    }

    /// How to start each client, with the URLs of its own proxies.
    pub(super) fn launches(&self) -> Vec<Launch> {
        let launch = |proxies: &Vec<Proxy>| Launch {
            nodes: proxies.iter().map(Proxy::url).collect::<Vec<_>>().join(","),
            store: self.store.url(),
            ..Launch::default()
        };
        self.proxies.iter().map(launch).collect()
    }

    /// Begins a fault of a server or the network.
    pub(super) fn begin(&self, strike: &Strike) {
        for &node in &strike.nodes {
            let server = &self.fleet[node];
            match strike.kind {
                FaultKind::CrashForgetting | FaultKind::CrashDurable | FaultKind::PowerCut => {
                    server.kill()
                }
                FaultKind::ServerPause => server.pause(),
                FaultKind::Flush => drop(server.try_command(&["FLUSHALL"])),
                FaultKind::FailBack => {
                    follow(&self.standby, server);
                    promote(&self.standby);
                }
                FaultKind::ClockJump | FaultKind::BlindJump => self.clocks[node].set(strike.by_us),
                _ => {}
            }
        }
        for proxy in self.links(strike) {
            match strike.kind {
                FaultKind::Cut => proxy.cut(),
                FaultKind::Refuse => proxy.refuse(),
                FaultKind::Delay => {
                    let by = Duration::from_micros(strike.by_us.unsigned_abs());
                    proxy.requests(Fault::Delay(by));
                    proxy.replies(Fault::Delay(by));
                }
                FaultKind::HalfOpen => {
                    proxy.requests(Fault::BlackHole);
                    proxy.replies(Fault::BlackHole);
                }
                FaultKind::RequestsLost => proxy.requests(Fault::BlackHole),
                FaultKind::RepliesLost => proxy.replies(Fault::BlackHole),
                FaultKind::ResetAfterSend => proxy.replies(Fault::ResetOnce),
                _ => {}
            }
        }
    }

    /// Ends a fault.
    pub(super) fn end(&self, strike: &Strike) {
        // In parallel: after a power cut all servers restart together.
        thread::scope(|scope| {
            for &node in &strike.nodes {
                let (server, clock) = (&self.fleet[node], &self.clocks[node]);
                match strike.kind {
                    FaultKind::CrashForgetting | FaultKind::CrashDurable | FaultKind::PowerCut => {
                        scope.spawn(|| server.restart());
                    }
                    FaultKind::ServerPause => server.resume(),
                    FaultKind::FailBack => {
                        follow(server, &self.standby);
                        promote(server);
                    }
                    FaultKind::ClockJump | FaultKind::BlindJump => clock.set(0),
                    _ => {}
                }
            }
        });
        self.links(strike).for_each(Proxy::pass);
    }

    /// The proxies that a network fault affects.
    fn links<'a>(&'a self, strike: &'a Strike) -> impl Iterator<Item = &'a Proxy> {
        let of_network = strike.kind.is_of_network();
        let clients = (0..CLIENTS)
            .filter(move |client| of_network && strike.client.is_none_or(|only| only == *client));
        clients.flat_map(move |client| {
            strike
                .nodes
                .iter()
                .map(move |&node| &self.proxies[client][node])
        })
    }

    /// The keys of holders and tickets that each node still has: `(node, key)`.
    pub(super) fn remains(&self) -> Vec<(usize, String)> {
        let mut remains = Vec::new();
        for (node, server) in self.fleet.iter().enumerate() {
            remains.extend(remains_on(server).into_iter().map(|key| (node, key)));
        }
        remains
    }
}

/// The keys of holders and tickets that `server` still has.
pub(super) fn remains_on(server: &Server) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let keys = keys.lines().filter(|key| is_held_or_waited_for(key));
    keys.map(str::to_owned).collect()
}

/// Makes `replica` a replica of `master`, and waits until it has copied everything.
fn follow(replica: &Server, master: &Server) {
    let (host, port) = (master.addr().ip().to_string(), master.port().to_string());
    replica.command(&["REPLICAOF", &host, &port]);
    wait_until("the replica to copy its master", SYNCED_WITHIN, || {
        let replication = replica.command(&["INFO", "replication"]);
        replication.contains("master_link_status:up")
    });
}

/// Makes a replica a master without a restart.
fn promote(replica: &Server) {
    replica.command(&["REPLICAOF", "NO", "ONE"]);
}

/// Every other node keeps its data over a crash.
fn is_durable(node: usize) -> bool {
    node % 2 == 1
}

/// Whether a key is a holder or a ticket: not `born`, nor a record that only keeps fences.
fn is_held_or_waited_for(key: &str) -> bool {
    let Some(rest) = key.strip_prefix("ringfence:{") else {
        return key != "ringfence:born";
    };
    let Some((_, rest)) = rest.split_once('}') else {
        return true;
    };
    // The slot of a semaphore is a lock's own key, and its record ends in that key.
    !(rest.starts_with(":record:") || rest.starts_with(":admission:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_and_births_may_remain() {
        for may_remain in [
            "ringfence:born",
            "ringfence:{a}:record:a",
            "ringfence:{pool}:admission:pool",
            "ringfence:{pool}:record:ringfence:{pool}:slot:1:pool",
        ] {
            assert!(!is_held_or_waited_for(may_remain), "{may_remain}");
        }
        for must_go in [
            "a",
            "ringfence:{pool}:slot:1:pool",
            "ringfence:{a}:queue:a",
            "ringfence:{a}:queue-order:a",
            "ringfence:{a}:readers:a",
        ] {
            assert!(is_held_or_waited_for(must_go), "{must_go}");
        }
    }
}
