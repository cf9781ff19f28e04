//! Which requests are answered: those for our own host, from our own page, with the token.
//!
//! A page of another site can make a browser send requests to a loopback port. It cannot read the
//! answers, since no CORS header allows that, unless its host name is made to resolve to our
//! address (DNS rebinding). Then the `Host` header still has its name.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::uri::Authority;

use crate::report::CliFailure;
use crate::secret::Secret;

/// The fewest characters of a token. 16 random ones cannot be guessed.
const TOKEN_MIN_CHARS: usize = 16;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// See the module.
#[derive(Debug)]
pub(crate) struct AccessRules {
    token: Option<String>,
    /// The hosts of `--allowed-host`, in lower case.
    hosts: Vec<String>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessRefusal {
    /// The `Host` header is missing, or names a host that is not ours.
    Host,
    /// A page of another site sent it.
    Site,
    /// The token is missing or wrong.
    Token,
}

impl AccessRules {
    /// Every request needs `token`, if there is one.
    pub(crate) fn new(token: Option<String>, hosts: &[String]) -> Result<Self, CliFailure> {
        let mut allowed = Vec::new();
        for host in hosts {
            // With a port it would not match what a browser sends for port 443.
            let parsed = host.parse::<Authority>().ok();
            let Some(parsed) = parsed.filter(|parsed| parsed.as_str() == parsed.host()) else {
                return Err(CliFailure::usage(format!(
                    "--allowed-host {} is not a host name: leave out scheme, port and path",
                    host.escape_debug()
                )));
            };
            allowed.push(parsed.host().to_ascii_lowercase());
        }
        Ok(Self {
            token,
            hosts: allowed,
        })
    }

    /// Whether a request that arrived at the address `local` is for us. Every request has to pass.
    pub(crate) fn check_host(
        &self,
        headers: &HeaderMap,
        local: SocketAddr,
    ) -> Result<(), AccessRefusal> {
        let mut given = headers.get_all(HOST).iter();
        let (Some(host), None) = (given.next(), given.next()) else {
            return Err(AccessRefusal::Host);
        };
        let host = host.to_str().ok().filter(|host| !host.contains('@'));
        let host = host.and_then(|host| host.parse().ok());
        let host: Authority = host.ok_or(AccessRefusal::Host)?;
        if !self.is_ours(&host, local.ip()) {
            return Err(AccessRefusal::Host);
        }
        let same_site = headers.get(FETCH_SITE).is_none_or(|site| {
            // `none`: the user typed the address.
            [&b"same-origin"[..], b"none"].contains(&site.as_bytes())
        });
        let same_origin = headers.get(ORIGIN).is_none_or(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            let origin = origin.split_once("://").map(|(_, rest)| rest);
            origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str()))
        });
        // A link from another site may open the page, which asks for the token itself.
        match same_site && same_origin || headers.get(ORIGIN).is_none() && is_navigation(headers) {
            true => Ok(()),
            false => Err(AccessRefusal::Site),
        }
    }

    /// Whether a request for data carries the token.
    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), AccessRefusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let given = given.and_then(|value| match value.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => Some(token),
            _ => None,
        });
        match given.is_some_and(|given| is_same(given, token.as_bytes())) {
            true => Ok(()),
            false => Err(AccessRefusal::Token),
        }
    }

    /// Whether requests need a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Any port: a tunnel (`ssh -L`) has another one than we.
    fn is_ours(&self, host: &Authority, local: IpAddr) -> bool {
        let name = host.host().trim_end_matches('.').to_ascii_lowercase();
        if self.hosts.contains(&name) {
            return true;
        }
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            // Rebinding needs a name. An address is what the connection was made to.
            Ok(address) => address == local || local.is_loopback() && address.is_loopback(),
            Err(_) => local.is_loopback() && name == "localhost",
        }
    }
}

/// Whether a browser opens a page in its window, as opposed to what scripts and images request.
fn is_navigation(headers: &HeaderMap) -> bool {
    let mode = headers.get("sec-fetch-mode");
    let dest = headers.get("sec-fetch-dest");
    mode.is_some_and(|mode| mode == "navigate") && dest.is_some_and(|dest| dest == "document")
}

/// The token in `file`, without the white space around it.
pub(crate) fn read_token(file: Option<&Path>) -> Result<Option<String>, CliFailure> {
    let Some(file) = file else {
        return Ok(None);
    };
    let secret = Secret::read(file, "--token-file", None)?;
    secret.check_rights()?;
    let token = secret.text().trim();
    // What a browser can send in a header, as one word.
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(secret.refused("a token consists of ASCII characters without spaces"));
    }
    if token.len() < TOKEN_MIN_CHARS {
        return Err(secret.refused(&format!(
            "a token has at least {TOKEN_MIN_CHARS} characters, for example the output of \
             `openssl rand -hex 24`"
        )));
    }
    Ok(Some(token.to_owned()))
}

/// Compares in a time that does not depend on where the texts differ.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let pairs = given.iter().zip(token);
    let differing = pairs.fold(0, |bits, (one, other)| bits | (one ^ other));
    given.len() == token.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:7471";
    const TOKEN: &str = "0123456789abcdef";

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        headers
    }

    fn rules() -> AccessRules {
        AccessRules::new(Some(TOKEN.to_owned()), &["Locks.Example.com".to_owned()]).unwrap()
    }

    fn host(given: &[(&'static str, &str)], local: &str) -> Result<(), AccessRefusal> {
        rules().check_host(&headers(given), local.parse().unwrap())
    }

    #[test]
    fn our_own_hosts_are_accepted_with_any_port() {
        for name in [
            "127.0.0.1:7471",
            "localhost:9000",
            "LOCALHOST",
            "[::1]:7471",
            "locks.example.com",
            "locks.example.com.:8443",
        ] {
            assert_eq!(host(&[("host", name)], LOCAL), Ok(()), "{name}");
        }
        assert_eq!(host(&[("host", "10.0.0.5:1")], "10.0.0.5:7471"), Ok(()));
    }

    #[test]
    fn a_foreign_host_is_refused() {
        for name in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.5",
            "user@localhost",
            "evil.example:7471",
            "",
            "localhost/x",
        ] {
            let refused = host(&[("host", name)], LOCAL);
            assert_eq!(refused, Err(AccessRefusal::Host), "{name}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(host(&two, LOCAL), Err(AccessRefusal::Host));
        assert_eq!(host(&[], LOCAL), Err(AccessRefusal::Host));
        // The name of this machine means nothing to other machines.
        let refused = host(&[("host", "localhost")], "10.0.0.5:7471");
        assert_eq!(refused, Err(AccessRefusal::Host));
    }

    #[test]
    fn a_page_of_another_site_is_refused_unless_it_links_to_us() {
        let refused = Err(AccessRefusal::Site);
        let from = |origin| host(&[("host", "localhost:1"), ("origin", origin)], LOCAL);
        assert_eq!(from("http://localhost:1"), Ok(()));
        assert_eq!(from("http://localhost:2"), refused);
        assert_eq!(from("https://evil.example"), refused);
        assert_eq!(from("null"), refused);
        let site = |site| host(&[("host", "localhost"), ("sec-fetch-site", site)], LOCAL);
        assert_eq!(site("same-origin"), Ok(()));
        assert_eq!(site("none"), Ok(()));
        assert_eq!(site("cross-site"), refused);
        assert_eq!(site("same-site"), refused);
        let linked = |dest| {
            let given = [
                ("host", "localhost"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", dest),
            ];
            host(&given, LOCAL)
        };
        assert_eq!(linked("document"), Ok(()));
        assert_eq!(linked("iframe"), refused);
    }

    #[test]
    fn the_token_is_needed_and_compared_as_a_whole() {
        let with = |value: &str| rules().check_token(&headers(&[("authorization", value)]));
        assert_eq!(with(&format!("Bearer {TOKEN}")), Ok(()));
        assert_eq!(with(&format!("bearer {TOKEN}")), Ok(()));
        for wrong in [
            "",
            "Bearer ",
            TOKEN,
            &format!("Basic {TOKEN}"),
            &format!("Bearer {TOKEN}x"),
            &format!("Bearer {}", &TOKEN[1..]),
            &format!("Bearer {}", TOKEN.to_uppercase()),
        ] {
            assert_eq!(with(wrong), Err(AccessRefusal::Token), "{wrong}");
        }
        let none = rules().check_token(&HeaderMap::new());
        assert_eq!(none, Err(AccessRefusal::Token));
        let open = AccessRules::new(None, &[]).unwrap();
        assert_eq!(open.check_token(&HeaderMap::new()), Ok(()));
    }

    #[test]
    fn an_allowed_host_has_no_scheme_port_or_path() {
        for wrong in ["http://a", "a:1", "a/b", "", "a b"] {
            let refused = AccessRules::new(None, &[wrong.to_owned()]);
            assert!(refused.is_err(), "{wrong}");
        }
    }
}
