//! Settings of a client, and the way to its nodes. `settings.rs` checks them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::environment::own_task;
use crate::group::Failover;
use crate::node::Node;
use crate::node::memory::MemoryNode;
#[cfg(feature = "metrics")]
use crate::observation::names::{TEMPLATES_MAX, Templates};
use crate::observation::{Listener, Observation, Observed};
use crate::protocol::Cluster;
use crate::runtime::closing::RuntimeWatch;
use crate::runtime::sender::Sender;
use crate::runtime::{ClientRuntime, keeper, second};
use crate::url::{NodeUrl, RedisUrl, UrlError, parse_nodes};

use super::error::{ConfigError, ConnectError};
use super::handshake;
use super::{Locks, Shared};

/// The largest number of nodes.
const NODES_MAX: usize = 64;

/// The settings of a client. Each has the default that its method names. Clones share the nodes
/// that were given to [`node`](Self::node).
#[derive(Clone, Default)]
pub struct Builder {
    pub(super) urls: Option<String>,
    pub(super) given: Vec<Arc<dyn Node>>,
    pub(super) ttl: Option<Duration>,
    pub(super) wait: Option<Duration>,
    pub(super) no_quorum_after: Option<Duration>,
    pub(super) renew_off: bool,
    pub(super) max_hold: Option<Option<Duration>>,
    pub(super) node_timeout: Option<Duration>,
    pub(super) drift: Option<(f64, Duration)>,
    pub(super) window: Option<Duration>,
    pub(super) quarantine: Option<Duration>,
    pub(super) failover: Option<Failover>,
    pub(super) stale_master: Option<Duration>,
    pub(super) reply_within: Option<Duration>,
    pub(super) prefix: String,
    pub(super) label: Option<String>,
    look_only: bool,
    pub(super) never_joins: bool,
    pub(super) replica_clocks: bool,
    pub(super) clock: Clock,
    entropy: Entropy,
    pub(super) observed: Observed,
    #[cfg(feature = "metrics")]
    pub(super) metric_names: Vec<String>,
}

/// A node, and whether it has to wait after it forgot.
struct Member {
    node: Arc<dyn Node>,
    quarantines: bool,
}

impl Builder {
    /// The nodes, as URLs separated by commas: `redis://`, `rediss://`, `valkey://`,
    /// `redis+unix://`, `redis+sentinel://HOST,HOST,HOST/SERVICE`, or one `sqlite:PATH` or `memory:`.
    #[must_use]
    pub fn nodes(mut self, urls: &str) -> Self {
        self.urls = Some(urls.to_owned());
        self
    }

    /// One more node, of your own making or with a connection of your own.
    #[must_use]
    pub fn node(mut self, node: impl Node) -> Self {
        self.given.push(Arc::new(node));
        self
    }

    /// The TTL of locks that do not set their own. Default 10 s; 50 ms to the cluster's longest.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long calls of this client wait while other clients hold the lock; `None`, the default, is
    /// without a limit. A lock can set its own: [`Lock::wait`](crate::Lock::wait).
    #[must_use]
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// How long calls go on while no majority of the nodes answers. Default 15 s, or the wait if that
    /// is shorter. A lock can set its own: [`Lock::no_quorum_after`](crate::Lock::no_quorum_after).
    #[must_use]
    pub fn no_quorum_after(mut self, span: Duration) -> Self {
        self.no_quorum_after = Some(span);
        self
    }

    /// Whether locks renew themselves while their guards live. Default yes. A lock can set its own:
    /// [`Lock::renew`](crate::Lock::renew).
    #[must_use]
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew_off = !renew;
        self
    }

    /// For how long a lock may be held in all, renewals included; `None` lifts the bound. Default
    /// one hour, or the TTL if that is longer. It does not count for elections. A lock can set its
    /// own: [`Lock::max_hold`](crate::Lock::max_hold).
    #[must_use]
    pub fn max_hold(mut self, max_hold: impl Into<Option<Duration>>) -> Self {
        self.max_hold = Some(max_hold.into());
        self
    }

    /// How long a node may take to answer. Default a tenth of the TTL, between 20 ms and 1 s. A
    /// long one delays verdicts when nodes hang; a short one turns slow nodes into dead ones.
    #[must_use]
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// How differently clocks may run: a fraction of the TTL (0 to 0.25) and a fixed part. Default
    /// 0.01 and 2 ms. Danger: below what your clocks really do, two holders may overlap.
    #[must_use]
    pub fn drift(mut self, fraction: f64, fixed: Duration) -> Self {
        self.drift = Some((fraction, fixed));
        self
    }

    /// How far a node's clock may be from the others'. Default: the group's, or 5 s. All clients
    /// of a group must agree.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// How long a node that may have forgotten locks does not vote. Default: the group's, or 35 s,
    /// which is 37 s in force: 1 % for the clocks and a second come on top. All clients of a group
    /// must agree; the longest TTL of a quorum is the setting less 5 s.
    #[must_use]
    pub fn quarantine(mut self, quarantine: Duration) -> Self {
        self.quarantine = Some(quarantine);
        self
    }

    /// What a failover behind a single server costs. Default: the group's, or
    /// [`Failover::Auto`]: a server that is replicated grants nothing for a whole quarantine after
    /// a promotion, and holders keep their locks. All clients of a group must agree.
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = Some(failover);
        self
    }

    /// Within which time after a promotion the former master must have stopped serving. Default:
    /// the group's, or 5 s. All clients of a group must agree. The longest TTL of a single server
    /// with a failover behind it is the quarantine less this. Danger: below what your service
    /// really does, two holders may overlap.
    #[must_use]
    pub fn stale_master(mut self, stale_master: Duration) -> Self {
        self.stale_master = Some(stale_master);
        self
    }

    /// A grant of a single server with a failover behind it counts only if its reply is read within
    /// this time. Default: the group's, or 1 s. All clients of a group must agree.
    #[must_use]
    pub fn reply_within(mut self, reply_within: Duration) -> Self {
        self.reply_within = Some(reply_within);
        self
    }

    /// Put before every name. Default none.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// The label of all holders of this client, for people. Default: `host:pid`.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.label = Some(label.to_owned());
        self
    }

    /// Connects to look only: inspections work, locks cannot be taken. An embedded file is neither
    /// created nor written. Default off.
    #[must_use]
    pub fn look_only(mut self) -> Self {
        self.look_only = true;
        self
    }

    /// Connects to look only, as [`look_only`](Self::look_only), and writes nothing to servers either:
    /// they get no birth record. So a server that no other client has met since it started does not
    /// vote, and its quarantine does not begin. Default off.
    #[must_use]
    pub fn without_joining(mut self) -> Self {
        (self.look_only, self.never_joins) = (true, true);
        self
    }

    /// The clock that durations are measured on. Default the system's; a test may step its own.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of random bytes, tokens included. Default: the operating system's generator.
    /// A simulation that must run the same way again uses [`Entropy::seeded`]. A program that locks
    /// something must not.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn entropy(mut self, entropy: Entropy) -> Self {
        self.entropy = entropy;
        self
    }

    /// Connects. Succeeds once a majority has answered, or after two seconds.
    ///
    /// # Errors
    /// If a setting is not allowed, or if a majority of the nodes is not fit to hold locks.
    pub async fn connect(self) -> Result<Locks, ConnectError> {
        let locks = self.prepare()?;
        handshake::connect(&locks).await?;
        Ok(locks)
    }

    /// Checks everything and starts the nodes, without waiting for them.
    pub(super) fn prepare(self) -> Result<Locks, ConnectError> {
        handshake::with_timer_for(&self.clock)?;
        let settings = self.settings()?;
        let observed = self.observed()?;
        let members = self.open_nodes()?;
        let quarantines: Vec<bool> = members.iter().map(|member| member.quarantines).collect();
        let nodes: Vec<_> = members.into_iter().map(|member| member.node).collect();
        let names: Vec<String> = nodes.iter().map(|node| node.name().to_owned()).collect();
        let group = settings.wishes.of_new_group(nodes.len());
        let mut cluster = Cluster::new(&group, settings.drift, &quarantines);
        for (node, _) in nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.leases_follow_clock())
        {
            cluster.leases_use_other_clock(node);
        }
        for (node, _) in nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.needs_confirmation())
        {
            cluster.require_confirmation(node);
        }
        let observation = Observation::new(&nodes, observed)
            .map_err(|error| ConnectError::Thread(Arc::new(error)))?;
        let sender = Sender::new(nodes, cluster, self.clock, observation);
        let runtime = Arc::new(ClientRuntime::new(sender, self.entropy));
        let (watch, schedule) = (RuntimeWatch::of(&runtime), Arc::clone(&runtime.schedule));
        let keeper = keeper::keep(Arc::downgrade(&runtime), schedule, watch);
        tokio::spawn(own_task(keeper));
        if !self.look_only {
            second::watch(&runtime).map_err(|error| ConnectError::Thread(Arc::new(error)))?;
        }
        Ok(Locks {
            shared: Arc::new(Shared {
                runtime,
                settings,
                names,
            }),
        })
    }

    fn open_nodes(&self) -> Result<Vec<Member>, ConnectError> {
        let given = self.given.iter().map(|node| Member {
            node: Arc::clone(node),
            quarantines: true,
        });
        let mut members: Vec<Member> = given.collect();
        if let Some(urls) = &self.urls {
            let urls = parse_nodes(urls).map_err(ConfigError::from)?;
            if let Some(scheme) = urls.iter().find_map(embedded)
                && !self.given.is_empty()
            {
                return Err(ConfigError::Url(UrlError::Embedded(scheme)).into());
            }
            let quarantines: Vec<bool> = urls.iter().map(quarantines_after_restart).collect();
            let nodes = open(urls, &self.clock, self.look_only, self.never_joins)?
                .into_iter()
                .zip(quarantines);
            members.extend(nodes.map(|(node, quarantines)| Member { node, quarantines }));
        }
        if members.is_empty() {
            return Err(ConfigError::NoNodes.into());
        }
        if members.len() > NODES_MAX {
            let (nodes, most) = (members.len(), NODES_MAX);
            return Err(ConfigError::TooManyNodes { nodes, most }.into());
        }
        Ok(members)
    }
}

impl Builder {
    /// Receives what happens to the locks of this client, on a thread of its own. Default: none. A
    /// listener that is slow or panics harms no lock: see [`Listener`].
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.observed.listener = Some(listener);
        self
    }

    /// Which locks have a `name` label in the metrics. Default: none.
    ///
    /// A template is a lock's name, without the [prefix](Self::prefix), in which `{}` stands for
    /// some text. A lock that fits `orders:{}` has the label `name="orders:{}"`: the template, not
    /// its own name. So there are at most as many values as templates, and at most 64 templates. A
    /// lock that fits several has the first; a lock over several names must fit with all of them.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metric_names<S: Into<String>>(mut self, templates: impl IntoIterator<Item = S>) -> Self {
        self.metric_names = templates.into_iter().map(Into::into).collect();
        self
    }

    /// Whether the span `lock acquire` has the names of locks, which may be data of your users.
    /// Default no.
    #[must_use]
    pub fn trace_names(mut self, names: bool) -> Self {
        self.observed.trace_names = names;
        self
    }

    #[cfg(feature = "metrics")]
    pub(super) fn observed(&self) -> Result<Observed, ConfigError> {
        let names = self.metric_names.clone();
        let (given, most) = (names.len(), TEMPLATES_MAX);
        let templates = Templates::new(names);
        Ok(Observed {
            templates: templates.ok_or(ConfigError::TooManyMetricNames { given, most })?,
            ..self.observed.clone()
        })
    }

    #[cfg(not(feature = "metrics"))]
    pub(super) fn observed(&self) -> Result<Observed, ConfigError> {
        Ok(self.observed.clone())
    }
}

/// The nodes that `urls` name: servers, or one that lives on this machine and is alone.
fn open(
    urls: Vec<NodeUrl>,
    clock: &Clock,
    look_only: bool,
    never_joins: bool,
) -> Result<Vec<Arc<dyn Node>>, ConnectError> {
    #[cfg(not(feature = "sqlite"))]
    let _ = look_only;
    let mut nodes: Vec<Arc<dyn Node>> = Vec::new();
    let mut servers = Vec::new();
    for url in urls {
        match url {
            NodeUrl::Redis(url) => servers.push(url),
            #[cfg(feature = "sqlite")]
            NodeUrl::Sqlite(path) => {
                let of = match look_only {
                    true => crate::node::sqlite::SqliteNode::look,
                    false => crate::node::sqlite::SqliteNode::open,
                };
                nodes.push(Arc::new(of(path, crate::node::NodeClock::of(clock))?));
            }
            #[cfg(not(feature = "sqlite"))]
            NodeUrl::Sqlite(_) => return Err(missing_feature(&url).into()),
            NodeUrl::Memory(label) => nodes.push(Arc::new(MemoryNode::shared_on(&label, clock))),
        }
    }
    if !servers.is_empty() {
        nodes.extend(connect(servers, clock, never_joins)?);
    }
    Ok(nodes)
}

#[cfg(feature = "redis")]
fn connect(
    urls: Vec<RedisUrl>,
    clock: &Clock,
    never_joins: bool,
) -> Result<Vec<Arc<dyn Node>>, ConnectError> {
    let nodes = crate::node::redis::RedisNode::connect_all(urls, clock, never_joins)?.into_iter();
    Ok(nodes.map(|node| Arc::new(node) as Arc<dyn Node>).collect())
}

#[cfg(not(feature = "redis"))]
fn connect(
    mut urls: Vec<RedisUrl>,
    _: &Clock,
    _: bool,
) -> Result<Vec<Arc<dyn Node>>, ConnectError> {
    Err(missing_feature(&NodeUrl::Redis(urls.remove(0))).into())
}

/// The feature that the node of `url` needs.
#[cfg(not(all(feature = "redis", feature = "sqlite")))]
pub(super) fn missing_feature(url: &NodeUrl) -> ConfigError {
    let (node, feature) = match url {
        NodeUrl::Redis(_) => ("Redis nodes", "redis"),
        NodeUrl::Sqlite(_) => ("embedded node", "sqlite"),
        NodeUrl::Memory(_) => ("in-memory node", "client"),
    };
    ConfigError::FeatureMissing { node, feature }
}

/// The scheme of a node that lives on this machine alone, and so must be the only one.
fn embedded(url: &NodeUrl) -> Option<&'static str> {
    match url {
        NodeUrl::Redis(_) => None,
        NodeUrl::Sqlite(_) => Some("sqlite:"),
        NodeUrl::Memory(_) => Some("memory:"),
    }
}

/// Embedded nodes stand alone, so the question does not arise there.
fn quarantines_after_restart(url: &NodeUrl) -> bool {
    match url {
        NodeUrl::Redis(url) => url.quarantine,
        _ => false,
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs: there may be passwords in them.
        f.debug_struct("Builder")
            .field("nodes", &self.urls.as_ref().map(|_| "…"))
            .field("prefix", &self.prefix)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
