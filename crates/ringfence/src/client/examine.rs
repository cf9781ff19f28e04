//! Looks at every node before, instead of or beside using it. Nothing is written: no birth record,
//! no file, and no membership in a group.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::name::Name;
use crate::node::{Examination, Found, Machine, Node};
use crate::protocol::Drift;
use crate::runtime::gather::{all, gather};
use crate::url::{NodeUrl, parse_nodes};

use super::Builder;
use super::error::{ConfigError, ConnectError};

/// How long the name of a host may take to be found, and a node that was handed in to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What every look at a node needs to know.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "servers need it all")
)]
struct Examining {
    nodes: usize,
    drift: Drift,
    clock: Clock,
    wall: crate::node::NodeClock,
    name: Option<Name>,
    replica_clocks: bool,
}

impl Builder {
    /// Has [`examine`](Self::examine) read the clocks of the replicas, too: of a service behind
    /// Sentinels, one of them may be the next master. Danger: user and password are sent to every
    /// address that the master lists as a replica, whoever listens there.
    #[must_use]
    pub fn examine_replica_clocks(mut self, read: bool) -> Self {
        self.replica_clocks = read;
        self
    }

    /// Looks at every node, in node order: what it is, what it lets us do and what of ours it
    /// keeps. The rights to the lock `name` are looked at too, if one is given.
    ///
    /// Changes nothing, ends within seconds whatever the nodes do, and needs none of them to be
    /// well.
    ///
    /// # Errors
    /// Only if a setting is not allowed.
    pub async fn examine(self, name: Option<&str>) -> Result<Vec<Examination>, ConnectError> {
        let settings = self.settings()?;
        let name = name.map(|name| Name::new(&settings.prefix, name));
        let name = name.transpose().map_err(ConfigError::from)?;
        let urls = match &self.urls {
            Some(urls) => parse_nodes(urls).map_err(ConfigError::from)?,
            None => Vec::new(),
        };
        let look = Examining {
            nodes: self.given.len() + urls.len(),
            drift: settings.drift,
            clock: self.clock.clone(),
            wall: crate::node::NodeClock::system(),
            name,
            replica_clocks: self.replica_clocks,
        };
        let mut looks = JoinSet::new();
        for (index, url) in urls.into_iter().enumerate() {
            let look = look.clone();
            looks.spawn(async move { (index, look.at(url).await) });
        }
        let mut found = examine_given(&self.given, &self.clock).await;
        let mut by_url = looks.join_all().await;
        by_url.sort_by_key(|(index, _)| *index);
        for (_, examination) in by_url {
            found.push(examination?);
        }
        Ok(found)
    }
}

impl Examining {
    async fn at(self, url: NodeUrl) -> Result<Examination, ConnectError> {
        match url {
            #[cfg(feature = "redis")]
            NodeUrl::Redis(url) => Ok(self.at_server(url).await),
            #[cfg(feature = "sqlite")]
            NodeUrl::Sqlite(path) => {
                let look = move || crate::node::sqlite::examine(&path);
                let file = tokio::task::spawn_blocking(look).await;
                let file = file.map_err(|error| {
                    ConnectError::Thread(Arc::new(std::io::Error::other(error)))
                })?;
                Ok(Examination {
                    node: format!("sqlite:{}", file.path.display().to_string().escape_debug()),
                    machine: Machine::ThisOne,
                    found: Ok(Found::File(Box::new(file))),
                })
            }
            NodeUrl::Memory(label) => Ok(Examination {
                node: format!("memory:{}", label.escape_debug()),
                machine: Machine::ThisOne,
                found: Ok(Found::Memory),
            }),
            #[cfg(not(all(feature = "redis", feature = "sqlite")))]
            other => Err(super::builder::missing_feature(&other).into()),
        }
    }

    #[cfg(feature = "redis")]
    async fn at_server(self, url: crate::url::RedisUrl) -> Examination {
        let Self {
            nodes,
            drift,
            clock,
            wall,
            name,
            replica_clocks,
        } = self;
        let machine = machine(url.address.clone(), clock.clone());
        let node = url.address.to_string();
        let mut examiner = crate::node::redis::Examiner::new(url, clock, nodes, drift);
        examiner.replica_clocks = replica_clocks;
        let name = name.as_ref().map(Name::as_str);
        let (machine, found) = tokio::join!(machine, examiner.examine(&wall, name));
        Examination {
            node,
            machine,
            found: found.map(|found| Found::Server(Box::new(found))),
        }
    }
}

/// The machine that `address` names, as far as that is known without connecting.
#[cfg(feature = "redis")]
async fn machine(address: crate::url::Address, clock: Clock) -> Machine {
    let crate::url::Address::Tcp(host, port) = address else {
        return Machine::ThisOne;
    };
    let found = tokio::select! {
        found = tokio::net::lookup_host((host, port)) => found,
        () = clock.sleep_until(clock.now() + PATIENCE) => return Machine::Unknown,
    };
    let addresses: Vec<_> = found
        .into_iter()
        .flatten()
        .map(|found| found.ip())
        .collect();
    match addresses.as_slice() {
        [] => Machine::Unknown,
        all if all.iter().all(|address| address.is_loopback()) => Machine::ThisOne,
        _ => Machine::At(addresses),
    }
}

/// Of nodes that were handed in only what they say of themselves is known.
async fn examine_given(given: &[Arc<dyn Node>], clock: &Clock) -> Vec<Examination> {
    let until = clock.now() + PATIENCE;
    let ask = |node: usize, done| given[node].probe(done);
    let (answers, _) = gather(given.len(), clock, until, ask, all).await;
    let both = given.iter().zip(answers);
    let looks = both.map(|(node, answer)| Examination {
        node: node.name().to_owned(),
        machine: Machine::Unknown,
        found: match answer {
            Ok(facts) => Ok(Found::Given(Box::new(facts))),
            Err(error) => Err(error.trouble().clone()),
        },
    });
    looks.collect()
}
