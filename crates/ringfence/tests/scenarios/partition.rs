//! A network partition between one party's clients and some of the nodes.

use ringfence_testkit::{Fleet, Proxy, Server};

/// Addresses for one party's clients: some of the nodes can be cut off.
pub(crate) struct Partition {
    urls: Vec<String>,
    cut: Vec<Proxy>,
}

impl Partition {
    /// Nothing is cut off yet. `far` are the nodes that will be.
    pub(crate) fn before(fleet: &Fleet, far: &[usize]) -> Self {
        let mut urls: Vec<String> = fleet.iter().map(Server::url).collect();
        let mut cut = Vec::new();
        for &node in far {
            let proxy = Proxy::in_front_of(&fleet[node]);
            urls[node] = proxy.url();
            cut.push(proxy);
        }
        Self { urls, cut }
    }

    /// The addresses of the nodes for this party.
    pub(crate) fn urls(&self) -> String {
        self.urls.join(",")
    }

    /// Cuts off the far nodes.
    pub(crate) fn begin(&self) {
        self.cut.iter().for_each(Proxy::refuse);
    }
}
