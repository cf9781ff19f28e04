//! The settings of config files, and which of them counts.
//!
//! A flag goes before the environment, the environment before a file, and the user's file before the
//! system's. What the settings mean is up to `nodes.rs` and the commands.

mod apply;
mod file;
mod pattern;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) use file::{ConfigFile, LockSettings};

use crate::report::CliFailure;

/// Names the only config file to read. Empty: none is read.
pub(crate) const CONFIG: &str = "RINGFENCE_CONFIG";

/// The file of the whole machine.
pub(crate) const SYSTEM_FILE: &str = "/etc/ringfence/config.toml";

/// The config files that were found.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The file whose settings count first comes first.
    pub(crate) files: Vec<ConfigFile>,
    /// Whether the user named the file, with `--config` or in the environment.
    pub(crate) is_named: bool,
}

/// A setting of a file, and where it stands.
#[derive(Debug)]
pub(crate) struct FileSetting<'c, T> {
    pub(crate) value: T,
    pub(crate) file: &'c Path,
    /// The pattern of the table that has it, if it is not for all names.
    pub(crate) pattern: Option<&'c str>,
}

impl Config {
    /// Reads the file that the user `given`, or the files that there are.
    pub(crate) fn read(given: Option<&Path>) -> Result<Self, CliFailure> {
        let named = given.map(Path::to_path_buf).or_else(|| path_in(CONFIG));
        if let Some(file) = named {
            let files = match file.as_os_str().is_empty() {
                true => Vec::new(),
                false => vec![ConfigFile::read(&file)?],
            };
            return Ok(Self {
                files,
                is_named: true,
            });
        }
        let own = user_file();
        let all = own
            .iter()
            .map(PathBuf::as_path)
            .chain([SYSTEM_FILE.as_ref()]);
        let found = all.filter(|file| file.exists());
        Ok(Self {
            files: found.map(ConfigFile::read).collect::<Result<_, _>>()?,
            is_named: false,
        })
    }

    /// The first file that `has` a value which is not about locks.
    pub(crate) fn first<'c, T>(
        &'c self,
        has: impl Fn(&'c ConfigFile) -> Option<T>,
    ) -> Option<FileSetting<'c, T>> {
        self.files.iter().find_map(|file| {
            Some(FileSetting {
                value: has(file)?,
                file: file.path(),
                pattern: None,
            })
        })
    }

    /// The setting of the lock `name` that counts: in each file the first table whose pattern fits
    /// and that `has` it, then what the file says for all names.
    pub(crate) fn of_lock<'c, T>(
        &'c self,
        name: Option<&str>,
        has: impl Fn(&'c LockSettings) -> Option<T>,
    ) -> Option<FileSetting<'c, T>> {
        self.files.iter().find_map(|file| {
            let mut settings = file.settings(name);
            settings.find_map(|(pattern, settings)| {
                Some(FileSetting {
                    value: has(settings)?,
                    file: file.path(),
                    pattern,
                })
            })
        })
    }
}

/// The config file of this user.
pub(crate) fn user_file() -> Option<PathBuf> {
    let folder = path_in("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let folder = folder.or_else(|| Some(path_in("HOME")?.join(".config")))?;
    Some(folder.join("ringfence/config.toml"))
}

fn path_in(variable: &str) -> Option<PathBuf> {
    let value: Option<OsString> = env::var_os(variable);
    value.map(PathBuf::from)
}
