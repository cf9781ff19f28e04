//! Starting a client for a test, or saying loudly why it is not there.

use std::process::Command;

use ringfence_peers::{Library, Peer};
use ringfence_testkit::Fleet;

/// Servers, and where clients find them.
pub(crate) struct Stage {
    pub(crate) fleet: Fleet,
    /// As other people's clients take it.
    pub(crate) urls: String,
}

impl Stage {
    pub(crate) fn with_nodes(nodes: usize) -> Self {
        let fleet = Fleet::start(nodes);
        let urls = (0..nodes).map(|node| fleet[node].url());
        let urls = urls.collect::<Vec<_>>().join(",");
        Self { fleet, urls }
    }

    /// Starts `library` on all servers, or on the first if it knows only one. `None` if its
    /// toolchain is not on this machine, which is named, and in CI is a failure.
    pub(crate) fn start(&self, library: Library) -> Option<Peer> {
        let ours = self.fleet.urls_without_quarantine();
        let urls = match library {
            Library::Ringfence | Library::RingfencePlain => ours.as_str(),
            _ if library.is_single() => self.urls.split(',').next().unwrap_or_default(),
            _ => &self.urls,
        };
        let rust = Command::new(env!("CARGO_BIN_EXE_ringfence-peer"));
        match Peer::start(library, urls, &rust) {
            Ok(peer) => Some(peer),
            Err(missing) if std::env::var_os("CI").is_some() => {
                panic!("{library} cannot be tested: {missing}")
            }
            Err(missing) => {
                eprintln!("NOT TESTED: {library}: {missing}");
                None
            }
        }
    }
}
