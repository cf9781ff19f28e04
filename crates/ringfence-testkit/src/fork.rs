//! A fork for programs without unsafe code: a small library that is loaded into the process and
//! forks when the program asks for its parent's id.

use std::os::unix::process::parent_id;
use std::sync::OnceLock;

use crate::preload::Preload;

const SOURCE: &str = include_str!("fork.c");

/// The environment for a process that calls [`fork`].
///
/// # Panics
/// If there is no C compiler.
pub fn fork_environment() -> (String, String) {
    static LIBRARY: OnceLock<Preload> = OnceLock::new();
    LIBRARY
        .get_or_init(|| Preload::compile(SOURCE))
        .environment()
}

/// Forks, in a process with the [`fork_environment`]. The child's process id; `None` in the child.
///
/// # Panics
/// In any other process.
pub fn fork() -> Option<u32> {
    let before = std::process::id();
    let answer = parent_id();
    let is_child = std::process::id() != before;
    assert_eq!(is_child, answer == 0, "not started with the library");
    (!is_child).then_some(answer)
}
