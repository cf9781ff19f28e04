//! A wall clock that a test can set for one process: a small library that is loaded into the
//! process and shifts the time of day that it reads.
//!
//! Unlike libfaketime it does not touch the allocator, so it also works with Debian's Redis.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

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
        [
            ("LD_PRELOAD".to_owned(), text(library())),
            ("RINGFENCE_WALL_CLOCK".to_owned(), text(&self.offset_file())),
        ]
    }

    fn offset_file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }
}

/// The library, compiled once for each test process.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-preload-")
            .tempdir()
            .expect("cannot make a temporary folder");
        let source = folder.path().join("wall_clock.c");
        let library = folder.path().join("wall_clock.so");
        fs::write(&source, SOURCE).expect("cannot write the source");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .status()
            .expect("no C compiler: run ./verify, which installs one");
        assert!(compiled.success(), "cc failed on wall_clock.c");
        (folder, library)
    });
    library
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
