//! Which nodes are meant: those given, or a file that every machine can have. Passwords come from
//! files, so that they stand neither in `ps` nor in the environment of a command.

use std::env;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};

use ringfence::node::sqlite::SqliteNode;
use ringfence::url::{NodeUrl, RedisUrl, parse_nodes, with_password, without_passwords};

use crate::args::Global;
use crate::report::{Failure, Report};

/// The environment that says which nodes are meant.
pub(crate) const NODES: &str = "RINGFENCE_NODES";
pub(crate) const NODES_FILE: &str = "RINGFENCE_NODES_FILE";
const PASSWORD_FILE: &str = "RINGFENCE_PASSWORD_FILE";

/// More than any list of nodes needs.
const FILE_MAX_BYTES: u64 = 64 * 1024;

/// The nodes to take locks on.
pub(crate) struct Nodes {
    /// As the library takes them, with passwords: never shown, never handed on.
    urls: String,
    /// The file that they came from, if a command can read it again.
    file: Option<PathBuf>,
    /// The file that the password came from, likewise.
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

    /// What is asked of the library.
    pub(crate) fn urls(&self) -> &str {
        &self.urls
    }

    /// What a command is told, so that a `ringfence` in it finds the same nodes: never a password.
    pub(crate) fn env(&self) -> (&'static str, String) {
        match self.file.as_deref().and_then(Path::to_str) {
            Some(file) => (NODES_FILE, file.to_owned()),
            None => (NODES, without_passwords(&self.urls).unwrap_or_default()),
        }
    }

    /// Where a `ringfence` in a command finds the password, if it came from a file of its own.
    pub(crate) fn password_env(&self) -> Option<(&'static str, String)> {
        let file = self.password_file.as_deref().and_then(Path::to_str)?;
        Some((PASSWORD_FILE, file.to_owned()))
    }
}

/// The nodes to take locks on: those given, or the file in the user's state folder.
pub(crate) fn resolve(given: &Global, report: Report) -> Result<Nodes, Failure> {
    let nodes = locate(given, report)?;
    let parsed = parse_nodes(&nodes.urls).unwrap_or_default();
    // The library has it for tests: nobody outside this process would see the lock.
    if parsed.iter().any(|node| matches!(node, NodeUrl::Memory(_))) {
        return Err(Failure::usage(
            "locks in memory: exclude nobody; leave --nodes out to use this user's own file",
        ));
    }
    Ok(nodes)
}

/// The nodes that are meant, fit for locks or not.
pub(crate) fn locate(given: &Global, report: Report) -> Result<Nodes, Failure> {
    let mut nodes = find(given, report)?;
    let password_file = given
        .password_file
        .clone()
        .or_else(|| path_in(PASSWORD_FILE));
    if let Some(file) = password_file {
        let secret = Secret::read(&file, "--password-file", PASSWORD_FILE)?;
        secret.check_rights()?;
        let password = secret.text.strip_suffix('\n').unwrap_or(&secret.text);
        let password = password.strip_suffix('\r').unwrap_or(password);
        if password.is_empty() {
            return Err(secret.refused("it has no password in it"));
        }
        nodes.urls = with_password(&nodes.urls, password)
            .map_err(|error| Failure::usage(error.to_string()))?;
        nodes.password_file = secret.again()?;
    }
    warn_of_exposure(&nodes.urls, report);
    Ok(nodes)
}

fn find(given: &Global, report: Report) -> Result<Nodes, Failure> {
    if let Some(urls) = &given.nodes {
        if has_password(urls) {
            report.warn(
                "a password in --nodes can be read by every user of this machine (ps): \
                 put the URLs into a file and name it with --nodes-file",
            );
        }
        return listed(urls.clone());
    }
    if let Some(file) = &given.nodes_file {
        return filed(file);
    }
    match (env::var_os(NODES), path_in(NODES_FILE)) {
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "both {NODES} and {NODES_FILE} are set, and they may name different nodes: \
             unset one of them, or use --nodes or --nodes-file"
        ))),
        (Some(urls), None) => match urls.into_string() {
            Ok(urls) => listed(urls),
            Err(_) => Err(Failure::usage(format!("{NODES} is not UTF-8"))),
        },
        (None, Some(file)) => filed(&file),
        (None, None) => Ok(Nodes::of(default_file()?)),
    }
}

fn listed(urls: String) -> Result<Nodes, Failure> {
    if urls.trim().is_empty() {
        return Err(Failure::usage(format!(
            "--nodes (or {NODES}) is empty; leave it out to use this user's own file"
        )));
    }
    Ok(Nodes::of(urls))
}

/// The nodes in a file: URLs separated by commas or line ends; a line may be a `#` comment.
fn filed(file: &Path) -> Result<Nodes, Failure> {
    let secret = Secret::read(file, "--nodes-file", NODES_FILE)?;
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
        file: secret.again()?,
        ..Nodes::of(urls)
    })
}

/// Whether a list has a password in it; what cannot be read may have one.
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
            "the password for {} crosses the network unencrypted: use rediss:// (TLS)",
            exposed.join(", ")
        ));
    }
}

/// A file that may have a password in it, as it was read.
struct Secret<'f> {
    file: &'f Path,
    option: &'static str,
    text: String,
    metadata: Metadata,
}

impl<'f> Secret<'f> {
    fn read(file: &'f Path, option: &'static str, variable: &str) -> Result<Self, Failure> {
        let told = |error: io::Error| {
            let file = file.display().to_string();
            let file = file.escape_debug();
            Failure::usage(format!("{file} ({option} or {variable}): {error}"))
        };
        let opened = File::open(file).map_err(told)?;
        let metadata = opened.metadata().map_err(told)?;
        let mut text = String::new();
        let mut limited = opened.take(FILE_MAX_BYTES + 1);
        limited.read_to_string(&mut text).map_err(told)?;
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

    /// Refuses a file with a password that every user may read, or change.
    fn check_rights(&self) -> Result<(), Failure> {
        let mode = self.metadata.mode() & 0o7777;
        if mode & 0o006 == 0 {
            return Ok(());
        }
        Err(self.refused(&format!(
            "it has a password in it, and its mode {mode:04o} lets every user read or change it: \
             chmod it to 0600 or 0640 (a Kubernetes secret: `defaultMode: 0400`)"
        )))
    }

    /// The file by a path that a command may read it by; none for a pipe, which is read once.
    fn again(&self) -> io::Result<Option<PathBuf>> {
        let again = self.metadata.is_file().then(|| path::absolute(self.file));
        again.transpose()
    }

    fn refused(&self, why: &str) -> Failure {
        let file = self.file.display().to_string();
        let (file, option) = (file.escape_debug(), self.option);
        Failure::usage(format!("{file} ({option}) was not used: {why}"))
    }
}

/// The path in a variable of the environment.
fn path_in(variable: &str) -> Option<PathBuf> {
    let value: Option<OsString> = env::var_os(variable);
    value.map(PathBuf::from)
}

fn default_file() -> Result<String, Failure> {
    let path = SqliteNode::default_path()
        .map_err(|error| Failure::usage(format!("{error} (--nodes sqlite:/path)")))?;
    match path.to_str() {
        Some(path) => Ok(format!("sqlite:{path}")),
        None => Err(Failure::usage(format!(
            "{} is not UTF-8; name another file with --nodes sqlite:/path",
            path.display().to_string().escape_debug()
        ))),
    }
}
