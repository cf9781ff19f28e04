//! Which address of a server a majority of its electors gave, and under which name it is checked.
//!
//! An elector may lie: it names a host that has the server's IP and also an attacker's. So a client
//! connects to IPs that a majority gave, never to a host of one elector; and it checks the
//! certificate against a name that a majority gave, or against the IP.
//!
//! The electors are values, so that the rule does not depend on who they are. Pure: the caller asks
//! the electors and resolves the names.

use core::net::IpAddr;
use std::fmt;
use std::sync::Arc;

use crate::time::Timestamp;

/// The address of a master, as an elector names it, and the IPs that it resolves to.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MasterAddress {
    /// The host: a name or an IP.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The IPs of the host, as far as they are known.
    pub ips: Arc<[IpAddr]>,
}

/// What one elector said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    /// Its identity. Several words of one elector count once.
    pub(super) elector: &'a str,
    /// The address that it gave.
    pub(super) address: &'a MasterAddress,
    /// When it was asked.
    pub(super) asked_at: Timestamp,
}

/// The address that `majority` different electors gave, and when the oldest of the questions was
/// sent whose answers make this majority.
///
/// Its IPs are those that a majority gave. They may be none, if the name that a majority gave cannot
/// be resolved. Its host is a name that a majority gave, or else the first of the IPs.
pub(super) fn agreed(words: &[Word<'_>], majority: usize) -> Option<(MasterAddress, Timestamp)> {
    let hosts = words.iter().filter_map(|word| {
        let gave = |other: &Word<'_>| other.address.has_name_of(word.address);
        Some((word, latest_majority(words, majority, gave)?))
    });
    let name = hosts.reduce(|best, next| if next.1 > best.1 { next } else { best });
    let mut ips: Vec<(IpAddr, u16, Timestamp)> = Vec::new();
    for word in words {
        let port = word.address.port;
        for &ip in word.address.ips.iter() {
            let gave = |other: &Word<'_>| {
                other.address.port == port && resolves_to(words, other.address, ip)
            };
            if !ips.iter().any(|known| (known.0, known.1) == (ip, port))
                && let Some(asked_at) = latest_majority(words, majority, gave)
            {
                ips.push((ip, port, asked_at));
            }
        }
    }
    // The IPs whose majority was asked last: every IP of the answer is as fresh as the answer.
    let Some((_, port, asked_at)) = ips.iter().copied().max_by_key(|(_, _, asked_at)| *asked_at)
    else {
        let (word, asked_at) = name?;
        let address = MasterAddress {
            ips: [].into(),
            ..word.address.clone()
        };
        return Some((address, asked_at));
    };
    ips.retain(|found| (found.1, found.2) == (port, asked_at));
    let ips: Arc<[IpAddr]> = ips.into_iter().map(|(ip, _, _)| ip).collect();
    let name = name.filter(|(word, _)| word.address.port == port);
    let host = match name {
        Some((word, _)) => Arc::clone(&word.address.host),
        None => ips.first()?.to_string().into(),
    };
    Some((MasterAddress { host, port, ips }, asked_at))
}

/// When the oldest question was sent of the latest majority of electors with a word that `gave`
/// accepts.
fn latest_majority(
    words: &[Word<'_>],
    majority: usize,
    gave: impl Fn(&Word<'_>) -> bool,
) -> Option<Timestamp> {
    let mut latest: Vec<(&str, Timestamp)> = Vec::with_capacity(words.len());
    for word in words.iter().filter(|word| gave(word)) {
        match latest.iter_mut().find(|known| known.0 == word.elector) {
            Some((_, asked_at)) => *asked_at = word.asked_at.max(*asked_at),
            None => latest.push((word.elector, word.asked_at)),
        }
    }
    latest.sort_unstable_by_key(|known| std::cmp::Reverse(known.1));
    latest
        .get(majority.checked_sub(1)?)
        .map(|(_, asked_at)| *asked_at)
}

/// Whether the host of `address` has the IP. It does not matter for which word it was resolved: not
/// the elector resolves a name, but the caller.
fn resolves_to(words: &[Word<'_>], address: &MasterAddress, ip: IpAddr) -> bool {
    words
        .iter()
        .any(|word| word.address.has_name_of(address) && word.address.ips.contains(&ip))
}

impl MasterAddress {
    /// Whether both are one address: the same text, or a common IP, and the same port. Electors of
    /// one group may use names and IPs.
    pub fn is_same(&self, other: &Self) -> bool {
        let common_ip = self.ips.iter().any(|ip| other.ips.contains(ip));
        self.has_name_of(other) || self.port == other.port && common_ip
    }

    fn has_name_of(&self, other: &Self) -> bool {
        self.port == other.port && self.host.eq_ignore_ascii_case(&other.host)
    }
}

impl fmt::Display for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host.escape_debug(), self.port),
            false => write!(f, "{}:{}", self.host.escape_debug(), self.port),
        }
    }
}

impl fmt::Debug for MasterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
