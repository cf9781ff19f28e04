//! A network of several hosts that a test can divide. Each process belongs to a host and reaches
//! each server of another host through a proxy that only its host uses. So a test can cut some
//! hosts off from the others although all of them use the same addresses, as Sentinels and their
//! clients do.
//!
//! A small library in each process leads its connections to the proxies. It is for programs that
//! call `connect` of the C library: Redis, Valkey and Rust programs.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::preload::Preload;
use crate::proxy::{Fault, Proxy};
use crate::server::Server;

const SOURCE: &str = include_str!("network.c");

/// Hosts, and one proxy from each of them to each server of another host.
#[derive(Debug)]
pub struct Network {
    folder: TempDir,
    hosts: usize,
    links: Mutex<Vec<Link>>,
}

/// The way from a host to a server.
#[derive(Debug)]
struct Link {
    from: usize,
    /// The server's host, and its port.
    to: usize,
    port: u16,
    proxy: Proxy,
}

impl Network {
    /// A network of `hosts` hosts without servers.
    ///
    /// # Panics
    /// If there is no C compiler.
    pub fn new(hosts: usize) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-network-")
            .tempdir()
            .expect("cannot make a temporary folder");
        let network = Self {
            folder,
            hosts,
            links: Mutex::default(),
        };
        (0..hosts).for_each(|host| network.write_routes(host, &[]));
        network
    }

    /// The environment for a process on `host`.
    pub fn environment(&self, host: usize) -> [(String, String); 2] {
        let routes = self.routes_file(host).display().to_string();
        [
            library().environment(),
            ("RINGFENCE_ROUTES".to_owned(), routes),
        ]
    }

    /// From now on, processes on other hosts than `host` reach `server` through proxies. The server
    /// must have been started with the [environment](Self::environment) of `host`.
    pub fn attach(&self, host: usize, server: &Server) {
        let mut links = self.links();
        let others = (0..self.hosts).filter(|other| *other != host);
        links.extend(others.map(|from| Link {
            from,
            to: host,
            port: server.port(),
            proxy: Proxy::in_front_of(server),
        }));
        (0..self.hosts).for_each(|host| self.write_routes(host, &links));
    }

    /// Divides the network: bytes between the hosts in `side` and the others are lost.
    pub fn divide(&self, side: &[usize]) {
        let crosses = |link: &Link| side.contains(&link.from) != side.contains(&link.to);
        for link in self.links().iter().filter(|link| crosses(link)) {
            link.proxy.requests(Fault::BlackHole);
            link.proxy.replies(Fault::BlackHole);
        }
    }

    /// Ends every fault.
    pub fn heal(&self) {
        self.links().iter().for_each(|link| link.proxy.pass());
    }

    /// Sets the fault for what `host` sends to those hosts in `receivers` that have connected to it.
    pub fn replies(&self, host: usize, receivers: &[usize], fault: Fault) {
        self.between(host, receivers, |proxy| proxy.replies(fault));
    }

    /// Closes the connections from the hosts in `receivers` to `host`, with all bytes that are
    /// still on the way.
    pub fn cut(&self, host: usize, receivers: &[usize]) {
        self.between(host, receivers, Proxy::cut);
    }

    fn between(&self, to: usize, from: &[usize], act: impl Fn(&Proxy)) {
        let links = self.links();
        let links = links
            .iter()
            .filter(|link| link.to == to && from.contains(&link.from));
        links.for_each(|link| act(&link.proxy));
    }

    fn write_routes(&self, host: usize, links: &[Link]) {
        let routes = links.iter().filter(|link| link.from == host);
        let routes = routes.map(|link| format!("{} {}\n", link.port, link.proxy.addr().port()));
        // A process may read the file at any time, so it is replaced as a whole.
        let new = self.folder.path().join("new");
        fs::write(&new, routes.collect::<String>())
            .and_then(|()| fs::rename(&new, self.routes_file(host)))
            .expect("cannot write the routes of a host");
    }

    fn routes_file(&self, host: usize) -> PathBuf {
        self.folder.path().join(host.to_string())
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The library, compiled once for each test process.
fn library() -> &'static Preload {
    static LIBRARY: OnceLock<Preload> = OnceLock::new();
    LIBRARY.get_or_init(|| Preload::compile(SOURCE))
}
