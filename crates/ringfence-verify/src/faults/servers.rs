//! The servers of a run, their clocks, and the network between each client and each server.

use std::error::Error;
use std::thread;
use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{
    Certificates, DiskSync, Fault, Flavor, Fleet, Persistence, Proxy, Server, ServerBuilder,
    WallClock,
};

use super::plan::Targets;
use super::planned::{FaultKind, PlannedFault};
use super::processes::Launch;

/// How many client processes run at the same time.
pub(super) const CLIENTS: usize = 4;
/// As small as possible, so that a node that forgot votes again within a run.
const WINDOW: Duration = Duration::from_millis(500);
/// At least `2w + S`; the longest TTL is five seconds less.
const QUARANTINE: Duration = Duration::from_secs(7);
/// The client that uses the blocking API.
const BLOCKING: usize = 3;
/// The clients that are never killed in a soak: one of each API.
pub(super) const LASTING: [usize; 2] = [0, BLOCKING];

#[derive(Debug)]
pub(super) struct Servers {
    // Before the fleet: fields are dropped in order, and a proxy without its server logs errors.
    proxies: Vec<Vec<Proxy>>,
    pub(super) fleet: Fleet,
    clocks: Vec<WallClock>,
    syncs: Vec<DiskSync>,
    certificates: Certificates,
    /// Follows one node at a time, and replaces it for a while.
    standby: Server,
    pub(super) store: Server,
}

impl Servers {
    /// Starts everything and initialises the nodes.
    pub(super) fn start(nodes: usize, flavors: &[Flavor]) -> Result<Self, Box<dyn Error>> {
        let clocks: Vec<WallClock> = (0..nodes).map(|_| WallClock::ahead_by(0)).collect();
        let syncs: Vec<DiskSync> = (0..nodes).map(|_| DiskSync::new()).collect();
        let certificates = Certificates::generate();
        let fleet = Fleet::start_with(nodes, |node| {
            let flavor = flavors[node % flavors.len()];
            let server = with_tls(Server::builder(flavor), flavor, &certificates);
            let server = server.wall_clock(&clocks[node]);
            match is_durable(node) {
                true => server
                    .persistence(Persistence::AofAlways)
                    .disk_sync(&syncs[node]),
                false => server,
            }
        });
        let to_each = |_| fleet.iter().map(Proxy::in_front_of).collect();
        let proxies = (0..CLIENTS).map(to_each).collect();
        let servers = Self {
            proxies,
            // All nodes that it may follow are of this flavor: see `is_durable`.
            standby: with_tls(Server::builder(flavors[0]), flavors[0], &certificates).start(),
            store: Server::start(Flavor::Redis),
            fleet,
            clocks,
            syncs,
            certificates,
        };
        servers.init()?;
        Ok(servers)
    }

    fn init(&self) -> Result<(), Box<dyn Error>> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let urls = self.urls(self.fleet.iter().map(Server::url));
        let builder = Locks::builder().nodes(&urls);
        let builder = builder.window(WINDOW).quarantine(QUARANTINE);
        let runtime = runtime.enable_all().build()?;
        runtime.block_on(builder.init())?;
        Ok(())
    }

    pub(super) fn targets(&self, soak: bool) -> Targets {
        let lasting: &[usize] = if soak { &LASTING } else { &[] };
        Targets {
            durable: (0..self.clocks.len()).map(is_durable).collect(),
            clients: CLIENTS,
            lasting: lasting.to_vec(),
        }
    }

    /// The number of keys on each node that answers.
    pub(super) fn keys(&self) -> Vec<u64> {
        let running = self.fleet.iter().filter(|server| server.is_running());
        let sizes = running.filter_map(|server| server.try_command(&["DBSIZE"]).ok());
        sizes.filter_map(|size| size.trim().parse().ok()).collect()
    }

    /// How to start each client, with the URLs of its own proxies.
    pub(super) fn launches(&self) -> Vec<Launch> {
        let launch = |(index, proxies): (usize, &Vec<Proxy>)| Launch {
            nodes: self.urls(proxies.iter().map(Proxy::url)),
            store: self.store.url(),
            blocking: index == BLOCKING,
            ..Launch::default()
        };
        self.proxies.iter().enumerate().map(launch).collect()
    }

    /// The nodes' URLs for a client, which trusts the authority of those with TLS.
    fn urls(&self, urls: impl Iterator<Item = String>) -> String {
        let authority = self.certificates.authority_file();
        let urls = urls.map(|url| match url.starts_with("rediss:") {
            true => format!("{url}?ca={}", authority.display()),
            false => url,
        });
        urls.collect::<Vec<_>>().join(",")
    }

    /// Begins a fault of a server or the network.
    pub(super) fn begin(&self, fault: &PlannedFault) {
        for &node in &fault.nodes {
            let server = &self.fleet[node];
            match fault.kind {
                FaultKind::CrashForgetting | FaultKind::CrashDurable | FaultKind::PowerCut => {
                    server.kill()
                }
                FaultKind::SyncFails => {
                    self.syncs[node].fail(true);
                    // It ends at the next write, which is this one at the latest.
                    let _ = server.try_command(&["PSETEX", "ringfence:sync", "1", ""]);
                }
                FaultKind::ServerPause => server.pause(),
                FaultKind::Flush => drop(server.try_command(&["FLUSHALL"])),
                FaultKind::FailBack => {
                    self.standby.follow(server);
                    self.standby.promote();
                }
                FaultKind::ClockJump | FaultKind::BlindJump => self.clocks[node].set(fault.by_us),
                _ => {}
            }
        }
        for proxy in self.links(fault) {
            match fault.kind {
                FaultKind::Cut => proxy.cut(),
                FaultKind::Refuse => proxy.refuse(),
                FaultKind::Delay => {
                    let by = Duration::from_micros(fault.by_us.unsigned_abs());
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
    pub(super) fn end(&self, fault: &PlannedFault) {
        // In parallel: after a power cut all servers restart together.
        thread::scope(|scope| {
            for &node in &fault.nodes {
                let (server, clock) = (&self.fleet[node], &self.clocks[node]);
                match fault.kind {
                    FaultKind::CrashForgetting | FaultKind::CrashDurable | FaultKind::PowerCut => {
                        scope.spawn(|| server.restart());
                    }
                    FaultKind::SyncFails => {
                        server.kill();
                        self.syncs[node].fail(false);
                        server.lose_writes_after(self.syncs[node].synced());
                        server.restart();
                    }
                    FaultKind::ServerPause => server.resume(),
                    FaultKind::FailBack => {
                        server.follow(&self.standby);
                        server.promote();
                    }
                    FaultKind::ClockJump | FaultKind::BlindJump => clock.set(0),
                    _ => {}
                }
            }
        });
        self.links(fault).for_each(Proxy::pass);
    }

    /// The proxies that a network fault affects.
    fn links<'a>(&'a self, fault: &'a PlannedFault) -> impl Iterator<Item = &'a Proxy> {
        let of_network = fault.kind.is_of_network();
        let clients = (0..CLIENTS)
            .filter(move |client| of_network && fault.client.is_none_or(|only| only == *client));
        clients.flat_map(move |client| {
            fault
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

/// Redis has TLS. The Valkey that `./verify` installs is built without it.
fn with_tls(server: ServerBuilder, flavor: Flavor, certificates: &Certificates) -> ServerBuilder {
    match flavor {
        Flavor::Redis => server.tls(certificates).arg("--tls-replication", "yes"),
        Flavor::Valkey => server,
    }
}

/// Every other node keeps its data over a crash.
fn is_durable(node: usize) -> bool {
    node % 2 == 1
}

/// Whether a key is a holder or a ticket: not `born`, nor a record that only keeps fences, nor the
/// list of breaks.
fn is_held_or_waited_for(key: &str) -> bool {
    let Some(rest) = key.strip_prefix("ringfence:{") else {
        return key != "ringfence:born";
    };
    let Some((_, rest)) = rest.split_once('}') else {
        return true;
    };
    // The slot of a semaphore is a lock's own key, and its record ends in that key.
    let kinds = [":record:", ":admission:", ":broken:"];
    !kinds.iter().any(|kind| rest.starts_with(kind))
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
            "ringfence:{a}:broken:a",
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
