//! The cards of the nodes: whether each votes, its clock, its memory, its Sentinels, as JSON.

use std::time::Duration;

use ringfence::admin::{Examination, Found, NodeStatus, ServiceExamination};
use ringfence::votes::Vote;
use serde::Serialize;

use crate::report::said_after;
use crate::row::millis;

/// How a node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CardState {
    /// Its vote counts.
    Votes,
    /// It may have forgotten locks, and votes again after its quarantine.
    Quarantined,
    /// It answers, but its vote does not count.
    Mute,
    /// It does not answer.
    Down,
}

impl CardState {
    pub(super) const ALL: [Self; 4] = [Self::Votes, Self::Quarantined, Self::Mute, Self::Down];

    /// The word in JSON and metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Votes => "votes",
            Self::Quarantined => "quarantined",
            Self::Mute => "mute",
            Self::Down => "down",
        }
    }
}

/// What is known of one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NodeCard {
    pub(super) node: String,
    pub(super) state: CardState,
    /// Why it does not vote; empty if it does.
    pub(super) says: String,
    /// When its quarantine ends.
    pub(super) quarantine_until_ms: Option<u64>,
    pub(super) round_trip_us: Option<u64>,
    /// How far its clock is ahead of the median of all nodes.
    pub(super) clock_offset_us: Option<i64>,
    /// How often its clock was seen to jump.
    pub(super) clock_jumps: u64,
    pub(super) version: Option<String>,
    /// What a crash of it may cost.
    pub(super) tier: Option<String>,
    pub(super) memory_bytes: Option<u64>,
    /// Zero if there is no limit.
    pub(super) memory_max_bytes: Option<u64>,
    pub(super) service: Option<ServiceCard>,
}

/// The service behind a node that Sentinels name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ServiceCard {
    pub(super) master: String,
    pub(super) epoch: u64,
    /// How many Sentinels the group has.
    pub(super) sentinel_count: u32,
    pub(super) sentinels: Vec<SentinelLine>,
    pub(super) replicas: Vec<ReplicaLine>,
}

/// What one Sentinel says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SentinelLine {
    pub(super) sentinel: String,
    /// Whether it names the same master under the same epoch as the majority.
    pub(super) agrees: bool,
    pub(super) says: String,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ReplicaLine {
    pub(super) replica: String,
    pub(super) lag_s: Option<u64>,
}

/// The parts of a card that an examination finds. They change slowly.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ExaminedParts {
    memory: Option<(u64, u64)>,
    service: Option<ServiceCard>,
}

/// The slow parts of each node, in node order.
pub(super) fn examined(nodes: &[Examination]) -> Vec<ExaminedParts> {
    let parts = nodes.iter().map(|node| match &node.found {
        Ok(Found::Server(server)) => ExaminedParts {
            memory: server
                .identity
                .as_ref()
                .ok()
                .map(|found| (found.memory.used_bytes, found.memory.max_bytes)),
            service: server.service.as_ref().map(service),
        },
        _ => ExaminedParts::default(),
    });
    parts.collect()
}

/// The cards of the nodes, as seen at `at_ms`.
pub(super) fn cards(nodes: &[NodeStatus], parts: &[ExaminedParts], at_ms: u64) -> Vec<NodeCard> {
    let offsets = clock_offsets(nodes);
    let none = ExaminedParts::default();
    let each = nodes.iter().zip(offsets).enumerate();
    let each = each.map(|(index, (node, clock_offset_us))| {
        let part = parts.get(index).unwrap_or(&none);
        let facts = node.facts.as_ref().ok();
        let (state, says) = state(node);
        let memory = part.memory.filter(|_| facts.is_some());
        NodeCard {
            node: node.node.clone(),
            state,
            says,
            quarantine_until_ms: match &node.discount {
                Some(Vote::Quarantined { left }) => Some(at_ms + millis(*left)),
                _ => None,
            },
            round_trip_us: facts.map(|facts| micros(facts.received.since(facts.sent))),
            clock_offset_us,
            clock_jumps: node.clock_jumps,
            version: facts.map(|facts| facts.version.clone()),
            tier: facts.map(|facts| facts.tier.to_string()),
            memory_bytes: memory.map(|(used, _)| used),
            memory_max_bytes: memory.map(|(_, most)| most),
            service: part.service.clone(),
        }
    });
    each.collect()
}

fn state(node: &NodeStatus) -> (CardState, String) {
    match (&node.facts, &node.discount) {
        (Err(error), _) => (CardState::Down, said_after(&node.node, &error.to_string())),
        (Ok(_), Some(why @ Vote::Quarantined { .. })) => (CardState::Quarantined, why.to_string()),
        (Ok(_), Some(why)) => (CardState::Mute, why.to_string()),
        (Ok(facts), None) if !facts.joined => {
            let says = "no client has connected to it since it started";
            (CardState::Mute, says.to_owned())
        }
        (Ok(_), None) => (CardState::Votes, String::new()),
    }
}

/// How far the clock of each node is ahead of the median, by the middle of each round trip.
fn clock_offsets(nodes: &[NodeStatus]) -> Vec<Option<i64>> {
    let clocks: Vec<Option<i64>> = nodes
        .iter()
        .map(|node| {
            let facts = node.facts.as_ref().ok()?;
            let first = nodes.iter().find_map(|node| node.facts.as_ref().ok())?;
            // Both moments on our clock, from the first request on.
            let sent_us =
                signed(facts.sent.since(first.sent)) - signed(first.sent.since(facts.sent));
            let middle_us = sent_us + signed(facts.received.since(facts.sent)) / 2;
            i64::try_from(facts.clock_us).ok()?.checked_sub(middle_us)
        })
        .collect();
    let mut known: Vec<i64> = clocks.iter().copied().flatten().collect();
    known.sort_unstable();
    let median = known.get(known.len().saturating_sub(1) / 2).copied();
    let offsets = clocks.into_iter();
    offsets.map(|clock| clock?.checked_sub(median?)).collect()
}

fn service(seen: &ServiceExamination) -> ServiceCard {
    let sentinels = seen.sentinels.iter().map(|(name, word)| SentinelLine {
        sentinel: name.clone(),
        agrees: word
            .as_ref()
            .is_ok_and(|word| word.master == seen.master && word.epoch == seen.epoch),
        says: match word {
            Ok(word) => format!("{} is the master, epoch {}", word.master, word.epoch),
            Err(trouble) => trouble.to_string(),
        },
    });
    let replicas = seen.replicas.iter().map(|replica| ReplicaLine {
        replica: replica.address.clone(),
        lag_s: replica.lag.map(|lag| lag.as_secs()),
    });
    ServiceCard {
        master: seen.master.clone(),
        epoch: seen.epoch,
        sentinel_count: seen.total,
        sentinels: sentinels.collect(),
        replicas: replicas.collect(),
    }
}

fn signed(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
