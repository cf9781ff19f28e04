//! Finds the nodes: the URLs that the user gave, or the default lock file of the user.
//!
//! Passwords can come from files, so that they are neither in `ps` nor in the environment of the
//! command. Connecting is the library's work.

use std::env;
use std::ffi::OsString;
use std::path::{self, Path, PathBuf};

use ringfence::node::sqlite::SqliteNode;
use ringfence::url::{NodeUrl, RedisUrl, UrlError, parse_nodes, with_password, without_passwords};

use crate::args::Global;
use crate::config::{self, Config};
use crate::report::{CliFailure, Report};
use crate::secret::Secret;

/// The environment variables that name the nodes.
pub(crate) const NODES: &str = "RINGFENCE_NODES";
pub(crate) const NODES_FILE: &str = "RINGFENCE_NODES_FILE";
const PASSWORD_FILE: &str = "RINGFENCE_PASSWORD_FILE";

/// The nodes to take locks on.
pub(crate) struct Nodes {
    /// The URLs for the library, with passwords. Never print them or pass them to a command.
    urls: String,
    /// The file with the URLs, if the command can read it again.
    file: Option<PathBuf>,
    /// The file with the password, if the command can read it again.
    password_file: Option<PathBuf>,
    /// The config file that the command has to read too: the user named it, or the nodes in it have
    /// passwords.
    config_file: Option<PathBuf>,
    /// Where the nodes were named.
    origin: NodesOrigin,
    /// Where the password file was named.
    password_origin: Option<NodesOrigin>,
}

/// Where a setting was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodesOrigin {
    Flag(&'static str),
    Environment(&'static str),
    File(PathBuf),
    /// It was not set.
    Default,
}

impl Nodes {
    fn of(urls: String, origin: NodesOrigin) -> Self {
        Self {
            urls,
            file: None,
            password_file: None,
            config_file: None,
            origin,
            password_origin: None,
        }
    }

    pub(crate) fn origin(&self) -> &NodesOrigin {
        &self.origin
    }

    /// The file that has the URLs, and the file that has the password.
    pub(crate) fn files(&self) -> [Option<&Path>; 2] {
        [self.file.as_deref(), self.password_file.as_deref()]
    }

    /// Where the password file was named, if there is one.
    pub(crate) fn password_origin(&self) -> Option<&NodesOrigin> {
        self.password_origin.as_ref()
    }

    /// The URLs for the library, with passwords.
    pub(crate) fn urls(&self) -> &str {
        &self.urls
    }

    /// The variables for the command's environment, so that a `ringfence` in it finds the same
    /// nodes. They never have a password: files that have one are named.
    pub(crate) fn env(&self) -> Vec<(&'static str, String)> {
        let path = |file: &Option<PathBuf>| file.as_deref()?.to_str().map(str::to_owned);
        let config = path(&self.config_file).map(|file| (config::CONFIG, file));
        let in_config = matches!(self.origin, NodesOrigin::File(_)) && has_password(&self.urls);
        let nodes = match path(&self.file) {
            Some(file) => Some((NODES_FILE, file)),
            // The environment goes before the file, and would hide the passwords in it.
            None if in_config && config.is_some() => None,
            None => Some((NODES, without_passwords(&self.urls).unwrap_or_default())),
        };
        let password = path(&self.password_file).map(|file| (PASSWORD_FILE, file));
        [nodes, config, password].into_iter().flatten().collect()
    }
}

/// The nodes to take locks on: those that were given, or the file in the user's state folder.
pub(crate) fn resolve(
    given: &Global,
    config: &Config,
    report: Report,
) -> Result<Nodes, CliFailure> {
    let nodes = locate(given, config, report)?;
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
pub(crate) fn locate(given: &Global, config: &Config, report: Report) -> Result<Nodes, CliFailure> {
    let mut nodes = find(given, config, report)?;
    if let Ok([NodeUrl::Sqlite(path)]) = parse_nodes(&nodes.urls).as_deref()
        && path.is_relative()
    {
        // The command may run a `ringfence` in another folder.
        let path = path::absolute(path)?;
        nodes.urls = format!("sqlite:{}", path.display());
    }
    if config.is_named || has_password(&nodes.urls) {
        let used = match &nodes.origin {
            NodesOrigin::File(file) => Some(file.clone()),
            _ => None,
        };
        let named = config.files.first().filter(|_| config.is_named);
        let named = named.map(|file| file.path().to_path_buf());
        nodes.config_file = named.or(used).filter(|file| file.is_file());
    }
    add_password(&mut nodes, given, config)?;
    warn_of_exposure(&nodes.urls, report);
    Ok(nodes)
}

/// Gives the password of the password file, if there is one, to the nodes that have none.
fn add_password(nodes: &mut Nodes, given: &Global, config: &Config) -> Result<(), CliFailure> {
    let flag = given.password_file.clone();
    let flag = flag.map(|file| (file, NodesOrigin::Flag("--password-file")));
    let environment = || {
        Some((
            path_in(PASSWORD_FILE)?,
            NodesOrigin::Environment(PASSWORD_FILE),
        ))
    };
    let filed = || {
        let found = config.first(|file| file.password_file.clone())?;
        Some((found.value, NodesOrigin::File(found.file.to_path_buf())))
    };
    let Some((file, origin)) = flag.or_else(environment).or_else(filed) else {
        return Ok(());
    };
    let secret = Secret::read(&file, "--password-file", Some(PASSWORD_FILE))?;
    secret.check_rights()?;
    let password = secret.text().strip_suffix('\n').unwrap_or(secret.text());
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(secret.refused("it contains no password"));
    }
    nodes.urls = with_password(&nodes.urls, password)
        .map_err(|error| CliFailure::usage(error.to_string()))?;
    nodes.password_file = secret.path_for_command()?;
    nodes.password_origin = Some(origin);
    Ok(())
}

fn find(given: &Global, config: &Config, report: Report) -> Result<Nodes, CliFailure> {
    if let Some(urls) = &given.nodes {
        if has_password(urls) {
            report.warn(
                "every user of this machine can read a password in --nodes (with ps): \
                 put the URLs into a file and name it with --nodes-file",
            );
        }
        return listed(urls.clone(), NodesOrigin::Flag("--nodes"));
    }
    if let Some(file) = &given.nodes_file {
        return filed(file, NodesOrigin::Flag("--nodes-file"));
    }
    match (env::var_os(NODES), path_in(NODES_FILE)) {
        (Some(_), Some(_)) => Err(CliFailure::usage(format!(
            "both {NODES} and {NODES_FILE} are set and may name different nodes: \
             unset one of them, or use --nodes or --nodes-file"
        ))),
        (Some(urls), None) => match urls.into_string() {
            Ok(urls) => listed(urls, NodesOrigin::Environment(NODES)),
            Err(_) => Err(CliFailure::usage(format!("{NODES} is not UTF-8"))),
        },
        (None, Some(file)) => filed(&file, NodesOrigin::Environment(NODES_FILE)),
        (None, None) => configured(config),
    }
}

/// The nodes of the first config file that names some, or the file of the user.
fn configured(config: &Config) -> Result<Nodes, CliFailure> {
    let urls = |file: &config::ConfigFile| file.nodes.clone();
    let file = |file: &config::ConfigFile| file.nodes_file.clone();
    match config.first(|of| urls(of).map(Ok).or_else(|| file(of).map(Err))) {
        Some(found) => {
            let origin = NodesOrigin::File(found.file.to_path_buf());
            match found.value {
                Ok(urls) => listed(urls, origin),
                Err(file) => filed(&file, origin),
            }
        }
        None => Ok(Nodes::of(default_file()?, NodesOrigin::Default)),
    }
}

fn listed(urls: String, origin: NodesOrigin) -> Result<Nodes, CliFailure> {
    if urls.trim().is_empty() {
        return Err(CliFailure::usage(format!(
            "--nodes (or {NODES}) is empty; leave it out to use this user's own file"
        )));
    }
    Ok(Nodes::of(urls, origin))
}

/// The nodes in a file: URLs separated by commas or newlines. A line that begins with `#` is a
/// comment.
fn filed(file: &Path, origin: NodesOrigin) -> Result<Nodes, CliFailure> {
    let secret = Secret::read(file, "--nodes-file", Some(NODES_FILE))?;
    let urls = urls_in(secret.text());
    if urls.is_empty() {
        return Err(secret.refused("it names no node"));
    }
    if has_password(&urls) {
        secret.check_rights()?;
    }
    // These errors show the line, which is a password if the wrong file was named.
    if let Err(UrlError::Scheme(_) | UrlError::SchemeMissing { .. }) = parse_nodes(&urls) {
        return Err(secret.refused(
            "a line of it is not the URL of a node, such as redis://host:6379 (a file with a \
             password is named with --password-file)",
        ));
    }
    Ok(Nodes {
        file: secret.path_for_command()?,
        ..Nodes::of(urls, origin)
    })
}

/// The URLs in the text of a nodes file, separated by commas.
pub(crate) fn urls_in(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let urls: Vec<&str> = lines.map(|line| line.trim_matches(',').trim()).collect();
    urls.join(",")
}

/// Whether a list contains a password. A list that cannot be parsed may contain one.
pub(crate) fn has_password(urls: &str) -> bool {
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
