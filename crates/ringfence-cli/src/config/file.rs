//! One config file: what it may contain, and errors that name the line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fits;
use crate::duration;
use crate::nodes::has_password;
use crate::report::CliFailure;
use crate::secret::Secret;

/// A config file, read and checked.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    path: PathBuf,
    /// The URLs of the nodes, with passwords. Never print them.
    pub(crate) nodes: Option<String>,
    pub(crate) nodes_file: Option<PathBuf>,
    pub(crate) password_file: Option<PathBuf>,
    /// What holds for all names.
    settings: LockSettings,
    /// What holds for the names that fit a pattern, in the order of the file.
    patterns: Vec<(String, LockSettings)>,
}

/// The settings of locks. Each is the default of the option of the same name.
#[derive(Debug, Default)]
pub(crate) struct LockSettings {
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) no_quorum_after: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) lock_delay: Option<Duration>,
    pub(crate) kill_grace: Option<Duration>,
    pub(crate) stop_grace: Option<Duration>,
    pub(crate) label: Option<String>,
}

impl ConfigFile {
    /// Reads the file. Unknown keys and bad values are refused, with their line.
    pub(crate) fn read(path: &Path) -> Result<Self, CliFailure> {
        let secret = Secret::read(path, "--config", Some(super::CONFIG))?;
        let file = Self::of_text(path, secret.text())?;
        if file.nodes.as_deref().is_some_and(has_password) {
            secret.check_rights()?;
        }
        Ok(file)
    }

    /// The file at `path` with this `text`.
    pub(crate) fn of_text(path: &Path, text: &str) -> Result<Self, CliFailure> {
        let mut file = Self {
            path: std::path::absolute(path)?,
            nodes: None,
            nodes_file: None,
            password_file: None,
            settings: LockSettings::default(),
            patterns: Vec::new(),
        };
        file.parse(text).map_err(|mistake| {
            let line = text[..mistake.at].matches('\n').count() + 1;
            let file = path.display().to_string();
            let file = file.escape_debug();
            CliFailure::usage(format!("{file}, line {line}: {}", mistake.why))
        })?;
        Ok(file)
    }

    fn parse(&mut self, text: &str) -> Result<(), Mistake> {
        // Only the message: the excerpt that the error shows may contain a password.
        let table = DeTable::parse(text).map_err(|error| Mistake {
            at: error.span().map_or(0, |span| span.start),
            why: error.message().to_owned(),
        })?;
        for (key, value) in table.into_inner() {
            let at = value.span().start;
            match key.get_ref().as_ref() {
                "nodes" => self.nodes = Some(urls(&value)?),
                "nodes-file" => self.nodes_file = Some(self.beside(&string(&value)?)),
                "password-file" => self.password_file = Some(self.beside(&string(&value)?)),
                "lock" => self.parse_patterns(&value)?,
                setting if self.settings.set(setting, &value)? => {}
                unknown => {
                    return Err(unknown_key(
                        &key,
                        unknown,
                        "nodes, nodes-file, password-file, [[lock]], ",
                    ));
                }
            }
            if self.nodes.is_some() && self.nodes_file.is_some() {
                return Err(Mistake::at(at, "give `nodes` or `nodes-file`, not both"));
            }
        }
        Ok(())
    }

    /// The tables `[[lock]]`, each with the pattern `name`.
    fn parse_patterns(&mut self, value: &Spanned<DeValue<'_>>) -> Result<(), Mistake> {
        let wrong = "write the settings of some names as `[[lock]]` and `name = \"PATTERN\"`";
        let DeValue::Array(tables) = value.get_ref() else {
            return Err(Mistake::at(value.span().start, wrong));
        };
        for table in tables.iter() {
            let (mut name, mut settings) = (None, LockSettings::default());
            let DeValue::Table(entries) = table.get_ref() else {
                return Err(Mistake::at(table.span().start, wrong));
            };
            for (key, value) in entries {
                match key.get_ref().as_ref() {
                    "name" => name = Some(string(value)?),
                    setting if settings.set(setting, value)? => {}
                    unknown => return Err(unknown_key(key, unknown, "name, ")),
                }
            }
            let Some(name) = name else {
                return Err(Mistake::at(table.span().start, wrong));
            };
            self.patterns.push((name, settings));
        }
        Ok(())
    }

    /// A path in the file, which is relative to the folder of the file.
    fn beside(&self, path: &str) -> PathBuf {
        match self.path.parent() {
            Some(folder) => folder.join(path),
            None => PathBuf::from(path),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it says for the lock `name`: the tables whose pattern fits, then what holds for all.
    pub(super) fn settings<'c>(
        &'c self,
        name: Option<&str>,
    ) -> impl Iterator<Item = (Option<&'c str>, &'c LockSettings)> {
        let fits =
            move |entry: &&(String, LockSettings)| name.is_some_and(|name| fits(&entry.0, name));
        let fitting = self.patterns.iter().filter(fits);
        let fitting = fitting.map(|(pattern, settings)| (Some(pattern.as_str()), settings));
        fitting.chain([(None, &self.settings)])
    }
}

impl LockSettings {
    /// The keys, in the order in which they are shown.
    pub(crate) const KEYS: &str = "ttl, wait, no-quorum-after, max-hold, lock-delay, kill-grace, \
                                   stop-grace, label";

    /// Takes the value of `key`. False if there is no such setting.
    fn set(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, Mistake> {
        let setting = match key {
            "ttl" => &mut self.ttl,
            "wait" => &mut self.wait,
            "no-quorum-after" => &mut self.no_quorum_after,
            "max-hold" => &mut self.max_hold,
            "lock-delay" => &mut self.lock_delay,
            "kill-grace" => &mut self.kill_grace,
            "stop-grace" => &mut self.stop_grace,
            "label" => {
                self.label = Some(string(value)?);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let text = string(value)?;
        let parsed = duration::parse(&text);
        let parsed =
            parsed.map_err(|why| Mistake::at(value.span().start, &format!("{key}: {why}")))?;
        *setting = Some(parsed);
        Ok(true)
    }
}

/// What is wrong, and at which byte of the file.
struct Mistake {
    at: usize,
    why: String,
}

impl Mistake {
    fn at(at: usize, why: &str) -> Self {
        let why = why.to_owned();
        Self { at, why }
    }
}

fn unknown_key<K>(key: &Spanned<K>, name: &str, others: &str) -> Mistake {
    let (name, known) = (name.escape_debug(), LockSettings::KEYS);
    let why = format!("unknown key `{name}`; the keys are {others}{known}");
    Mistake::at(key.span().start, &why)
}

fn string(value: &Spanned<DeValue<'_>>) -> Result<String, Mistake> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        _ => Err(Mistake::at(
            value.span().start,
            "write the value as a text in quotes",
        )),
    }
}

/// The nodes: a list of URLs, or one text with commas as in `--nodes`.
fn urls(value: &Spanned<DeValue<'_>>) -> Result<String, Mistake> {
    match value.get_ref() {
        DeValue::Array(items) => {
            let urls = items.iter().map(string).collect::<Result<Vec<_>, _>>()?;
            Ok(urls.join(","))
        }
        _ => string(value),
    }
}
