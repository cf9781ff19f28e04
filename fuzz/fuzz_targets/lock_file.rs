//! A lock file with hostile bytes and rows.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = format!("ringfence-fuzz-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringfence::fuzz_file::lock_file(&FOLDER, data));
