//! Node URLs: what a user may write, checked before anything is sent. A mistake is told in terms of
//! what was written; a password is never shown, not even when it is part of the mistake.

mod password;

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

#[cfg(feature = "redis")]
pub(crate) use password::encode;
pub use password::{with_password, without_passwords};

/// The port of a Redis URL that names none.
const DEFAULT_PORT: u16 = 6379;

/// One node, as its URL describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeUrl {
    /// A Redis or Valkey server.
    Redis(RedisUrl),
    /// An embedded file.
    Sqlite(PathBuf),
    /// The memory of this process; the label tells several apart.
    Memory(String),
}

/// A Redis or Valkey server, as its URL describes it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// Where it listens.
    pub address: Address,
    /// The ACL user.
    pub user: Option<String>,
    /// The password. Never shown.
    pub password: Option<String>,
    /// The database.
    pub db: u32,
    /// Whether a restart is followed by a quarantine. `?quarantine=off` is for development only.
    pub quarantine: bool,
    /// The user's word that every write is on disk before it is answered (`?durable=yes`). Where the
    /// server says otherwise it is refused; where it does not say, it is believed.
    pub durable: bool,
    /// Whether a server that may evict keys is put up with (`?eviction=allow`), as best effort.
    pub eviction_allowed: bool,
    /// TLS, if the scheme asks for it.
    pub tls: Option<TlsFiles>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// Host, lower case and without brackets, and port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The files that a TLS connection needs beyond the system's trusted roots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// More trusted roots (`?ca=`), in PEM.
    pub ca: Option<PathBuf>,
    /// The client's certificate and key (`?cert=`, `?key=`), in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why a list of nodes was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// Nothing was given, or nothing between two commas.
    #[error("a node is missing: expected URLs separated by commas, such as `redis://a,redis://b`")]
    Empty,
    /// The scheme is not one that we know, or there is none.
    #[error(
        "unknown scheme in `{0}`: expected redis://, rediss://, valkey://, valkeys://, \
         redis+unix://, sqlite: or memory:"
    )]
    Scheme(String),
    /// There is no host.
    #[error("a host is missing after `{0}`")]
    Host(&'static str),
    /// The port is not a number from 1 to 65535.
    #[error("the port of `{0}` is no number from 1 to 65535")]
    Port(String),
    /// The database is not a number, or given twice and differently.
    #[error("the database of `{0}` must be one number, given as `/2` or as `?db=2`")]
    Database(String),
    /// The parameter is not one that we know, or not for this scheme.
    #[error("unknown parameter `{parameter}` for `{node}`")]
    Parameter {
        /// The parameter's name.
        parameter: String,
        /// The node's address.
        node: String,
    },
    /// The parameter's value makes no sense.
    #[error("the parameter `{parameter}` of `{node}` must be {expected}")]
    Value {
        /// The parameter's name.
        parameter: &'static str,
        /// The node's address.
        node: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The user or password has characters that end the part of the URL it stands in.
    #[error(
        "user and password of a node must be percent-encoded (`/`, `?`, `#`, `,`, `@`, `%`), and a node \
         with a user needs its scheme, as in `redis://a,redis://user@b`"
    )]
    Credentials,
    /// A percent sign that encodes nothing.
    #[error("a `%` in a node's URL must be followed by two hexadecimal digits (`%25` is a `%`)")]
    Encoding,
    /// The path of a file or socket is missing.
    #[error("a path is missing after `{0}`")]
    Path(&'static str),
    /// The same server twice: its vote would count double.
    #[error("the node {0} is given twice; each must be a server of its own")]
    Twice(String),
    /// An embedded node among several.
    #[error("`{0}` cannot be one of several nodes: it lives on this machine alone")]
    Embedded(&'static str),
}

/// Reads a list of node URLs separated by commas. A later one without a scheme has the first one's:
/// `redis://a,b:7000`.
///
/// # Errors
/// If anything is unknown, ambiguous or given twice. The error never shows a password.
pub fn parse_nodes(list: &str) -> Result<Vec<NodeUrl>, UrlError> {
    refuse_cut_credentials(list)?;
    let mut nodes = Vec::new();
    let mut first_scheme = None;
    for part in list.split(',').map(str::trim) {
        if part.is_empty() {
            return Err(UrlError::Empty);
        }
        let (scheme, rest) = match (Scheme::split(part), first_scheme) {
            (Some(found), _) => found,
            (None, Some(scheme)) if !part.contains(':') || !part.contains("//") => (scheme, part),
            (None, _) => return Err(UrlError::Scheme(without_credentials(part))),
        };
        first_scheme.get_or_insert(scheme);
        nodes.push(parse_node(scheme, rest)?);
    }
    check_set(&nodes)?;
    Ok(nodes)
}

/// Refuses what may be halves of a password with a comma in it, before any half can be taken for a host
/// and shown. A later node without a scheme may have a user only if all before it have one, too, and
/// only with a password.
fn refuse_cut_credentials(list: &str) -> Result<(), UrlError> {
    let mut all_before = true;
    for part in list.split(',').map(str::trim) {
        let credentials = part.rsplit_once('@').map(|(credentials, _)| credentials);
        let whole = |credentials: &str| all_before && credentials.contains(':');
        if Scheme::split(part).is_none() && !credentials.is_none_or(whole) {
            return Err(UrlError::Credentials);
        }
        all_before &= credentials.is_some();
    }
    Ok(())
}

fn check_set(nodes: &[NodeUrl]) -> Result<(), UrlError> {
    let mut seen = HashSet::new();
    for node in nodes {
        match node {
            NodeUrl::Redis(url) if !seen.insert(&url.address) => {
                return Err(UrlError::Twice(url.address.to_string()));
            }
            NodeUrl::Redis(_) => {}
            NodeUrl::Sqlite(_) if nodes.len() > 1 => return Err(UrlError::Embedded("sqlite:")),
            NodeUrl::Memory(_) if nodes.len() > 1 => return Err(UrlError::Embedded("memory:")),
            NodeUrl::Sqlite(_) | NodeUrl::Memory(_) => {}
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Plain,
    Tls,
    Unix,
    Sqlite,
    Memory,
}

impl Scheme {
    const KNOWN: [(&'static str, Self); 9] = [
        ("redis+unix://", Self::Unix),
        ("valkey+unix://", Self::Unix),
        ("unix://", Self::Unix),
        ("rediss://", Self::Tls),
        ("valkeys://", Self::Tls),
        ("redis://", Self::Plain),
        ("valkey://", Self::Plain),
        ("sqlite:", Self::Sqlite),
        ("memory:", Self::Memory),
    ];

    fn split(part: &str) -> Option<(Self, &str)> {
        Self::KNOWN.into_iter().find_map(|(prefix, scheme)| {
            let head = part.get(..prefix.len())?;
            head.eq_ignore_ascii_case(prefix)
                .then(|| (scheme, &part[prefix.len()..]))
        })
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Plain => "redis://",
            Self::Tls => "rediss://",
            Self::Unix => "redis+unix://",
            Self::Sqlite => "sqlite:",
            Self::Memory => "memory:",
        }
    }
}

fn parse_node(scheme: Scheme, rest: &str) -> Result<NodeUrl, UrlError> {
    match scheme {
        Scheme::Sqlite if rest.is_empty() => Err(UrlError::Path(scheme.prefix())),
        Scheme::Sqlite => Ok(NodeUrl::Sqlite(PathBuf::from(rest))),
        Scheme::Memory => Ok(NodeUrl::Memory(rest.to_owned())),
        Scheme::Plain | Scheme::Tls | Scheme::Unix => {
            parse_redis(scheme, rest)
                .map(NodeUrl::Redis)
                .map_err(|error| {
                    // An `@` after the authority means that a password was cut in two by a `/` or `?`;
                    // whatever the mistake looks like, its words may be half of that password.
                    if split_authority(rest).1.contains('@') {
                        UrlError::Credentials
                    } else {
                        error
                    }
                })
        }
    }
}

fn parse_redis(scheme: Scheme, rest: &str) -> Result<RedisUrl, UrlError> {
    let (authority, tail) = split_authority(rest);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    if path.contains('#') || query.contains('#') {
        return Err(UrlError::Credentials);
    }
    let (credentials, host) = match authority.rsplit_once('@') {
        Some((credentials, host)) => (credentials, host),
        None => ("", authority),
    };
    let (address, mut db) = if scheme == Scheme::Unix {
        (parse_socket(host, path)?, None)
    } else {
        let address = parse_host(scheme, host)?;
        let db = parse_path_db(path, &address)?;
        (address, db)
    };
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (decode(user)?, Some(decode(password)?)),
        None => (decode(credentials)?, None),
    };
    let mut url = RedisUrl {
        address,
        user: (!user.is_empty()).then_some(user),
        password,
        db: 0,
        quarantine: true,
        durable: false,
        eviction_allowed: false,
        tls: (scheme == Scheme::Tls).then(TlsFiles::default),
    };
    let (mut cert, mut key) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decode(value)?;
        match (name, &mut url.tls) {
            ("db", _) => {
                let given = value.parse().map_err(|_| url.bad_db())?;
                if db.is_some_and(|db| db != given) {
                    return Err(url.bad_db());
                }
                db = Some(given);
            }
            ("quarantine", _) => {
                url.quarantine = url.flag("quarantine", &value, ["on", "off"], "`on` or `off`")?;
            }
            ("durable", _) => {
                url.durable = url.flag("durable", &value, ["yes", "no"], "`yes` or `no`")?;
            }
            ("eviction", _) => {
                url.eviction_allowed = url.flag(
                    "eviction",
                    &value,
                    ["allow", "refuse"],
                    "`allow` or `refuse`",
                )?;
            }
            ("user", _) if scheme == Scheme::Unix => url.user = Some(value),
            ("pass", _) if scheme == Scheme::Unix => url.password = Some(value),
            ("ca", Some(tls)) => tls.ca = Some(value.into()),
            ("cert", Some(_)) => cert = Some(value.into()),
            ("key", Some(_)) => key = Some(value.into()),
            _ => {
                return Err(UrlError::Parameter {
                    parameter: name.escape_debug().to_string(),
                    node: url.address.to_string(),
                });
            }
        }
    }
    url.db = db.unwrap_or_default();
    match (&mut url.tls, cert, key) {
        (Some(tls), Some(cert), Some(key)) => tls.identity = Some((cert, key)),
        (_, None, None) => {}
        _ => return Err(url.bad_value("cert", "given together with `key`")),
    }
    Ok(url)
}

/// Splits after the authority; the tail begins with what ended it.
fn split_authority(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

fn parse_socket(host: &str, path: &str) -> Result<Address, UrlError> {
    if !host.is_empty() {
        return Err(UrlError::Path("redis+unix://"));
    }
    let path = decode(path)?;
    if path.len() < 2 {
        return Err(UrlError::Path("redis+unix://"));
    }
    Ok(Address::Unix(path.into()))
}

fn parse_host(scheme: Scheme, text: &str) -> Result<Address, UrlError> {
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, port) = bracketed
            .split_once(']')
            .ok_or(UrlError::Host(scheme.prefix()))?;
        let ip: Ipv6Addr = host.parse().map_err(|_| UrlError::Host(scheme.prefix()))?;
        match port.strip_prefix(':') {
            None if port.is_empty() => (ip.to_string(), None),
            None => return Err(UrlError::Port(ip.to_string())),
            Some(port) => (ip.to_string(), Some(port)),
        }
    } else {
        match text.split_once(':') {
            None => (text.to_ascii_lowercase(), None),
            Some((host, port)) => (host.to_ascii_lowercase(), Some(port)),
        }
    };
    let host = host.strip_suffix('.').unwrap_or(&host).to_owned();
    let odd = |c: char| c.is_whitespace() || c.is_control() || "[]%\\\"'<>".contains(c);
    if host.is_empty() || host.contains(odd) {
        return Err(UrlError::Host(scheme.prefix()));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            // The text itself is not shown: after `redis://user:pa,ss@host` it is a password's half.
            _ => return Err(UrlError::Port(host)),
        },
    };
    Ok(Address::Tcp(host, port))
}

fn parse_path_db(path: &str, address: &Address) -> Result<Option<u32>, UrlError> {
    match path.strip_prefix('/').unwrap_or(path) {
        "" => Ok(None),
        db => match db.parse() {
            Ok(db) => Ok(Some(db)),
            Err(_) => Err(UrlError::Database(address.to_string())),
        },
    }
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |i: usize| tail.get(i).and_then(|&b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(UrlError::Encoding);
        };
        bytes.push((high * 16 + low) as u8);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding)
}

/// `part` as an error may show it.
fn without_credentials(part: &str) -> String {
    let shown = match part.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => part.to_owned(),
    };
    shown.escape_debug().to_string()
}

impl RedisUrl {
    /// Whether a password would cross a network that others may listen to.
    pub fn exposes_password(&self) -> bool {
        let Address::Tcp(host, _) = &self.address else {
            return false;
        };
        let ip: Result<IpAddr, _> = host.parse();
        let local = match ip {
            Ok(ip) => ip.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        };
        self.password.is_some() && self.tls.is_none() && !local
    }

    /// Whether `value` is the first of two words; anything but the two is an error.
    fn flag(
        &self,
        parameter: &'static str,
        value: &str,
        [yes, no]: [&str; 2],
        expected: &'static str,
    ) -> Result<bool, UrlError> {
        if value == yes {
            Ok(true)
        } else if value == no {
            Ok(false)
        } else {
            Err(self.bad_value(parameter, expected))
        }
    }

    fn bad_db(&self) -> UrlError {
        UrlError::Database(self.address.to_string())
    }

    fn bad_value(&self, parameter: &'static str, expected: &'static str) -> UrlError {
        UrlError::Value {
            parameter,
            node: self.address.to_string(),
            expected,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{}:{port}", host.escape_debug()),
            Self::Unix(path) => write!(f, "{}", path.display().to_string().escape_debug()),
        }
    }
}

/// The URL without its password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (&self.address, &self.tls) {
            (Address::Unix(_), _) => "redis+unix://",
            (_, Some(_)) => "rediss://",
            (_, None) => "redis://",
        })?;
        if let Some(user) = &self.user {
            write!(f, "{}@", user.escape_debug())?;
        }
        write!(f, "{}", self.address)?;
        match (&self.address, self.db) {
            (_, 0) => Ok(()),
            (Address::Tcp(..), db) => write!(f, "/{db}"),
            (Address::Unix(_), db) => write!(f, "?db={db}"),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests;
