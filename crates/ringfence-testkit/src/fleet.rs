//! Several independent servers: the nodes of a quorum.

use std::ops::Index;
use std::thread;

use crate::binary::Flavor;
use crate::builder::ServerBuilder;
use crate::server::Server;

/// Servers that do not know each other, in node order.
#[derive(Debug)]
pub struct Fleet(Vec<Server>);

impl Fleet {
    /// Starts `size` Redis servers without persistence.
    pub fn start(size: usize) -> Self {
        Self::start_with(size, |_| Server::builder(Flavor::Redis))
    }

    /// Starts `size` servers in parallel; `describe` gives the settings of each number (from 0).
    pub fn start_with(size: usize, describe: impl Fn(usize) -> ServerBuilder) -> Self {
        let builders: Vec<ServerBuilder> = (0..size).map(describe).collect();
        thread::scope(|scope| {
            let starting: Vec<_> = builders
                .into_iter()
                .map(|builder| scope.spawn(move || builder.start()))
                .collect();
            // A thread that panicked has already printed the server's log.
            let started = starting.into_iter().map(|start| start.join());
            let started =
                started.map(|server| server.expect("a server of the fleet did not start"));
            Self(started.collect())
        })
    }

    /// Every node's URL, separated by commas.
    pub fn urls(&self) -> String {
        self.join(Server::url)
    }

    /// Every node's URL with `quarantine=off`, because these servers have only just started.
    pub fn urls_without_quarantine(&self) -> String {
        self.join(Server::url_without_quarantine)
    }

    /// The servers in node order.
    pub fn iter(&self) -> impl Iterator<Item = &Server> {
        self.0.iter()
    }

    fn join(&self, url: impl Fn(&Server) -> String) -> String {
        self.iter().map(url).collect::<Vec<_>>().join(",")
    }
}

impl Index<usize> for Fleet {
    type Output = Server;

    fn index(&self, index: usize) -> &Server {
        &self.0[index]
    }
}
