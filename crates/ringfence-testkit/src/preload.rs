//! Small libraries in C that are loaded into a process under test and change what the system tells
//! it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A library that was compiled for this test process. The file goes with it.
#[derive(Debug)]
pub(crate) struct Preload {
    _folder: TempDir,
    library: PathBuf,
}

impl Preload {
    /// Compiles `source`.
    ///
    /// # Panics
    /// If there is no C compiler.
    pub(crate) fn compile(source: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-preload-")
            .tempdir()
            .expect("cannot make a temporary folder");
        let file = folder.path().join("preload.c");
        let library = folder.path().join("preload.so");
        fs::write(&file, source).expect("cannot write the source");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &file])
            .status()
            .expect("no C compiler: run ./verify, which installs one");
        assert!(compiled.success(), "cc failed on {}", file.display());
        Self {
            _folder: folder,
            library,
        }
    }

    /// The environment variable that has a process load it.
    pub(crate) fn environment(&self) -> (String, String) {
        ("LD_PRELOAD".to_owned(), self.library.display().to_string())
    }
}
