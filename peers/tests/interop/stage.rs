//! Starts a client for a test, or reports why it is missing.

use std::process::Command;

use ringfence_peers::{Library, Missing, Peer};
use ringfence_testkit::Fleet;

/// Servers and their URLs.
pub(crate) struct Stage {
    pub(crate) fleet: Fleet,
    /// The URLs for clients of other projects.
    pub(crate) urls: String,
}

impl Stage {
    pub(crate) fn with_nodes(nodes: usize) -> Self {
        let fleet = Fleet::start(nodes);
        let urls = (0..nodes).map(|node| fleet[node].url());
        let urls = urls.collect::<Vec<_>>().join(",");
        Self { fleet, urls }
    }

    /// Starts `library` on all servers, or on the first if it supports only one; see [`present`].
    pub(crate) fn start(&self, library: Library) -> Option<Peer> {
        let ours = self.fleet.urls_without_quarantine();
        let urls = match library {
            Library::Ringfence | Library::RingfencePlain => ours.as_str(),
            _ if library.is_single() => self.urls.split(',').next().unwrap_or_default(),
            _ => &self.urls,
        };
        let rust = Command::new(env!("CARGO_BIN_EXE_ringfence-peer"));
        present(library, Peer::start(library, urls, &rust))
    }
}

/// What `library` needs to run. `None` if its toolchain is not on this machine: that is printed,
/// and in CI it is a failure.
pub(crate) fn present<T>(library: Library, found: Result<T, Missing>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(missing) if std::env::var_os("CI").is_some() => {
            panic!("{library} cannot be tested: {missing}")
        }
        Err(missing) => {
            eprintln!("NOT TESTED: {library}: {missing}");
            None
        }
    }
}
