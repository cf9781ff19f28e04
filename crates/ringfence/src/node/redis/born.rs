//! The birth record of a node, `ringfence:born`: which run of the server it belongs to, since when
//! that run has been keeping locks without a gap, and the values of its group.

use std::time::Duration;

use crate::group::Group;

/// What `ringfence:born` says. Written by `join.lua` and `init.lua` only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Born {
    /// The text as it stands on the node; every lock operation names it.
    pub(super) text: String,
    /// The run of the server that the record belongs to.
    pub(super) run_id: String,
    /// When the present incarnation began, on the node's clock. A durable server carries it from run
    /// to run; wherever something may have been forgotten, it is another.
    pub(super) since_us: u64,
    /// The birth that the quarantine counts from; zero for a node that was declared grown up.
    pub(super) birth_us: u64,
    /// Whether that run wrote everything to disk before it answered.
    pub(super) durable: bool,
    /// The group's values.
    pub(super) group: Group,
}

impl Born {
    /// Reads `1 run_id since_us birth_us durable nodes window_us quarantine_ms grace_ms`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        if fields.next()? != "1" {
            return None;
        }
        let run_id = fields.next()?.to_owned();
        let mut number = || fields.next()?.parse::<u64>().ok();
        let since_us = number()?;
        let birth_us = number()?;
        let durable = match number()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let group = Group {
            nodes: usize::try_from(number()?).ok()?,
            window: Duration::from_micros(number()?),
            quarantine: Duration::from_millis(number()?),
            grace: Duration::from_millis(number()?),
        };
        fields.next().is_none().then(|| Self {
            text: text.to_owned(),
            run_id,
            since_us,
            birth_us,
            durable,
            group,
        })
    }
}

/// The group as the scripts take it: nodes, window in microseconds, quarantine and grace in
/// milliseconds.
pub(super) fn group_fields(group: &Group) -> [u64; 4] {
    [
        group.nodes as u64,
        micros(group.window),
        millis(group.quarantine),
        millis(group.grace),
    ]
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_record_reads_back() {
        let text = "1 abc0 1700000000000001 0 1 3 5000000 35000 1500";
        let born = Born::parse(text).unwrap();
        assert_eq!((born.text.as_str(), born.run_id.as_str()), (text, "abc0"));
        assert_eq!((born.since_us, born.birth_us), (1_700_000_000_000_001, 0));
        assert!(born.durable);
        assert_eq!(born.group, Group::new(3));
        assert_eq!(group_fields(&born.group), [3, 5_000_000, 35_000, 1_500]);
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "2 a 1 1 1 3 1 1 1",
            "1 a 1 1 2 3 1 1 1",
            "1 a 1 1 1 3 1 1",
            "1 a 1 1 1 3 1 1 1 1",
            "1 a -1 1 1 3 1 1 1",
        ] {
            assert_eq!(Born::parse(bad), None, "{bad:?}");
        }
    }
}
