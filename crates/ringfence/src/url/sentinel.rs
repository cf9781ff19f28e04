//! Parses the URL of a group with Sentinels:
//! `redis+sentinel://[USER:PASSWORD@]HOST[:26379],HOST,…/SERVICE[/DB]?…`.

use std::fmt;

use super::redis::{decode, parse_host, split_authority};
use super::{Address, RedisUrl, Scheme, TlsFiles, UrlError};

/// The port of a Sentinel that names none.
const DEFAULT_PORT: u16 = 26379;

/// How to log in to the Sentinels of a group.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SentinelLogin {
    /// The ACL user (`?sentinel_user=`).
    pub user: Option<String>,
    /// The password (`?sentinel_password=`). Never shown.
    pub password: Option<String>,
    /// TLS, if the scheme asks for it; `?sentinel_ca=` names its trusted roots.
    pub tls: Option<TlsFiles>,
}

/// A service and its Sentinels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Service {
    /// The name under which the Sentinels monitor the master.
    pub service: String,
    /// The Sentinels: host, lower case and without brackets, and port.
    pub sentinels: Vec<(String, u16)>,
}

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
    url.sentinel = Some(Box::new(SentinelLogin {
        tls: url.tls.is_some().then(TlsFiles::default),
        ..SentinelLogin::default()
    }));
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

impl Address {
    /// What two nodes must not share: the address, or for a service each of its Sentinels with its
    /// name.
    pub(super) fn places(&self) -> impl Iterator<Item = (Option<&str>, Self)> {
        let (service, sentinels) = match self {
            Self::Service(Service { service, sentinels }) => {
                (Some(service.as_str()), sentinels.as_slice())
            }
            Self::Tcp(..) | Self::Unix(_) => (None, [].as_slice()),
        };
        let own = sentinels.is_empty().then(|| self.clone());
        let sentinels = sentinels.iter().cloned();
        let sentinels = sentinels.map(|(host, port)| Self::Tcp(host, port));
        own.into_iter()
            .chain(sentinels)
            .map(move |place| (service, place))
    }
}

impl fmt::Debug for SentinelLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentinelLogin({:?})", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refused, single};
    use super::super::{NodeUrl, parse_nodes};
    use super::*;

    fn service(name: &str, sentinels: &[(&str, u16)]) -> Address {
        let sentinels = sentinels
            .iter()
            .map(|(host, port)| ((*host).to_owned(), *port));
        Address::Service(Service {
            service: name.to_owned(),
            sentinels: sentinels.collect(),
        })
    }

    #[test]
    fn a_service_has_sentinels_and_a_name() {
        let url = single(
            "redis+sentinel://u:p%2C@A,b:7000,[::1]/orders/3?sentinel_user=w&sentinel_password=q",
        );
        let sentinels = [("a", 26379), ("b", 7000), ("::1", 26379)];
        assert_eq!(url.address, service("orders", &sentinels));
        assert_eq!(
            (url.user.as_deref(), url.password.as_deref()),
            (Some("u"), Some("p,"))
        );
        let login = url.sentinel.clone().unwrap();
        assert_eq!(
            (login.user.as_deref(), login.password.as_deref()),
            (Some("w"), Some("q"))
        );
        assert_eq!((url.db, login.tls), (3, None));
        assert_eq!(url.address.to_string(), "orders@a:26379,b:7000,[::1]:26379");
        assert_eq!(
            url.to_string(),
            "redis+sentinel://u@a:26379,b:7000,[::1]:26379/orders/3"
        );
        assert_eq!(
            single("valkey+sentinel://a/s").address,
            service("s", &[("a", 26379)])
        );
    }

    #[test]
    fn sentinels_use_the_tls_files_of_the_servers_unless_they_have_their_own() {
        let url = single("rediss+sentinel://a/s?ca=/x&cert=/c&key=/k");
        let tls = url.sentinel.unwrap().tls.unwrap();
        assert_eq!(
            (tls.ca, tls.identity),
            (Some("/x".into()), Some(("/c".into(), "/k".into())))
        );
        let url = single("valkeys+sentinel://a/s?ca=/x&sentinel_ca=/y");
        assert_eq!(url.tls.unwrap().ca, Some("/x".into()));
        assert_eq!(url.sentinel.unwrap().tls.unwrap().ca, Some("/y".into()));
    }

    #[test]
    fn a_group_may_be_one_of_several_nodes() {
        let nodes =
            parse_nodes("redis+sentinel://a,b,c/s, redis://d, rediss+sentinel://a,e/t?db=1")
                .unwrap();
        let shown: Vec<_> = nodes
            .iter()
            .map(|node| match node {
                NodeUrl::Redis(url) => url.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            "redis+sentinel://a:26379,b:26379,c:26379/s",
            "redis://d:6379",
            "rediss+sentinel://a:26379,e:26379/t/1",
        ];
        assert_eq!(shown, expected);
        for twice in [
            "redis+sentinel://a,b/s,redis+sentinel://c,b/s",
            "redis+sentinel://a,A./s",
        ] {
            assert!(matches!(refused(twice), UrlError::Twice(_)), "{twice}");
        }
    }

    #[test]
    fn each_mistake_in_a_service_has_its_error() {
        for list in [
            "redis+sentinel://a",
            "redis+sentinel://a,b/",
            "redis+sentinel://a?db=1",
        ] {
            assert_eq!(
                refused(list),
                UrlError::Service("redis+sentinel://"),
                "{list}"
            );
        }
        assert_eq!(
            refused("redis+sentinel:///s"),
            UrlError::Host("redis+sentinel://")
        );
        assert_eq!(
            refused("redis+sentinel://a,,b/s"),
            UrlError::Host("redis+sentinel://")
        );
        assert_eq!(
            refused("redis+sentinel://a:0/s"),
            UrlError::Port("a".into())
        );
        assert_eq!(
            refused("redis+sentinel://a/s/x"),
            UrlError::Database("s@a:26379".into())
        );
        for unknown in [
            "redis+sentinel://a/s?sentinel_ca=/x",
            "redis+sentinel://a/s?sentinel_pass=x",
            "redis://a?sentinel_password=x",
        ] {
            assert!(
                matches!(refused(unknown), UrlError::Parameter { .. }),
                "{unknown}"
            );
        }
        assert_eq!(
            refused("redis+sentinel://a/s,etcd://b"),
            UrlError::Scheme("etcd://b".into())
        );
    }
}
