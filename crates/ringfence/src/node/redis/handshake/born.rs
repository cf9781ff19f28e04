//! The birth record of a node, `ringfence:born`: the incarnation of the server that it belongs to,
//! since when that incarnation has kept all locks, and the values of its group.
//! [`crate::ledger::birth`] decides when it is rewritten; `join.lua` follows that rule.

use std::time::Duration;

use crate::group::{Failover, Group};
use crate::ledger::birth::Incarnation;

/// The version of the record that this client reads and writes.
pub(crate) const VERSION: &str = "5";

/// The number of [`Failover::Lossless`] among [`group_fields`].
pub(crate) const LOSSLESS: &str = "2";

/// The contents of `ringfence:born`. Only `join.lua` and `init.lua` write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BirthRecord {
    /// The text as it is stored on the node. Every lock operation sends it.
    pub(crate) text: String,
    /// The incarnation of the server that the record belongs to, and its flags.
    pub(crate) server: Incarnation<String>,
    /// How many Sentinels the group had at most, as far as its clients know; zero without any.
    pub(crate) sentinels: u32,
    /// When the present incarnation began, on the node's clock. A durable server keeps it over a
    /// restart. If locks may have been forgotten, a new incarnation begins.
    pub(crate) since_us: u64,
    /// The birth, from which the quarantine is counted; zero for a node that `init` declared new.
    pub(crate) birth_us: u64,
    /// The group's values.
    pub(crate) group: Group,
}

/// Why this client cannot use a birth record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A client of another version wrote it.
    Version(String),
    /// No version of ringfence writes such a text.
    Damaged,
}

impl BirthRecord {
    /// Whether a failover may replace the server: it has or had replicas, or Sentinels watch it.
    pub(crate) fn is_replaceable(&self) -> bool {
        self.server.replicated || self.server.epoch.is_some()
    }

    /// Reads `5 run_id replication_id epoch sentinels replicated since_us birth_us durable database`,
    /// with `-` for an id or an epoch that is not known, and then [`group_fields`].
    pub(crate) fn parse(text: &str) -> Result<Self, Unreadable> {
        let version = text.split(' ').next().unwrap_or_default();
        let numbered = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
        if numbered && version != VERSION {
            return Err(Unreadable::Version(version.chars().take(20).collect()));
        }
        Self::read(text).ok_or(Unreadable::Damaged)
    }

    fn read(text: &str) -> Option<Self> {
        if text.len() > BORN_MAX_BYTES {
            return None;
        }
        let mut fields = text.split(' ');
        if fields.next()? != VERSION {
            return None;
        }
        let run_id = fields.next().filter(|id| is_id(id))?.to_owned();
        let replication_id = known(fields.next()?);
        if !replication_id.is_none_or(is_id) {
            return None;
        }
        let epoch = known(fields.next()?).map(str::parse).transpose().ok()?;
        let sentinels = fields.next()?.parse().ok()?;
        let mut number = || fields.next()?.parse::<u64>().ok();
        let replicated = flag(number()?)?;
        let since_us = number()?;
        let birth_us = number()?;
        let durable = flag(number()?)?;
        let database = u32::try_from(number()?).ok()?;
        let group = Group {
            nodes: usize::try_from(number()?).ok()?,
            window: Duration::from_micros(number()?),
            quarantine: Duration::from_millis(number()?),
            failover: failover(number()?)?,
            stale_master: Duration::from_millis(number()?),
            reply_within: Duration::from_millis(number()?),
            grace: Duration::from_millis(number()?),
        };
        let server = Incarnation {
            run_id,
            replication_id: replication_id.map(str::to_owned),
            database,
            epoch,
            replicated,
            durable,
        };
        fields.next().is_none().then(|| Self {
            text: text.to_owned(),
            server,
            sentinels,
            since_us,
            birth_us,
            group,
        })
    }
}

/// The longest birth record: each of its numbers and ids is shorter than 65 characters. It is sent
/// with every call, so its length must have a limit.
pub(crate) const BORN_MAX_BYTES: usize = 512;
/// The longest id. Ids of servers have 40 characters.
const ID_MAX_CHARS: usize = 64;

/// Whether `text` can be a run id or a replication id.
pub(crate) fn is_id(text: &str) -> bool {
    let hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (1..=ID_MAX_CHARS).contains(&text.len()) && hexadecimal
}

fn known(field: &str) -> Option<&str> {
    (field != "-").then_some(field)
}

fn flag(number: u64) -> Option<bool> {
    match number {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The number of [`group_fields`].
pub(crate) const GROUP_FIELDS: usize = 7;

/// The group as arguments of the scripts: nodes, window in microseconds, quarantine in
/// milliseconds, the number of the failover level, the two times of a failover and the grace in
/// milliseconds.
pub(crate) fn group_fields(group: &Group) -> [u64; GROUP_FIELDS] {
    let level = Failover::ALL
        .iter()
        .position(|level| *level == group.failover);
    [
        group.nodes as u64,
        micros(group.window),
        millis(group.quarantine),
        level.unwrap_or_default() as u64,
        millis(group.stale_master),
        millis(group.reply_within),
        millis(group.grace),
    ]
}

fn failover(number: u64) -> Option<Failover> {
    Failover::ALL.get(usize::try_from(number).ok()?).copied()
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_record_reads_back() {
        let text = "5 abc0 de1 - 0 1 1700000000000001 0 0 2 3 5000000 35000 0 5000 1000 1500";
        let born = BirthRecord::parse(text).unwrap();
        let server = Incarnation {
            run_id: "abc0".to_owned(),
            replication_id: Some("de1".to_owned()),
            database: 2,
            epoch: None,
            replicated: true,
            durable: false,
        };
        assert_eq!((born.text.as_str(), born.server), (text, server));
        assert_eq!((born.since_us, born.birth_us), (1_700_000_000_000_001, 0));
        assert_eq!(born.group, Group::new(3));
        assert_eq!(
            group_fields(&born.group),
            [3, 5_000_000, 35_000, 0, 5_000, 1_000, 1_500]
        );
        let other = "5 abc0 - 17 3 0 5 6 1 0 1 5000000 35000 2 2000 900 1500";
        let other = BirthRecord::parse(other).unwrap();
        assert_eq!(
            (other.sentinels, other.group.failover),
            (3, Failover::Lossless)
        );
        assert_eq!(group_fields(&other.group)[3].to_string(), LOSSLESS);
        let times = (other.group.stale_master, other.group.reply_within);
        assert_eq!(times, (Duration::from_secs(2), Duration::from_millis(900)));
        assert_eq!(other.server.replication_id, None);
        assert_eq!(other.server.epoch, Some(17));
        assert!(!other.server.replicated && other.server.durable);
    }

    #[test]
    fn a_malformed_record_is_refused() {
        for bad in [
            "",
            "of mine",
            "5 a b - 0 0 1 1 2 0 3 1 1 0 1 1 1",
            "5 a b - 0 2 1 1 1 0 3 1 1 0 1 1 1",
            "5 a b - 0 0 1 1 1 0 3 1 1 0 1 1",
            "5 a b - 0 0 1 1 1 0 3 1 1 0 1 1 1 1",
            "5 a b - 0 0 1 1 1 0 3 1 1 4 1 1 1",
            "5 a b - - 0 1 1 1 0 3 1 1 0 1 1 1",
            "5 a b - 0 0 -1 1 1 0 3 1 1 0 1 1 1",
            "5 a b x 0 0 1 1 1 0 3 1 1 0 1 1 1",
            "5 x b - 0 0 1 1 1 0 3 1 1 0 1 1 1",
            "5 a x - 0 0 1 1 1 0 3 1 1 0 1 1 1",
            "5 - b - 0 0 1 1 1 0 3 1 1 0 1 1 1",
            "5 a b - 0 0 1 1 1 - 3 1 1 0 1 1 1",
            "5 a b - 0 0 1 1 1 4294967296 3 1 1 0 1 1 1",
        ] {
            assert_eq!(BirthRecord::parse(bad), Err(Unreadable::Damaged), "{bad:?}");
        }
    }

    #[test]
    fn a_record_that_is_too_long_is_refused() {
        let id = "a".repeat(65);
        for long in [
            format!("5 {id} b - 0 0 1 1 1 0 3 1 1 0 1 1 1"),
            format!("5 a {id} - 0 0 1 1 1 0 3 1 1 0 1 1 1"),
            format!("5 a b - 0 0 1 1 1 0 3 1 1 0 1 1 {}1", "0".repeat(500)),
        ] {
            assert_eq!(BirthRecord::parse(&long), Err(Unreadable::Damaged));
        }
        assert!(
            BirthRecord::parse(&format!("5 {} b - 0 0 1 1 1 0 3 1 1 0 1 1 1", &id[1..])).is_ok()
        );
    }

    #[test]
    fn a_record_of_another_version_is_refused_with_its_version() {
        for (text, version) in [
            ("1 abc0 1700000000000001 0 1 3 5000000 35000 1500", "1"),
            (
                "2 abc0 de1 - 1 1700000000000001 0 0 3 5000000 35000 1500",
                "2",
            ),
            (
                "3 abc0 de1 - 1 1700000000000001 0 0 3 5000000 35000 1500",
                "3",
            ),
            (
                "4 abc0 de1 - 0 1 1700000000000001 0 0 3 5000000 35000 0 5000 1000 1500",
                "4",
            ),
            ("6 of the future", "6"),
        ] {
            let unreadable = Unreadable::Version(version.to_owned());
            assert_eq!(BirthRecord::parse(text), Err(unreadable));
        }
    }
}
