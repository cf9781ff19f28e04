//! All that the dashboard knows at one moment, and the sentence that sums it up. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence::admin::LockState;
use serde::Serialize;

use super::cards::{CardState, NodeCard};
use crate::report::many;
use crate::row::{LockRow, NodeMark, RowKey, RowKind};

/// Without an answer for longer than this, what is shown is old.
pub(super) const FRESH_MS: u64 = 5_000;

/// See the module. Rows are shared with the snapshots before, so that unchanged ones are found fast.
#[derive(Debug, Clone, Default)]
pub(super) struct ClusterSnapshot {
    /// When this snapshot was made.
    pub(super) at_ms: u64,
    pub(super) nodes: Arc<[NodeCard]>,
    /// When a node was last asked and answered.
    pub(super) nodes_seen_ms: Option<u64>,
    pub(super) rows: BTreeMap<RowKey, Arc<LockRow>>,
    pub(super) list: ListState,
}

/// How old the list of locks is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct ListState {
    /// When the last complete search began.
    pub(super) began_ms: Option<u64>,
    /// When it ended. Every lock that existed in between is in the list.
    pub(super) ended_ms: Option<u64>,
    /// Whether the list is shortened because there are too many locks.
    pub(super) shortened: bool,
    /// Why the last search failed.
    pub(super) problem: Option<String>,
}

/// The numbers of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ClusterCounts {
    /// Locks, semaphores and latches in the list.
    pub(super) names: u64,
    /// Locks that are held, and permits.
    pub(super) held: u64,
    pub(super) waiting: u64,
    /// Locks on which nodes disagree.
    pub(super) split: u64,
    /// Locks, semaphores and latches of which it is unknown whether they are held.
    pub(super) unknown: u64,
    pub(super) nodes: u64,
    pub(super) voting: u64,
}

/// How well the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    /// All nodes vote.
    Good,
    /// Locks can be taken, but something needs attention.
    Warning,
    /// No lock can be taken.
    Bad,
    /// Nothing is known yet.
    Unknown,
}

impl ClusterSnapshot {
    pub(super) fn counts(&self) -> ClusterCounts {
        let rows = self.rows.values();
        let held = rows.clone().map(|row| match row.kind {
            RowKind::Latch => 0,
            RowKind::Semaphore => row.holder_count,
            _ => u64::from(row.state == LockState::Held && !row.kept),
        });
        let unknown = rows.clone().filter(|row| row.state == LockState::Unknown);
        ClusterCounts {
            names: self.rows.len() as u64,
            held: held.sum(),
            waiting: rows.clone().map(|row| row.waiting).sum(),
            split: rows.clone().filter(|row| row.split).count() as u64,
            unknown: unknown.count() as u64,
            nodes: self.nodes.len() as u64,
            voting: self.in_state(CardState::Votes),
        }
    }

    /// How many nodes are in this state.
    pub(super) fn in_state(&self, state: CardState) -> u64 {
        let nodes = self.nodes.iter();
        nodes.filter(|node| node.state == state).count() as u64
    }

    /// Whether a majority of the nodes votes.
    pub(super) fn has_quorum(&self) -> bool {
        self.in_state(CardState::Votes) > self.nodes.len() as u64 / 2
    }

    pub(super) fn health(&self) -> Health {
        let counts = self.counts();
        match counts {
            ClusterCounts { nodes: 0, .. } => Health::Unknown,
            _ if !self.has_quorum() => Health::Bad,
            ClusterCounts {
                split,
                unknown,
                nodes,
                voting,
                ..
            } if split > 0 || unknown > 0 || voting < nodes => Health::Warning,
            _ => Health::Good,
        }
    }

    /// One or two sentences: who votes, and what is held.
    pub(super) fn headline(&self) -> String {
        let counts = self.counts();
        let nodes = match (counts.voting, counts.nodes) {
            (_, 0) => return "Asking the nodes.".to_owned(),
            (1, 1) => "The node votes.".to_owned(),
            (0, 1) => "The node does not vote: no lock can be taken.".to_owned(),
            (voting, nodes) if voting == nodes => format!("All {nodes} nodes vote."),
            (voting, nodes) if self.has_quorum() => format!(
                "{voting} of {nodes} nodes vote, which is enough: {}.",
                self.silent()
            ),
            (voting, nodes) => format!(
                "No quorum: {voting} of {nodes} nodes vote, so no lock can be taken. {}.",
                capital(&self.silent())
            ),
        };
        if self.list.ended_ms.is_none() && self.rows.is_empty() {
            return nodes;
        }
        let held = many(counts.held, "lock");
        let waiting = many(counts.waiting, "waiter");
        let split = match counts.split {
            0 => String::new(),
            split => format!(" On {} the nodes disagree.", many(split, "lock")),
        };
        let unknown = match counts.unknown {
            0 => String::new(),
            1 => " Of 1 lock it is unknown whether it is held.".to_owned(),
            unknown => format!(" Of {unknown} locks it is unknown whether they are held."),
        };
        // Without a majority, what is not in the list is not known to be free.
        match self.has_quorum() {
            true => format!("{nodes} {held} held, {waiting}.{split}{unknown}"),
            false => format!("{nodes}{split}{unknown}"),
        }
    }

    /// What each node says of a lock of which nothing is known.
    pub(super) fn marks(&self) -> Vec<NodeMark> {
        let marks = self.nodes.iter().map(|node| match node.state {
            CardState::Votes => NodeMark::Free,
            CardState::Down => NodeMark::Down,
            _ => NodeMark::Mute,
        });
        marks.collect()
    }

    /// What is wrong with the nodes that do not vote.
    fn silent(&self) -> String {
        let words = [
            (CardState::Down, "down"),
            (CardState::Quarantined, "in quarantine"),
            (CardState::Mute, "not voting"),
        ];
        let parts = words.into_iter().filter_map(|(state, word)| {
            let mut nodes = self.nodes.iter().filter(|node| node.state == state);
            let first = nodes.next()?;
            Some(match nodes.count() {
                0 => format!("{} is {word}", first.node),
                others => format!("{} are {word}", others + 1),
            })
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// The part of the JSON that is not the list of locks.
    pub(super) fn cluster(&self, now_ms: u64) -> ClusterJson<'_> {
        ClusterJson {
            now_ms,
            as_of_ms: self.nodes_seen_ms,
            headline: self.headline(),
            health: self.health(),
            quorum: self.has_quorum(),
            counts: self.counts(),
            list: &self.list,
            nodes: &self.nodes,
        }
    }
}

/// The answer of `/api/v1/cluster`.
#[derive(Debug, Serialize)]
pub(super) struct ClusterJson<'a> {
    now_ms: u64,
    /// When a node last answered.
    as_of_ms: Option<u64>,
    headline: String,
    health: Health,
    quorum: bool,
    counts: ClusterCounts,
    list: &'a ListState,
    nodes: &'a [NodeCard],
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::held;

    fn snapshot(states: &[CardState]) -> ClusterSnapshot {
        let nodes = states.iter().zip('a'..).map(|(state, name)| NodeCard {
            node: name.to_string(),
            state: *state,
            says: String::new(),
            quarantine_until_ms: None,
            round_trip_us: None,
            clock_offset_us: None,
            clock_jumps: 0,
            version: None,
            tier: None,
            memory_bytes: None,
            memory_max_bytes: None,
            service: None,
        });
        ClusterSnapshot {
            nodes: nodes.collect(),
            list: ListState {
                ended_ms: Some(1),
                ..ListState::default()
            },
            ..ClusterSnapshot::default()
        }
    }

    #[test]
    fn the_headline_says_who_votes_and_what_is_held() {
        use CardState::{Down, Mute, Quarantined, Votes};
        for (states, health, says) in [
            (
                &[Votes; 5][..],
                Health::Good,
                "All 5 nodes vote. 0 locks held, 0 waiters.",
            ),
            (
                &[Votes, Votes, Down, Votes, Quarantined],
                Health::Warning,
                "3 of 5 nodes vote, which is enough: c is down, e is in quarantine. 0 locks held, \
                 0 waiters.",
            ),
            (
                &[Votes, Down, Down],
                Health::Bad,
                "No quorum: 1 of 3 nodes vote, so no lock can be taken. 2 are down.",
            ),
            (
                &[Mute],
                Health::Bad,
                "The node does not vote: no lock can be taken.",
            ),
            (&[], Health::Unknown, "Asking the nodes."),
        ] {
            let seen = snapshot(states);
            assert_eq!((seen.headline().as_str(), seen.health()), (says, health));
        }
    }

    #[test]
    fn held_permits_waiters_and_split_votes_are_counted() {
        let mut seen = snapshot(&[CardState::Votes]);
        let mut rows = vec![
            held("a", "x", 9, 1),
            held("b", "x", 9, 1),
            held("c", "x", 9, 1),
        ];
        rows[0].waiting = 2;
        rows[1].kept = true;
        (rows[2].state, rows[2].split, rows[2].waiting) = (LockState::Free, true, 1);
        let marks = rows[0].votes.clone();
        rows.push(held("d", "x", 9, 1).unknown(marks));
        seen.rows = rows
            .into_iter()
            .map(|row| (row.key(), Arc::new(row)))
            .collect();
        assert_eq!(
            seen.headline(),
            "The node votes. 1 lock held, 3 waiters. On 1 lock the nodes disagree. Of 1 lock it is \
             unknown whether it is held."
        );
        assert_eq!(seen.health(), Health::Warning);
    }
}
