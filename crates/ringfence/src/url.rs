//! Node URLs, checked before any request is sent. An error quotes what the user wrote, but never a
//! password, not even if the password is the mistake.

mod password;
mod redis;
mod sentinel;

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::group::Failover;

pub(crate) use password::encode;
pub use password::{with_password, without_passwords};
use redis::{parse_redis, split_authority};
pub use sentinel::{SentinelLogin, Service};
use sentinel::{parse_sentinel, split_list};

/// One node, as its URL describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeUrl {
    /// A Redis or Valkey server.
    Redis(RedisUrl),
    /// An embedded file.
    Sqlite(PathBuf),
    /// The memory of this process. The label distinguishes several such nodes.
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
    /// What a failover behind a single server costs: `?failover=quarantine`, `lossless` or
    /// `ignore`. `?quarantine=on` for a single server means `quarantine`, too.
    pub failover: Option<Failover>,
    /// The user states that every write is on disk before it is answered (`?durable=yes`).
    /// Refused if the server's configuration contradicts it; trusted if the configuration cannot
    /// be read.
    pub durable: bool,
    /// Whether a server that may evict keys is accepted (`?eviction=allow`), as best effort.
    pub eviction_allowed: bool,
    /// TLS, if the scheme asks for it.
    pub tls: Option<TlsFiles>,
    /// How to log in to the Sentinels, if the address is a service behind Sentinels.
    pub sentinel: Option<Box<SentinelLogin>>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// Host, lower case and without brackets, and port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// The master of a service, which Sentinels name.
    Service(Service),
}

/// The files that a TLS connection needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The trusted roots (`?ca=`), in PEM, instead of the system's.
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
    /// The scheme is unknown or missing.
    #[error(
        "unknown scheme in `{0}`: expected redis://, rediss://, valkey://, valkeys://, \
         redis+unix://, redis+sentinel://, rediss+sentinel://, sqlite: or memory:"
    )]
    Scheme(String),
    /// A node after the first has no scheme.
    #[error(
        "`{node}` has no scheme: write `{scheme}{node}`, since every node of the list is a URL of its \
         own"
    )]
    SchemeMissing {
        /// The scheme of the first node.
        scheme: &'static str,
        /// What the user wrote.
        node: String,
    },
    /// The host is missing.
    #[error("a host is missing after `{0}`")]
    Host(&'static str),
    /// The port is not a number from 1 to 65535.
    #[error("the port of `{0}` must be a number from 1 to 65535")]
    Port(String),
    /// The database is not a number, or given twice and differently.
    #[error("the database of `{0}` must be one number, given as `/2` or as `?db=2`")]
    Database(String),
    /// The parameter is unknown, or not allowed for this scheme.
    #[error("unknown parameter `{parameter}` for `{node}`")]
    Parameter {
        /// The parameter's name.
        parameter: String,
        /// The node's address.
        node: String,
    },
    /// The parameter's value is invalid.
    #[error("the parameter `{parameter}` of `{node}` must be {expected}")]
    Value {
        /// The parameter's name.
        parameter: &'static str,
        /// The node's address.
        node: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The user or password has characters that are not allowed there unless encoded.
    #[error(
        "user and password of a node must be percent-encoded (`/`, `?`, `#`, `,`, `@`, `%`), and a \
         node with a user needs its scheme, as in `redis://a,redis://user@b`"
    )]
    Credentials,
    /// A percent sign without two hexadecimal digits.
    #[error("a `%` in a node's URL must be followed by two hexadecimal digits (`%25` is a `%`)")]
    Encoding,
    /// The name of the service is missing.
    #[error("a service is missing after `{0}`: write redis+sentinel://HOST,HOST,HOST/SERVICE")]
    Service(&'static str),
    /// The path of a file or socket is missing.
    #[error("a path is missing after `{0}`")]
    Path(&'static str),
    /// The same server twice: its vote would count twice.
    #[error("the node {0} is given twice; each node must be a different server")]
    Twice(String),
    /// An embedded node among several nodes.
    #[error("`{0}` cannot be one of several nodes: only this machine can reach it")]
    Embedded(&'static str),
}

/// Parses a list of node URLs separated by commas, each with its scheme. Commas between the Sentinels
/// of one URL do not separate nodes.
///
/// # Errors
/// If a part is unknown, ambiguous or given twice. The error never shows a password.
pub fn parse_nodes(list: &str) -> Result<Vec<NodeUrl>, UrlError> {
    refuse_cut_credentials(list)?;
    let mut nodes = Vec::new();
    let mut first_scheme: Option<Scheme> = None;
    for part in split_list(list) {
        if part.is_empty() {
            return Err(UrlError::Empty);
        }
        let (scheme, rest) = match (Scheme::split(part), first_scheme) {
            (Some(found), _) => found,
            (None, Some(scheme)) if !part.contains("//") => {
                return Err(UrlError::SchemeMissing {
                    scheme: scheme.prefix(),
                    node: without_credentials(part),
                });
            }
            (None, _) => return Err(UrlError::Scheme(without_credentials(part))),
        };
        first_scheme.get_or_insert(scheme);
        nodes.push(parse_node(scheme, rest)?);
    }
    check_set(&nodes)?;
    Ok(nodes)
}

/// Refuses a list that may split a password at a comma, before an error can show one half of it
/// as a host. A node without a scheme may have a user only together with a password, and only if
/// all nodes before it have a user too.
fn refuse_cut_credentials(list: &str) -> Result<(), UrlError> {
    let mut all_before = true;
    for part in split_list(list) {
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
            NodeUrl::Redis(url) => {
                if url.address.places().any(|place| !seen.insert(place)) {
                    return Err(UrlError::Twice(url.address.to_string()));
                }
            }
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
    Sentinel,
    TlsSentinel,
    Sqlite,
    Memory,
}

impl Scheme {
    const KNOWN: [(&'static str, Self); 13] = [
        ("redis+sentinel://", Self::Sentinel),
        ("valkey+sentinel://", Self::Sentinel),
        ("rediss+sentinel://", Self::TlsSentinel),
        ("valkeys+sentinel://", Self::TlsSentinel),
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
            Self::Sentinel => "redis+sentinel://",
            Self::TlsSentinel => "rediss+sentinel://",
            Self::Sqlite => "sqlite:",
            Self::Memory => "memory:",
        }
    }

    fn is_sentinel(self) -> bool {
        matches!(self, Self::Sentinel | Self::TlsSentinel)
    }

    fn has_tls(self) -> bool {
        matches!(self, Self::Tls | Self::TlsSentinel)
    }
}

fn parse_node(scheme: Scheme, rest: &str) -> Result<NodeUrl, UrlError> {
    match scheme {
        Scheme::Sqlite if rest.is_empty() => Err(UrlError::Path(scheme.prefix())),
        Scheme::Sqlite => match rest.split_once('?') {
            // Other programs pass parameters to SQLite this way. A file of that name would be new.
            Some((path, query)) => Err(UrlError::Parameter {
                parameter: query
                    .split(['=', '&'])
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                node: format!("sqlite:{}", without_credentials(path)),
            }),
            None => Ok(NodeUrl::Sqlite(PathBuf::from(rest))),
        },
        Scheme::Memory => Ok(NodeUrl::Memory(rest.to_owned())),
        Scheme::Plain | Scheme::Tls | Scheme::Unix | Scheme::Sentinel | Scheme::TlsSentinel => {
            let parsed = match scheme.is_sentinel() {
                true => parse_sentinel(scheme, rest),
                false => parse_redis(scheme, rest),
            };
            parsed.map(NodeUrl::Redis).map_err(|error| {
                // An `@` after the authority means that a `/` or `?` has split a password.
                // The error might then quote half of that password.
                if split_authority(rest).1.contains('@') {
                    UrlError::Credentials
                } else {
                    error
                }
            })
        }
    }
}

/// `part` without its credentials, for errors.
fn without_credentials(part: &str) -> String {
    let shown = match part.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => part.to_owned(),
    };
    shown.escape_debug().to_string()
}

impl RedisUrl {
    /// Whether the password would cross a network without encryption.
    pub fn exposes_password(&self) -> bool {
        let local = match &self.address {
            Address::Tcp(host, _) => is_local(host),
            Address::Unix(_) => true,
            Address::Service(Service { sentinels, .. }) => {
                sentinels.iter().all(|(host, _)| is_local(host))
            }
        };
        let of_sentinels = |login: &SentinelLogin| login.password.is_some();
        let any = self.password.is_some() || self.sentinel.as_deref().is_some_and(of_sentinels);
        any && self.tls.is_none() && !local
    }
}

fn is_local(host: &str) -> bool {
    let ip: Result<IpAddr, _> = host.parse();
    match ip {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{}:{port}", host.escape_debug()),
            Self::Unix(path) => write!(f, "{}", path.display().to_string().escape_debug()),
            Self::Service(Service { service, sentinels }) => {
                write!(f, "{}@", service.escape_debug())?;
                let hosts = sentinels.iter().cloned();
                let hosts = hosts.map(|(host, port)| Self::Tcp(host, port).to_string());
                f.write_str(&hosts.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// The URL without its password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (&self.address, &self.tls) {
            (Address::Unix(_), _) => "redis+unix://",
            (Address::Service(_), Some(_)) => "rediss+sentinel://",
            (Address::Service(_), None) => "redis+sentinel://",
            (_, Some(_)) => "rediss://",
            (_, None) => "redis://",
        })?;
        if let Some(user) = &self.user {
            write!(f, "{}@", user.escape_debug())?;
        }
        match &self.address {
            Address::Service(Service { service, sentinels }) => {
                let hosts = sentinels.iter().cloned();
                let hosts = hosts.map(|(host, port)| Address::Tcp(host, port).to_string());
                let hosts = hosts.collect::<Vec<_>>().join(",");
                write!(f, "{hosts}/{}", encode(service))?;
            }
            address => write!(f, "{address}")?,
        }
        match (&self.address, self.db) {
            (_, 0) => Ok(()),
            (Address::Tcp(..) | Address::Service(_), db) => write!(f, "/{db}"),
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
