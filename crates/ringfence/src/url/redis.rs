//! Parses the URL of a Redis or Valkey server: credentials, address, database and parameters.

use std::net::Ipv6Addr;

use super::{Address, RedisUrl, Scheme, SentinelLogin, TlsFiles, UrlError};
use crate::group::Failover;

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 6379;

/// The levels that a URL can name.
const FAILOVER_LEVELS: [Failover; 3] = [Failover::Quarantine, Failover::Lossless, Failover::Ignore];
const OTHER_LEVEL: &str = "left out with `failover=lossless` and `failover=ignore`";

pub(super) fn parse_redis(scheme: Scheme, rest: &str) -> Result<RedisUrl, UrlError> {
    let (authority, tail) = split_authority(rest);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    if path.contains('#') || query.contains('#') {
        return Err(UrlError::Credentials);
    }
    let (credentials, host) = match authority.rsplit_once('@') {
        Some((credentials, host)) => (credentials, host),
        None => ("", authority),
    };
    let (address, db) = if scheme == Scheme::Unix {
        (parse_socket(host, path)?, None)
    } else {
        let address = parse_host(scheme, host, DEFAULT_PORT)?;
        let db = parse_path_db(path, &address)?;
        (address, db)
    };
    let mut url = RedisUrl::new(scheme, address, credentials)?;
    url.read_parameters(scheme, query, db)?;
    Ok(url)
}

impl RedisUrl {
    /// A server at `address`, without parameters.
    pub(super) fn new(
        scheme: Scheme,
        address: Address,
        credentials: &str,
    ) -> Result<Self, UrlError> {
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (decode(user)?, Some(decode(password)?)),
            None => (decode(credentials)?, None),
        };
        Ok(Self {
            address,
            user: (!user.is_empty()).then_some(user),
            password,
            db: 0,
            quarantine: true,
            failover: None,
            durable: false,
            eviction_allowed: false,
            tls: scheme.has_tls().then(TlsFiles::default),
            sentinel: None,
        })
    }

    /// Reads the parameters after the `?`. `db`: the database in the path, if there is one.
    pub(super) fn read_parameters(
        &mut self,
        scheme: Scheme,
        query: &str,
        mut db: Option<u32>,
    ) -> Result<(), UrlError> {
        let (mut cert, mut key, mut said_on) = (None, None, false);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            if self.read_sentinel_parameter(name, &value) {
                continue;
            }
            match (name, &mut self.tls) {
                ("db", _) => {
                    let given = value.parse().map_err(|_| self.bad_db())?;
                    if db.is_some_and(|db| db != given) {
                        return Err(self.bad_db());
                    }
                    db = Some(given);
                }
                ("quarantine", _) => {
                    self.quarantine =
                        self.flag("quarantine", &value, ["on", "off"], "`on` or `off`")?;
                    said_on = self.quarantine;
                }
                ("failover", _) => self.failover = Some(self.failover_level(&value)?),
                ("durable", _) => {
                    self.durable = self.flag("durable", &value, ["yes", "no"], "`yes` or `no`")?;
                }
                ("eviction", _) => {
                    self.eviction_allowed = self.flag(
                        "eviction",
                        &value,
                        ["allow", "refuse"],
                        "`allow` or `refuse`",
                    )?;
                }
                ("user", _) if scheme == Scheme::Unix => self.user = Some(value),
                ("pass", _) if scheme == Scheme::Unix => self.password = Some(value),
                ("ca", Some(tls)) => tls.ca = Some(value.into()),
                ("cert", Some(_)) => cert = Some(value.into()),
                ("key", Some(_)) => key = Some(value.into()),
                _ => {
                    return Err(UrlError::Parameter {
                        parameter: name.escape_debug().to_string(),
                        node: self.address.to_string(),
                    });
                }
            }
        }
        self.db = db.unwrap_or_default();
        self.settle_failover(said_on)?;
        match (&mut self.tls, cert, key) {
            (Some(tls), Some(cert), Some(key)) => tls.identity = Some((cert, key)),
            (_, None, None) => {}
            _ => return Err(self.bad_value("cert", "given together with `key`")),
        }
        Ok(())
    }

    fn failover_level(&self, value: &str) -> Result<Failover, UrlError> {
        let level = FAILOVER_LEVELS
            .into_iter()
            .find(|level| level.word() == value);
        level.ok_or_else(|| self.bad_value("failover", "`quarantine`, `lossless` or `ignore`"))
    }

    /// Settles the failover level after all parameters were read. `said_on`: `quarantine=on`.
    fn settle_failover(&mut self, said_on: bool) -> Result<(), UrlError> {
        if self.failover == Some(Failover::Quarantine) && !self.quarantine {
            return Err(self.bad_value("quarantine", "left out with `failover=quarantine`"));
        }
        if said_on {
            match self.failover.replace(Failover::Quarantine) {
                None | Some(Failover::Quarantine) => {}
                Some(_) => return Err(self.bad_value("quarantine", OTHER_LEVEL)),
            }
        }
        Ok(())
    }

    /// Reads a parameter of the Sentinels. Returns false if it is none, or there are no Sentinels.
    fn read_sentinel_parameter(&mut self, name: &str, value: &str) -> bool {
        let Some(SentinelLogin {
            user,
            password,
            tls,
        }) = self.sentinel.as_deref_mut()
        else {
            return false;
        };
        match (name, tls) {
            ("sentinel_user" | "sentinel_username", _) => *user = Some(value.to_owned()),
            ("sentinel_password", _) => *password = Some(value.to_owned()),
            ("sentinel_ca", Some(tls)) => tls.ca = Some(value.into()),
            _ => return false,
        }
        true
    }

    /// Whether `value` is the first of two words. Any other value than the two is an error.
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

/// Splits after the authority. The tail begins with the delimiter.
pub(super) fn split_authority(rest: &str) -> (&str, &str) {
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

pub(super) fn parse_host(
    scheme: Scheme,
    text: &str,
    default_port: u16,
) -> Result<Address, UrlError> {
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
        None => default_port,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            // Do not show the text: in `redis://user:pa,ss@host` it is half of a password.
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

/// Decodes percent-encoding.
pub(super) fn decode(text: &str) -> Result<String, UrlError> {
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
