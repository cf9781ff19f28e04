//! What is observed of one node: its votes, its state, its round trips and its clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::time::Timestamp;

use super::labels::NodeState;
use super::stats::{NodeStats, count, get};
use crate::protocol::VoteWord;

/// At most one round trip in this time is measured for a node. Under load the histogram of a node
/// then costs next to nothing, and shows the same distribution.
const ROUND_TRIP_EVERY: Duration = Duration::from_millis(1);
/// At most one clock offset in this time is measured for a node.
const OFFSET_EVERY: Duration = Duration::from_secs(1);
/// A node that goes and comes back all the time is told of once in this time.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// No offset is known.
const NO_OFFSET: i64 = i64::MIN;

/// The database behind a node, as OpenTelemetry names it.
const SYSTEMS: [(&str, &str); 3] = [
    ("Redis ", "redis"),
    ("Valkey ", "valkey"),
    ("SQLite ", "sqlite"),
];

#[derive(Debug)]
pub(super) struct ObservedNode {
    pub(super) name: Arc<str>,
    /// Index of [`NodeState`].
    state: AtomicU8,
    /// Whether the log says that the node does not vote.
    is_told_gone: AtomicBool,
    /// When the log may say so next, in nanoseconds of the client's clock.
    next_told: AtomicU64,
    votes: [AtomicU64; VoteWord::ALL.len()],
    round_trip_ns: AtomicU64,
    /// When a round trip is measured next, in nanoseconds of the client's clock.
    next_round_trip: AtomicU64,
    offset_us: AtomicI64,
    next_offset: AtomicU64,
    /// One more than the index of [`SYSTEMS`]; zero if it is unknown.
    system: AtomicU8,
}

impl ObservedNode {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            state: AtomicU8::new(NodeState::Unknown as u8),
            is_told_gone: AtomicBool::new(false),
            next_told: AtomicU64::new(0),
            votes: Default::default(),
            round_trip_ns: AtomicU64::new(0),
            next_round_trip: AtomicU64::new(0),
            offset_us: AtomicI64::new(NO_OFFSET),
            next_offset: AtomicU64::new(0),
            system: AtomicU8::new(0),
        }
    }

    pub(super) fn voted(&self, word: VoteWord) {
        count(&self.votes[word as usize]);
    }

    /// Sets the state. Returns the state before, if it was another.
    pub(super) fn set_state(&self, state: NodeState) -> Option<NodeState> {
        // The usual case writes nothing.
        if self.state.load(Ordering::Relaxed) == state as u8 {
            return None;
        }
        let before = self.state.swap(state as u8, Ordering::Relaxed);
        (before != state as u8).then(|| NodeState::ALL[usize::from(before)])
    }

    /// Whether the log is to say now that the node does not vote: once, until it is back.
    pub(super) fn is_to_tell_gone(&self, now: Timestamp) -> bool {
        !self.is_told_gone.load(Ordering::Relaxed)
            && is_due(&self.next_told, now, TOLD_EVERY)
            && !self.is_told_gone.swap(true, Ordering::Relaxed)
    }

    /// The log says already that the node does not vote.
    pub(super) fn was_told_gone(&self) {
        self.is_told_gone.store(true, Ordering::Relaxed);
    }

    /// Whether the log is to say now that the node is back.
    pub(super) fn is_to_tell_back(&self) -> bool {
        self.is_told_gone.swap(false, Ordering::Relaxed)
    }

    /// Whether the round trip of a reply that arrived at `now` is to be measured.
    pub(super) fn measures_round_trip(&self, now: Timestamp) -> bool {
        is_due(&self.next_round_trip, now, ROUND_TRIP_EVERY)
    }

    /// Whether the clock in a reply that arrived at `now` is to be compared with ours.
    pub(super) fn measures_offset(&self, now: Timestamp) -> bool {
        is_due(&self.next_offset, now, OFFSET_EVERY)
    }

    pub(super) fn set_round_trip(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip_ns.store(nanos.max(1), Ordering::Relaxed);
    }

    pub(super) fn set_offset(&self, offset_us: i64) {
        self.offset_us
            .store(offset_us.max(NO_OFFSET + 1), Ordering::Relaxed);
    }

    /// Learns from the `version` of a handshake which database it is.
    pub(super) fn set_version(&self, version: &str) {
        let known = SYSTEMS
            .iter()
            .position(|(word, _)| version.starts_with(word));
        let system = known.map_or(0, |index| index as u8 + 1);
        self.system.store(system, Ordering::Relaxed);
    }

    /// The database, as OpenTelemetry names it; `None` if it is unknown.
    pub(super) fn system(&self) -> Option<&'static str> {
        let index = usize::from(self.system.load(Ordering::Relaxed));
        Some(SYSTEMS[index.checked_sub(1)?].1)
    }

    pub(super) fn stats(&self) -> NodeStats {
        let votes = |wanted: VoteWord| get(&self.votes[wanted as usize]);
        let (granted, timed_out, failed) = (
            votes(VoteWord::Granted),
            votes(VoteWord::TimedOut),
            votes(VoteWord::Failed),
        );
        let all: u64 = self.votes.iter().map(get).sum();
        let state = usize::from(self.state.load(Ordering::Relaxed));
        let round_trip_ns = get(&self.round_trip_ns);
        let offset_us = self.offset_us.load(Ordering::Relaxed);
        NodeStats {
            node: self.name.to_string(),
            state: NodeState::ALL[state],
            granted,
            refused: all.saturating_sub(granted + timed_out + failed),
            timed_out,
            failed,
            round_trip: (round_trip_ns != 0).then(|| Duration::from_nanos(round_trip_ns)),
            clock_offset_us: (offset_us != NO_OFFSET).then_some(offset_us),
        }
    }
}

/// Whether `next` has been reached. If so, it is set to `every` from `now`. Two threads may both
/// find it due, which costs one more measurement.
fn is_due(next: &AtomicU64, now: Timestamp, every: Duration) -> bool {
    if now.as_nanos() < next.load(Ordering::Relaxed) {
        return false;
    }
    next.store((now + every).as_nanos(), Ordering::Relaxed);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_state_is_reported_once() {
        let node = ObservedNode::new("a");
        assert_eq!(node.set_state(NodeState::Voting), Some(NodeState::Unknown));
        assert_eq!(node.set_state(NodeState::Voting), None);
        assert_eq!(node.set_state(NodeState::Silent), Some(NodeState::Voting));
        assert_eq!(node.stats().state, NodeState::Silent);
    }

    #[test]
    fn a_node_that_goes_and_comes_back_is_told_of_once_in_ten_seconds() {
        let node = ObservedNode::new("a");
        let at = |s: u64| Timestamp::ZERO + Duration::from_secs(5 + s);
        assert!(!node.is_to_tell_back(), "it was never gone");
        assert!(node.is_to_tell_gone(at(0)));
        assert!(!node.is_to_tell_gone(at(1)) && !node.is_to_tell_gone(at(20)));
        assert!(node.is_to_tell_back() && !node.is_to_tell_back());
        assert!(node.is_to_tell_gone(at(21)));
        assert!(node.is_to_tell_back());
        assert!(!node.is_to_tell_gone(at(30)));
        assert!(node.is_to_tell_gone(at(31)), "it is still gone");
    }

    #[test]
    fn one_round_trip_in_a_millisecond_is_measured() {
        let node = ObservedNode::new("a");
        let at = |us: u64| Timestamp::ZERO + Duration::from_micros(5_000 + us);
        let measured = [0, 1, 999, 1_000, 1_001, 2_000].map(|us| node.measures_round_trip(at(us)));
        assert_eq!(measured, [true, false, false, true, false, true]);
    }

    #[test]
    fn the_database_is_known_by_its_version() {
        let node = ObservedNode::new("a");
        assert_eq!(node.system(), None);
        for (version, system) in [
            ("Redis 7.0.15", Some("redis")),
            ("Valkey 9.1.2", Some("valkey")),
            ("SQLite 3.50", Some("sqlite")),
            ("memory 0.1.0", None),
        ] {
            node.set_version(version);
            assert_eq!(node.system(), system);
        }
    }
}
