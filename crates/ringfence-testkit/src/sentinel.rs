//! A master with replicas and the Sentinels that watch it, all real, with short timeouts.

mod view;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::binary::Flavor;
use crate::builder::ServerBuilder;
use crate::certificates::Certificates;
use crate::network::Network;
use crate::server::{ADMIN, Server};
use crate::wait::{Patience, wait_until};

use view::{address_named_by, hasten, is_in_sync, role_of, view, votes_for};

/// How long a group may take to agree, and a failover to finish, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a planned failover may take before it is begun again.
const FAILOVER_WITHIN: Duration = Duration::from_secs(15);
/// Periods of a Sentinel in milliseconds. Its own are made for networks and take several seconds
/// per failover. A Sentinel that finds its own clock late trusts nothing for a while (TILT); on a
/// busy machine that would happen all the time. Four publish periods must be longer than a failover:
/// after that time a Sentinel that has not heard of it makes the new master a replica again. Five
/// ping periods must be longer than a second: a Sentinel asks the replicas of a dead master for INFO
/// every second, and promotes none whose last INFO is older than five ping periods.
const PERIODS: [(&str, &str); 7] = [
    ("INFO-PERIOD", "200"),
    ("PING-PERIOD", "300"),
    ("ASK-PERIOD", "100"),
    ("PUBLISH-PERIOD", "1000"),
    ("TILT-TRIGGER", "600000"),
    ("SLAVE-RECONF-TIMEOUT", "1000"),
    ("MIN-LINK-RECONNECT-PERIOD", "1000"),
];

/// Servers of which one is the master, and the Sentinels that watch them. Dropping it ends all of
/// them.
#[derive(Debug)]
pub struct SentinelGroup {
    builder: SentinelGroupBuilder,
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

/// A group that is not started yet.
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct SentinelGroupBuilder {
    flavor: Flavor,
    replicas: usize,
    sentinels: usize,
    down_after: Duration,
    failover_timeout: Duration,
    password: Option<String>,
    sentinel_password: Option<String>,
    certificates: Option<Certificates>,
    network: Option<Arc<Network>>,
}

impl SentinelGroupBuilder {
    /// How many replicas the master has at first; two by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// How many Sentinels there are; three by default. A majority of them decides.
    pub fn sentinels(mut self, sentinels: usize) -> Self {
        self.sentinels = sentinels;
        self
    }

    /// After which silence a Sentinel holds a server for dead; one second by default.
    pub fn down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// The password of the default user on the servers.
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// The password of the default user on the Sentinels.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Only TLS, on the servers and on the Sentinels.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// Places each process on a host of `network`: first the servers, then the Sentinels.
    pub fn network(mut self, network: &Arc<Network>) -> Self {
        self.network = Some(Arc::clone(network));
        self
    }

    /// Starts all of it, and waits until all Sentinels know each other and every server.
    ///
    /// # Panics
    /// If a program is not installed or does not start, or if the Sentinels do not agree.
    pub fn start(self) -> SentinelGroup {
        let master = self.server(0).start();
        self.attach(0, &master);
        let replicas: Vec<Server> = thread::scope(|scope| {
            let start = |host| self.server(host).replica_of(&master).start();
            let starting: Vec<_> = (1..=self.replicas)
                .map(|host| scope.spawn(move || start(host)))
                .collect();
            let started = starting.into_iter().map(|start| start.join());
            let started = started.map(|replica| replica.expect("a replica did not start"));
            started.collect()
        });
        let servers: Vec<Server> = std::iter::once(master).chain(replicas).collect();
        for (host, server) in servers.iter().enumerate().skip(1) {
            self.attach(host, server);
        }
        let sentinels = (0..self.sentinels).map(|number| {
            let host = servers.len() + number;
            let sentinel = self.sentinel(host, &servers[0]);
            self.attach(host, &sentinel);
            sentinel
        });
        let group = SentinelGroup {
            sentinels: sentinels.collect(),
            servers,
            builder: self,
        };
        if group.builder.network.is_some() {
            // A Sentinel may have connected to another one before there was a proxy for it.
            for sentinel in &group.sentinels {
                sentinel.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        }
        group.wait_until_settled();
        group
    }

    /// The server joins the network, if there is one.
    fn attach(&self, host: usize, server: &Server) {
        if let Some(network) = &self.network {
            network.attach(host, server);
        }
    }

    /// Settings of a process on `host`.
    fn on_host(&self, host: usize) -> ServerBuilder {
        let mut builder = Server::builder(self.flavor);
        if let Some(network) = &self.network {
            for (name, value) in network.environment(host) {
                builder = builder.env(&name, &value);
            }
        }
        builder
    }

    fn server(&self, host: usize) -> ServerBuilder {
        let mut builder = self.on_host(host).may_follow();
        if let Some(password) = &self.password {
            builder = builder.requirepass(password);
        }
        match &self.certificates {
            Some(certificates) => builder.tls(certificates).arg("--tls-replication", "yes"),
            None => builder,
        }
    }

    fn sentinel(&self, host: usize, master: &Server) -> Server {
        let service = SentinelGroup::SERVICE;
        let quorum = self.sentinels / 2 + 1;
        let configuration = format!(
            "sentinel monitor {service} 127.0.0.1 {} {quorum}\n\
             sentinel down-after-milliseconds {service} {}\n\
             sentinel failover-timeout {service} {}\n\
             sentinel parallel-syncs {service} 10\n\
             sentinel auth-user {service} {ADMIN}\n\
             sentinel auth-pass {service} {ADMIN}\n\
             sentinel sentinel-user {ADMIN}\n\
             sentinel sentinel-pass {ADMIN}",
            master.port(),
            self.down_after.as_millis(),
            self.failover_timeout.as_millis(),
        );
        let mut builder = self.on_host(host).sentinel(configuration);
        if let Some(password) = &self.sentinel_password {
            builder = builder.requirepass(password);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder.tls(certificates).arg("--tls-replication", "yes");
        }
        let sentinel = builder.start();
        hasten(&sentinel);
        sentinel
    }
}

impl SentinelGroup {
    /// The name of the master's service at the Sentinels.
    pub const SERVICE: &'static str = "orders";

    /// Starts a master with two replicas and three Sentinels.
    pub fn start(flavor: Flavor) -> Self {
        Self::builder(flavor).start()
    }

    /// The settings of a group to be started.
    pub fn builder(flavor: Flavor) -> SentinelGroupBuilder {
        SentinelGroupBuilder {
            flavor,
            replicas: 2,
            sentinels: 3,
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(3),
            password: None,
            sentinel_password: None,
            certificates: None,
            network: None,
        }
    }

    /// The URL of the group for a client, with the passwords of both kinds.
    pub fn url(&self) -> String {
        let ports: Vec<u16> = self.sentinels.iter().map(Server::port).collect();
        self.url_at(&ports)
    }

    /// The URL of the group for a client that reaches Sentinels at `ports` of the loopback
    /// interface, such as those of proxies.
    pub fn url_at(&self, ports: &[u16]) -> String {
        let scheme = match &self.builder.certificates {
            Some(_) => "rediss+sentinel",
            None => "redis+sentinel",
        };
        let password = self.builder.password.as_ref();
        let password = password.map_or_else(String::new, |password| format!(":{password}@"));
        let hosts: Vec<String> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let query = match &self.builder.sentinel_password {
            Some(password) => format!("?sentinel_password={password}"),
            None => String::new(),
        };
        format!(
            "{scheme}://{password}{}/{}{query}",
            hosts.join(","),
            Self::SERVICE
        )
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// All servers, whatever their role.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The master, by the word of most Sentinels that answer.
    ///
    /// # Panics
    /// If no server is named by a majority.
    pub fn master(&self) -> &Server {
        self.find_master()
            .expect("no master is named by a majority of the Sentinels")
    }

    /// The servers that are not the master.
    pub fn replicas(&self) -> impl Iterator<Item = &Server> {
        let master = self.master().port();
        self.servers
            .iter()
            .filter(move |server| server.port() != master)
    }

    /// A planned failover (`SENTINEL FAILOVER`). Waits until a majority of the Sentinels names
    /// another master, and that server serves as one.
    pub fn fail_over(&self) {
        let before = self.master().port();
        self.begin_failover();
        // On a busy machine a Sentinel may give a failover up, and does not begin it again by itself.
        let mut patience = Patience::new(FAILOVER_WITHIN);
        wait_until("the Sentinels to name another master", LIMIT, || {
            if patience.is_over() && !self.is_new_master_named(before) {
                self.begin_failover();
                patience = Patience::new(FAILOVER_WITHIN);
            }
            self.has_new_master(before)
        });
    }

    /// A Sentinel refuses while it still reconfigures replicas after the last failover.
    fn begin_failover(&self) {
        wait_until("a Sentinel to begin a failover", LIMIT, || {
            let mut sentinels = self.sentinels.iter();
            sentinels.any(|sentinel| {
                sentinel
                    .try_command(&["SENTINEL", "FAILOVER", Self::SERVICE])
                    .is_ok()
            })
        });
    }

    /// Whether any Sentinel names another master than the one at `port`.
    fn is_new_master_named(&self, port: u16) -> bool {
        let address = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE];
        self.sentinels.iter().any(|sentinel| {
            let named = sentinel.try_command(&address);
            named.is_ok_and(|named| !named.contains(&port.to_string()))
        })
    }

    /// Waits until a majority of the Sentinels names another master than the one at `port`, and
    /// that server serves as one.
    pub fn wait_for_new_master(&self, port: u16) {
        wait_until("the Sentinels to name another master", LIMIT, || {
            self.has_new_master(port)
        });
    }

    /// Whether a majority of the Sentinels names another master than the one at `port`, and that
    /// server serves as one.
    pub fn has_new_master(&self, port: u16) -> bool {
        self.find_master().is_some_and(|master| {
            master.port() != port && role_of(master).as_deref() == Some("master")
        })
    }

    /// Waits until the group [is settled](Self::is_settled).
    pub fn wait_until_settled(&self) {
        wait_until("the Sentinels to agree", LIMIT, || self.is_settled());
    }

    /// Whether all Sentinels that run know each other and name the same master, and all servers
    /// that run have their roles.
    pub fn is_settled(&self) -> bool {
        let running = self.sentinels.iter().filter(|one| one.is_running());
        let views: Option<Vec<_>> = running.map(view).collect();
        let (Some(views), Some(master)) = (views, self.find_master()) else {
            return false;
        };
        let port = master.port().to_string();
        let others = (self.sentinels.len() - 1).to_string();
        let replicas = (self.servers.len() - 1).to_string();
        let agree = views.iter().all(|view| {
            view.port == port
                && view.epoch == views[0].epoch
                && view.others == others
                && view.replicas == replicas
        });
        let mut running = self.servers.iter().filter(|one| one.is_running());
        let follow = running.all(|server| server.port() == master.port() || is_in_sync(server));
        agree && follow && role_of(master).as_deref() == Some("master")
    }

    /// The latest configuration epoch that a running Sentinel has: every failover has a new one.
    pub fn epoch(&self) -> Option<u64> {
        let epochs = self.sentinels.iter().filter_map(view);
        epochs.filter_map(|view| view.epoch.parse().ok()).max()
    }

    /// Starts a Sentinel again that was killed.
    pub fn restart_sentinel(&self, index: usize) {
        self.sentinels[index].restart();
        hasten(&self.sentinels[index]);
    }

    fn find_master(&self) -> Option<&Server> {
        let named: Vec<String> = self.sentinels.iter().filter_map(address_named_by).collect();
        let most = self
            .servers
            .iter()
            .max_by_key(|server| votes_for(server, &named))?;
        (votes_for(most, &named) > self.sentinels.len() / 2).then_some(most)
    }
}
