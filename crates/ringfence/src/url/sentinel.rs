//! Parses the URL of a group with Sentinels:
//! `redis+sentinel://[USER:PASSWORD@]HOST[:26379],HOST,…/SERVICE[/DB]?…`.

use super::redis::{decode, parse_host, split_authority};
use super::{Address, RedisUrl, Scheme, SentinelLogin, Service, TlsFiles, UrlError};

/// The port of a Sentinel that names none.
const DEFAULT_PORT: u16 = 26379;

pub(super) fn parse_sentinel(scheme: Scheme, rest: &str) -> Result<RedisUrl, UrlError> {
    let (authority, tail) = split_authority(rest);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    // A comma before the `@` may be a part of the password, or separate two nodes.
    if path.contains('#') || query.contains('#') || credentials.contains(',') {
        return Err(UrlError::Credentials);
    }
    let hosts = hosts.split(',').map(str::trim);
    let sentinels = hosts
        .map(|host| match parse_host(scheme, host, DEFAULT_PORT)? {
            Address::Tcp(host, port) => Ok((host, port)),
            other => Err(UrlError::Port(other.to_string())),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(twice) = sentinels
        .iter()
        .enumerate()
        .find(|(i, one)| sentinels[..*i].contains(one))
    {
        let (host, port) = twice.1.clone();
        return Err(UrlError::Twice(Address::Tcp(host, port).to_string()));
    }
    let path = path.strip_prefix('/').unwrap_or(path);
    let (service, db) = match path.split_once('/') {
        Some((service, db)) => (service, Some(db)),
        None => (path, None),
    };
    let service = decode(service)?;
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if service.is_empty() || service.contains(odd) {
        return Err(UrlError::Service(scheme.prefix()));
    }
    let address = Address::Service(Service { service, sentinels });
    let db = match db {
        None | Some("") => None,
        Some(db) => Some(
            db.parse()
                .map_err(|_| UrlError::Database(address.to_string()))?,
        ),
    };
    let mut url = RedisUrl::new(scheme, address, credentials)?;
    url.sentinel = Some(SentinelLogin {
        tls: url.tls.is_some().then(TlsFiles::default),
        ..SentinelLogin::default()
    });
    url.read_parameters(scheme, query, db)?;
    // The Sentinels use the authority and the identity of the servers, unless the URL says
    // otherwise.
    if let (Some(tls), Some(login)) = (&url.tls, &mut url.sentinel)
        && let Some(own) = &mut login.tls
    {
        own.ca = own.ca.take().or_else(|| tls.ca.clone());
        own.identity.clone_from(&tls.identity);
    }
    Ok(url)
}

/// Splits a list of nodes at its commas. The commas of a URL with Sentinels separate Sentinels,
/// unless a scheme follows.
pub(super) fn split_list(list: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let text = rest?;
        let of_group =
            Scheme::split(text.trim_start()).is_some_and(|(scheme, _)| scheme.is_sentinel());
        let end = text
            .match_indices(',')
            .map(|(at, _)| at)
            .find(|at| !of_group || begins_with_scheme(text[at + 1..].trim_start()));
        let (part, after) = match end {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        rest = after;
        Some(part.trim())
    })
}

/// Whether `text` begins with a scheme, known or not.
fn begins_with_scheme(text: &str) -> bool {
    let unknown = || {
        let word = text.split("://").next().unwrap_or_default();
        let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        word.len() < text.len() && !word.is_empty() && word.chars().all(in_scheme)
    };
    Scheme::split(text).is_some() || unknown()
}
