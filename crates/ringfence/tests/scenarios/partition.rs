//! A party that some of the nodes are cut off from.

use ringfence_testkit::{Fleet, Proxy, Server};

/// Addresses for one party's clients: those of some nodes can be cut off.
pub(crate) struct Partition {
    urls: Vec<String>,
    cut: Vec<Proxy>,
}

impl Partition {
    /// Everything passes for now. `far` are the nodes to be cut off.
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

    /// Where this party finds the nodes.
    pub(crate) fn urls(&self) -> String {
        self.urls.join(",")
    }

    /// Cuts them off.
    pub(crate) fn begin(&self) {
        self.cut.iter().for_each(Proxy::refuse);
    }
}
