//! The servers of a run of failovers, their Sentinels, and the network between all processes.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use ringfence::{Builder, Locks};
use ringfence_testkit::{Fault, Flavor, Network, SentinelGroup, Server};

use super::super::processes::Launch;

const SERVERS: usize = 3;
const SENTINELS: usize = 3;
/// The clients are on two hosts: one that is never cut off with an old master, and one that is.
const NEAR: usize = SERVERS + SENTINELS;
const FAR: usize = NEAR + 1;

/// As small as possible, so that a run has many failovers.
const WINDOW: Duration = Duration::from_millis(500);
const QUARANTINE: Duration = Duration::from_secs(13);
/// `X` and `D`.
const STALE_MASTER: Duration = Duration::from_secs(1);
const REPLY_WITHIN: Duration = Duration::from_millis(500);
/// Two thirds of the long TTL are more than this, the failover itself (about 2 s), `X` and `D`.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// How much validity a holder needs when it can reach the new master.
pub(super) const OVERLAP: Duration = STALE_MASTER.saturating_add(REPLY_WITHIN);

pub(super) struct SentinelServers {
    // First: fields are dropped in order, and a proxy without its server logs errors.
    pub(super) network: Arc<Network>,
    pub(super) group: SentinelGroup,
    pub(super) store: Server,
}

impl SentinelServers {
    /// Starts everything and initialises the group.
    pub(super) fn start(flavor: Flavor) -> Self {
        let network = Arc::new(Network::new(FAR + 1));
        let group = SentinelGroup::builder(flavor)
            .replicas(SERVERS - 1)
            .sentinels(SENTINELS)
            .down_after(DOWN_AFTER)
            .network(&network)
            .start();
        Self {
            network,
            group,
            store: Server::start(Flavor::Redis),
        }
    }

    /// Declares the group new, with the values of the run.
    pub(super) async fn init(&self) -> Result<(), Box<dyn Error>> {
        self.builder().init().await?;
        Ok(())
    }

    /// A client with the values of the run, on no host: it reaches everything.
    pub(super) fn builder(&self) -> Builder {
        Locks::builder()
            .nodes(&self.group.url())
            .window(WINDOW)
            .quarantine(QUARANTINE)
            .stale_master(STALE_MASTER)
            .reply_within(REPLY_WITHIN)
    }

    /// How to start each of `clients` clients: half of them far, half of them near.
    pub(super) fn launches(&self, clients: usize, plain: &Path) -> Vec<Launch> {
        let launch = |index: usize| Launch {
            nodes: self.group.url(),
            store: self.store.url(),
            plain: Some(plain.to_owned()),
            // Both on the near host and on the far one.
            blocking: index % 8 < 2,
            environment: self.network.environment(host_of_client(index)).to_vec(),
        };
        (0..clients).map(launch).collect()
    }

    /// The host of the present master.
    pub(super) fn master_host(&self) -> usize {
        let port = self.group.master().port();
        let servers = self.group.servers().iter();
        { servers }
            .position(|server| server.port() == port)
            .unwrap_or(0)
    }

    /// The hosts of the other servers.
    pub(super) fn replica_hosts(&self, master: usize) -> Vec<usize> {
        (0..SERVERS).filter(|host| *host != master).collect()
    }

    /// Writes the logs of all servers and Sentinels into `folder`.
    pub(super) fn save_logs(&self, folder: &Path) -> io::Result<()> {
        let servers = ("server", self.group.servers());
        let sentinels = ("sentinel", self.group.sentinels());
        for (kind, processes) in [servers, sentinels] {
            for (number, process) in processes.iter().enumerate() {
                let file = format!("{kind}-{}-{}.log", number + 1, process.port());
                fs::write(folder.join(file), process.log())?;
            }
        }
        Ok(())
    }

    /// Loses what a master sends to the Sentinels and the replicas. What they send arrives, and the
    /// master goes on serving all clients.
    pub(super) fn silence(&self, master: usize) {
        let others: Vec<usize> = (0..NEAR).filter(|host| *host != master).collect();
        self.network.replies(master, &others, Fault::BlackHole);
    }

    /// Cuts off a master together with a Sentinel and the far clients.
    pub(super) fn cut_off(&self, master: usize, sentinel: usize) {
        self.network
            .divide(&[master, SERVERS + sentinel % SENTINELS, FAR]);
    }
}

/// Whether the client with this number can be cut off together with an old master.
pub(super) fn is_far(client: u64) -> bool {
    client.is_multiple_of(2)
}

/// Client numbers begin at one.
fn host_of_client(index: usize) -> usize {
    match is_far(index as u64 + 1) {
        true => FAR,
        false => NEAR,
    }
}
