//! The settings of config files, and which of them counts.
//!
//! A flag goes before the environment, the environment before a file, and the user's file before the
//! system's. What the settings mean is up to `nodes.rs` and the commands.

mod file;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use file::{ConfigFile, LockSettings};

use crate::args::{JobArgs, LockArgs, LockCommand};
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

/// Fills the arguments that the user left out.
impl Config {
    /// Gives `command` the settings of its lock. An argument that was typed stays.
    pub(crate) fn apply(&self, command: &mut LockCommand) {
        let (name, label) = match command {
            LockCommand::Run(run) => {
                self.fill_job(&mut run.job, run.kind.shared);
                (&run.job.name, &mut run.label)
            }
            LockCommand::Elect(elect) => {
                self.fill_job(&mut elect.job, false);
                (&elect.job.name, &mut elect.label)
            }
            LockCommand::Acquire(acquire) => {
                let name = &acquire.name;
                self.fill_terms(name, &mut acquire.terms);
                if !acquire.kind.shared {
                    self.fill(name, &mut acquire.lock_delay, |of| of.lock_delay);
                }
                (name, &mut acquire.label)
            }
            _ => return,
        };
        if label.is_none() {
            let set = self.of_lock(Some(name), |of| of.label.clone());
            *label = set.map(|set| set.value);
        }
    }

    fn fill_job(&self, job: &mut JobArgs, shared: bool) {
        let name = &job.name;
        self.fill_terms(name, &mut job.terms);
        self.fill(name, &mut job.max_hold, |of| of.max_hold);
        // A share has no lock delay.
        if !shared {
            self.fill(name, &mut job.lock_delay, |of| of.lock_delay);
        }
        self.fill(name, &mut job.kill_grace, |of| of.kill_grace);
        self.fill(name, &mut job.stop_grace, |of| of.stop_grace);
    }

    /// Gives the terms of the lock `name` their settings.
    pub(crate) fn fill_terms(&self, name: &str, terms: &mut LockArgs) {
        self.fill(name, &mut terms.ttl, |of| of.ttl);
        if !terms.no_wait {
            self.fill(name, &mut terms.wait, |of| of.wait);
        }
        self.fill(name, &mut terms.no_quorum_after, |of| of.no_quorum_after);
    }

    fn fill(
        &self,
        name: &str,
        argument: &mut Option<Duration>,
        of: impl Fn(&LockSettings) -> Option<Duration>,
    ) {
        if argument.is_none() {
            *argument = self.of_lock(Some(name), of).map(|set| set.value);
        }
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

/// Whether `pattern` fits the whole `name` of a lock: `*` is any text, `?` is one character, everything
/// else is itself.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // Where the last `*` stands, and how much of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&c) if c == '?' || c == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match &mut star {
                None => return false,
                Some((after, taken)) => {
                    *taken += 1;
                    (at, seen) = (*after + 1, *taken);
                }
            },
        }
    }
    pattern[at..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_character() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("backup-*", "backup-", true),
            ("backup-*", "backup-db", true),
            ("backup-*", "a-backup-db", false),
            ("*:nightly", "eu:west:nightly", true),
            ("*:nightly", "eu:nightly:x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("job-?", "job-é", true),
            ("job-?", "job-10", false),
            ("x", "x", true),
            ("", "x", false),
            ("[a]", "a", false),
            ("", "", true),
            ("*:4?", "orders:42", true),
            ("*:4?", "orders:4", false),
            ("x", "X", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern:?} and {name:?}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let name = "a".repeat(2000);
        assert!(!fits(&format!("{}b", "*a".repeat(500)), &name));
    }
}
