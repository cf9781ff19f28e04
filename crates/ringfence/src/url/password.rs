//! Removes passwords from a list of node URLs, or adds one. The other parts stay as written.

use super::{Scheme, UrlError, parse_nodes, split_authority, split_list};

/// The list without its passwords. The users stay.
///
/// # Errors
/// If it is not a valid list of nodes: its passwords could not be found then.
pub fn without_passwords(list: &str) -> Result<String, UrlError> {
    parse_nodes(list)?;
    Ok(each_server(list, |server| {
        server.password = None;
        let kept = server.query.split('&').filter(|pair| {
            let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
            match server.scheme {
                Scheme::Unix => name != "pass",
                scheme => !scheme.is_sentinel() || name != "sentinel_password",
            }
        });
        server.query = kept.collect::<Vec<_>>().join("&");
    }))
}

/// The list with `password` for every server that has none.
///
/// # Errors
/// If it is not a valid list of nodes.
pub fn with_password(list: &str, password: &str) -> Result<String, UrlError> {
    parse_nodes(list)?;
    let encoded = encode(password);
    let with = each_server(list, |server| {
        let in_query = server
            .query
            .split('&')
            .any(|pair| pair.starts_with("pass="));
        if server.scheme == Scheme::Unix && !in_query && server.password.is_none() {
            let separator = if server.query.is_empty() { "" } else { "&" };
            server.query += &format!("{separator}pass={encoded}");
        } else if server.scheme != Scheme::Unix && server.password.is_none() {
            server.password = Some(encoded.clone());
        }
    });
    parse_nodes(&with)?;
    Ok(with)
}

/// The parts of one server's URL, as written.
struct Pieces {
    scheme: Scheme,
    user: String,
    password: Option<String>,
    host: String,
    path: String,
    query: String,
}

/// `list`, which is valid, with `change` applied to every server.
fn each_server(list: &str, mut change: impl FnMut(&mut Pieces)) -> String {
    let parts = split_list(list).map(|part| {
        let (scheme, rest) = match Scheme::split(part) {
            None | Some((Scheme::Sqlite | Scheme::Memory, _)) => return part.to_owned(),
            Some(found) => found,
        };
        let prefix = &part[..part.len() - rest.len()];
        let (authority, tail) = split_authority(rest);
        let (credentials, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password.to_owned())),
            None => (credentials, None),
        };
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let mut pieces = Pieces {
            scheme,
            user: user.to_owned(),
            password,
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        };
        change(&mut pieces);
        let credentials = match &pieces.password {
            Some(password) => format!("{}:{password}@", pieces.user),
            None if pieces.user.is_empty() => String::new(),
            None => format!("{}@", pieces.user),
        };
        let mark = if pieces.query.is_empty() { "" } else { "?" };
        let Pieces {
            host, path, query, ..
        } = pieces;
        format!("{prefix}{credentials}{host}{path}{mark}{query}")
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Percent-encodes all characters but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let bytes = text.bytes().map(|byte| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{NodeUrl, RedisUrl};
    use super::*;

    fn servers(list: &str) -> Vec<RedisUrl> {
        let nodes = parse_nodes(list).unwrap().into_iter();
        let servers = nodes.map(|node| match node {
            NodeUrl::Redis(url) => url,
            other => panic!("{other:?}"),
        });
        servers.collect()
    }

    #[test]
    fn passwords_are_removed_and_the_rest_stays() {
        for (with, without) in [
            ("redis://a", "redis://a"),
            ("redis://:secret@a", "redis://a"),
            (
                "redis://u:secret@a,redis://v:other@b:7/2",
                "redis://u@a,redis://v@b:7/2",
            ),
            (
                "valkeys://a,redis://:secret@b?db=2,rediss://c",
                "valkeys://a,redis://b?db=2,rediss://c",
            ),
            ("rediss://u:@[::1]:7?ca=/x", "rediss://u@[::1]:7?ca=/x"),
            ("redis+unix:///s?pass=secret", "redis+unix:///s"),
            ("unix:///s?db=1&pass=secret&user=u", "unix:///s?db=1&user=u"),
            ("redis+unix://u:secret@/s?db=1", "redis+unix://u@/s?db=1"),
            (
                "redis+sentinel://u:secret@a,b:7/s/2?sentinel_password=x&sentinel_user=w,redis://:y@c",
                "redis+sentinel://u@a,b:7/s/2?sentinel_user=w,redis://c",
            ),
            ("sqlite:/a:b@c", "sqlite:/a:b@c"),
            ("memory:x", "memory:x"),
        ] {
            assert_eq!(without_passwords(with).as_deref(), Ok(without), "{with}");
        }
        assert!(without_passwords("redis://u:se/cret@a").is_err());
    }

    proptest! {
        #[test]
        fn an_added_password_can_be_read_and_removed(
            password in any::<String>(),
            users in prop::collection::vec(prop::option::of("[a-z%]{0,3}"), 1..4),
        ) {
            let hosts = users.iter().enumerate().map(|(i, user)| match user {
                Some(user) => format!("redis://{}@h{i}", encode(user)),
                None if i % 2 == 0 => format!("unix:///s{i}"),
                None => format!("rediss://h{i}/3?db=3"),
            });
            let list = hosts.collect::<Vec<_>>().join(",");
            let with = with_password(&list, &password).unwrap();
            let (before, after) = (servers(&list), servers(&with));
            for (mut before, after) in before.into_iter().zip(after) {
                prop_assert_eq!(after.password.as_deref(), Some(&*password));
                before.password.clone_from(&after.password);
                prop_assert_eq!(before, after);
            }
            let without = without_passwords(&with).unwrap();
            prop_assert!(servers(&without).iter().all(|url| url.password.is_none()));
        }
    }
}
