//! Finds the nodes: the URLs that the user gave, or the default lock file of the user.
//!
//! Passwords can come from files, so that they are neither in `ps` nor in the environment of the
//! command. Connecting is the library's work.

use std::env;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};

use ringfence::node::sqlite::SqliteNode;
use ringfence::url::{NodeUrl, RedisUrl, parse_nodes, with_password, without_passwords};

use crate::args::Global;
use crate::report::{CliFailure, Report};

/// The environment variables that name the nodes.
pub(crate) const NODES: &str = "RINGFENCE_NODES";
pub(crate) const NODES_FILE: &str = "RINGFENCE_NODES_FILE";
const PASSWORD_FILE: &str = "RINGFENCE_PASSWORD_FILE";

/// Larger than any real list of nodes.
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// The nodes to take locks on.
pub(crate) struct Nodes {
    /// The URLs for the library, with passwords. Never print them or pass them to a command.
    urls: String,
    /// The file with the URLs, if the command can read it again.
    file: Option<PathBuf>,
    /// The file with the password, if the command can read it again.
    password_file: Option<PathBuf>,
}

impl Nodes {
    fn of(urls: String) -> Self {
        Self {
            urls,
            file: None,
            password_file: None,
        }
    }

    /// The URLs for the library, with passwords.
    pub(crate) fn urls(&self) -> &str {
        &self.urls
    }

    /// The variable for the command's environment, so that a `ringfence` in it finds the same
    /// nodes. It never has a password.
    pub(crate) fn env(&self) -> (&'static str, String) {
        match self.file.as_deref().and_then(Path::to_str) {
            Some(file) => (NODES_FILE, file.to_owned()),
            None => (NODES, without_passwords(&self.urls).unwrap_or_default()),
        }
    }

    /// The variable that names the password file to a `ringfence` in the command, if there is one.
    pub(crate) fn password_env(&self) -> Option<(&'static str, String)> {
        let file = self.password_file.as_deref().and_then(Path::to_str)?;
        Some((PASSWORD_FILE, file.to_owned()))
    }
}

/// The nodes to take locks on: those that were given, or the file in the user's state folder.
pub(crate) fn resolve(given: &Global, report: Report) -> Result<Nodes, CliFailure> {
    let nodes = locate(given, report)?;
    let parsed = parse_nodes(&nodes.urls).unwrap_or_default();
    // The library has memory nodes for tests. No other process would see the lock.
    if parsed.iter().any(|node| matches!(node, NodeUrl::Memory(_))) {
        return Err(CliFailure::usage(
            "locks in memory: exclude no other process; \
             leave --nodes out to use this user's own file",
        ));
    }
    Ok(nodes)
}

/// The nodes that were given, also if they cannot be used for locks.
pub(crate) fn locate(given: &Global, report: Report) -> Result<Nodes, CliFailure> {
    let mut nodes = find(given, report)?;
    if let Ok([NodeUrl::Sqlite(path)]) = parse_nodes(&nodes.urls).as_deref()
        && path.is_relative()
    {
        // The command may run a `ringfence` in another folder.
        let path = path::absolute(path)?;
        nodes.urls = format!("sqlite:{}", path.display());
    }
    let password_file = given
        .password_file
        .clone()
        .or_else(|| path_in(PASSWORD_FILE));
    if let Some(file) = password_file {
        let secret = Secret::read(&file, "--password-file", Some(PASSWORD_FILE))?;
        secret.check_rights()?;
        let password = secret.text.strip_suffix('\n').unwrap_or(&secret.text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            return Err(secret.refused("it contains no password"));
        }
        nodes.urls = with_password(&nodes.urls, password)
            .map_err(|error| CliFailure::usage(error.to_string()))?;
        nodes.password_file = secret.path_for_command()?;
    }
    warn_of_exposure(&nodes.urls, report);
    Ok(nodes)
}

fn find(given: &Global, report: Report) -> Result<Nodes, CliFailure> {
    if let Some(urls) = &given.nodes {
        if has_password(urls) {
            report.warn(
                "every user of this machine can read a password in --nodes (with ps): \
                 put the URLs into a file and name it with --nodes-file",
            );
        }
        return listed(urls.clone());
    }
    if let Some(file) = &given.nodes_file {
        return filed(file);
    }
    match (env::var_os(NODES), path_in(NODES_FILE)) {
        (Some(_), Some(_)) => Err(CliFailure::usage(format!(
            "both {NODES} and {NODES_FILE} are set and may name different nodes: \
             unset one of them, or use --nodes or --nodes-file"
        ))),
        (Some(urls), None) => match urls.into_string() {
            Ok(urls) => listed(urls),
            Err(_) => Err(CliFailure::usage(format!("{NODES} is not UTF-8"))),
        },
        (None, Some(file)) => filed(&file),
        (None, None) => Ok(Nodes::of(default_file()?)),
    }
}

fn listed(urls: String) -> Result<Nodes, CliFailure> {
    if urls.trim().is_empty() {
        return Err(CliFailure::usage(format!(
            "--nodes (or {NODES}) is empty; leave it out to use this user's own file"
        )));
    }
    Ok(Nodes::of(urls))
}

/// The nodes in a file: URLs separated by commas or newlines. A line that begins with `#` is a
/// comment.
fn filed(file: &Path) -> Result<Nodes, CliFailure> {
    let secret = Secret::read(file, "--nodes-file", Some(NODES_FILE))?;
    let lines = secret.text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let urls: Vec<&str> = lines.map(|line| line.trim_matches(',').trim()).collect();
    let urls = urls.join(",");
    if urls.is_empty() {
        return Err(secret.refused("it names no node"));
    }
    if has_password(&urls) {
        secret.check_rights()?;
    }
    Ok(Nodes {
        file: secret.path_for_command()?,
        ..Nodes::of(urls)
    })
}

/// Whether a list contains a password. A list that cannot be parsed may contain one.
fn has_password(urls: &str) -> bool {
    match parse_nodes(urls) {
        Ok(nodes) => servers(&nodes).any(|url| url.password.is_some()),
        Err(_) => urls.contains('@') || urls.contains("pass="),
    }
}

fn servers(nodes: &[NodeUrl]) -> impl Iterator<Item = &RedisUrl> {
    nodes.iter().filter_map(|node| match node {
        NodeUrl::Redis(url) => Some(url),
        _ => None,
    })
}

fn warn_of_exposure(urls: &str, report: Report) {
    let nodes = parse_nodes(urls).unwrap_or_default();
    let exposed = servers(&nodes).filter(|url| url.exposes_password());
    let exposed: Vec<_> = exposed.map(|url| url.address.to_string()).collect();
    if !exposed.is_empty() {
        report.warn(&format!(
            "the password for {} is sent over the network unencrypted: use rediss:// (TLS)",
            exposed.join(", ")
        ));
    }
}

/// A file that may contain a password or a token.
pub(crate) struct Secret<'f> {
    file: &'f Path,
    option: &'static str,
    text: String,
    metadata: Metadata,
}

impl<'f> Secret<'f> {
    /// Reads a file that `option` names, or the environment `variable` if there is one.
    pub(crate) fn read(
        file: &'f Path,
        option: &'static str,
        variable: Option<&str>,
    ) -> Result<Self, CliFailure> {
        let unreadable = |error: io::Error| {
            let file = file.display().to_string();
            let file = file.escape_debug();
            let or = variable.map_or_else(String::new, |variable| format!(" or {variable}"));
            CliFailure::usage(format!("{file} ({option}{or}): {error}"))
        };
        let opened = File::open(file).map_err(unreadable)?;
        let metadata = opened.metadata().map_err(unreadable)?;
        let mut text = String::new();
        let mut limited = opened.take(FILE_MAX_BYTES + 1);
        limited.read_to_string(&mut text).map_err(unreadable)?;
        let secret = Self {
            file,
            option,
            text,
            metadata,
        };
        if secret.text.len() as u64 > FILE_MAX_BYTES {
            return Err(secret.refused("it is longer than 64 KiB"));
        }
        Ok(secret)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Refuses a file with a secret if every user may read or change it.
    pub(crate) fn check_rights(&self) -> Result<(), CliFailure> {
        let mode = self.metadata.mode() & 0o7777;
        if mode & 0o006 == 0 {
            return Ok(());
        }
        Err(self.refused(&format!(
            "it contains a secret, and its mode {mode:04o} lets every user read or change it: \
             chmod it to 0600 or 0640 (a Kubernetes secret: `defaultMode: 0400`)"
        )))
    }

    /// A path under which the command can read the file; `None` for a pipe, which can be read once.
    fn path_for_command(&self) -> io::Result<Option<PathBuf>> {
        let path = self.metadata.is_file().then(|| path::absolute(self.file));
        path.transpose()
    }

    pub(crate) fn refused(&self, why: &str) -> CliFailure {
        let file = self.file.display().to_string();
        let (file, option) = (file.escape_debug(), self.option);
        CliFailure::usage(format!("{file} ({option}) was not used: {why}"))
    }
}

/// The path in an environment variable.
fn path_in(variable: &str) -> Option<PathBuf> {
    let value: Option<OsString> = env::var_os(variable);
    value.map(PathBuf::from)
}

fn default_file() -> Result<String, CliFailure> {
    let path = SqliteNode::default_path()
        .map_err(|error| CliFailure::usage(format!("{error} (--nodes sqlite:/path)")))?;
    match path.to_str() {
        Some(path) => Ok(format!("sqlite:{path}")),
        None => Err(CliFailure::usage(format!(
            "{} is not UTF-8; name another file with --nodes sqlite:/path",
            path.display().to_string().escape_debug()
        ))),
    }
}
