//! A disk whose syncs a test lets fail, for one server: a small library that is loaded into the
//! process. For the embedded file see [`DiskJournal`](crate::DiskJournal).

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::preload::Preload;

const SOURCE: &str = include_str!("sync.c");
/// Where the state file has the size of what was synced. Before it: whether syncs fail.
const SYNCED_AT: u64 = 8;

/// The syncs of one server.
#[derive(Debug)]
pub struct DiskSync {
    folder: TempDir,
}

impl DiskSync {
    /// Syncs that succeed.
    ///
    /// # Panics
    /// If there is no C compiler.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-sync-")
            .tempdir()
            .expect("cannot make a temporary folder");
        let sync = Self { folder };
        fs::write(sync.state_file(), [0; 16]).expect("cannot write the state");
        sync
    }

    /// From now on every sync fails (`EIO`), or succeeds again.
    pub fn fail(&self, fails: bool) {
        let file = OpenOptions::new().write(true).open(self.state_file());
        file.and_then(|file| file.write_all_at(&i64::from(fails).to_ne_bytes(), 0))
            .expect("cannot write the state");
    }

    /// How long the append-only file was at its last good sync. See
    /// [`Server::lose_writes_after`](crate::Server::lose_writes_after).
    pub fn synced(&self) -> u64 {
        let mut bytes = [0; 8];
        OpenOptions::new()
            .read(true)
            .open(self.state_file())
            .and_then(|file| file.read_exact_at(&mut bytes, SYNCED_AT))
            .expect("cannot read the state");
        u64::from_ne_bytes(bytes)
    }

    /// The environment for a server with this disk.
    pub(crate) fn environment(&self) -> [(String, String); 2] {
        let state_file = self.state_file().display().to_string();
        [
            library().environment(),
            ("RINGFENCE_SYNC_STATE".to_owned(), state_file),
        ]
    }

    fn state_file(&self) -> PathBuf {
        self.folder.path().join("state")
    }
}

impl Default for DiskSync {
    fn default() -> Self {
        Self::new()
    }
}

/// The library, compiled once for each test process.
fn library() -> &'static Preload {
    static LIBRARY: OnceLock<Preload> = OnceLock::new();
    LIBRARY.get_or_init(|| Preload::compile(SOURCE))
}
