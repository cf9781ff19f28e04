//! A wall clock that a test can set for one process: a small library that is loaded into the
//! process and shifts the time of day that it reads.
//!
//! Unlike libfaketime it does not touch the allocator, so it also works with Debian's Redis.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::preload::Preload;

const SOURCE: &str = include_str!("wall_clock.c");

/// A wall clock that can be set while its process runs.
#[derive(Debug)]
pub struct WallClock {
    folder: TempDir,
}

impl WallClock {
    /// A clock that is `offset_us` microseconds ahead of the true time.
    ///
    /// # Panics
    /// If there is no C compiler.
    pub fn ahead_by(offset_us: i64) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-clock-")
            .tempdir()
            .expect("cannot make a temporary folder");
        let clock = Self { folder };
        fs::write(clock.offset_file(), offset_us.to_ne_bytes()).expect("cannot write the offset");
        clock
    }

    /// Sets it to `offset_us` microseconds ahead of the true time, at once.
    pub fn set(&self, offset_us: i64) {
        let file = OpenOptions::new().write(true).open(self.offset_file());
        file.and_then(|file| file.write_all_at(&offset_us.to_ne_bytes(), 0))
            .expect("cannot write the offset");
    }

    /// The environment for a process with this clock.
    pub fn environment(&self) -> [(String, String); 2] {
        let offset_file = self.offset_file().display().to_string();
        [
            library().environment(),
            ("RINGFENCE_WALL_CLOCK".to_owned(), offset_file),
        ]
    }

    fn offset_file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }
}

/// The library, compiled once for each test process.
fn library() -> &'static Preload {
    static LIBRARY: OnceLock<Preload> = OnceLock::new();
    LIBRARY.get_or_init(|| Preload::compile(SOURCE))
}
