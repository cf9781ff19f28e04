//! The metrics of the feature `metrics`, through the facade of that name: the application picks the
//! exporter. `docs/observability.md` describes each metric.
//!
//! Counters and gauges, and the histograms of nodes, are registered when a client is connected. The
//! histograms of a kind of lock are registered together when its first call begins: an exporter
//! shows empty histograms too, and those of all kinds and outcomes would be over a thousand samples
//! for each template. They are there before the first outcome, so an alert sees the step from zero.
//! No handle is looked up again: an update is one call through a pointer.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use super::ObservedLock;
use super::labels::{AcquireOutcome, LockKind, LossReason, RenewalOutcome};
use super::names::Templates;
use crate::protocol::VoteWord;

const ACQUIRE: &str = "ringfence_acquire_duration_seconds";
const HOLD: &str = "ringfence_hold_duration_seconds";
const HELD: &str = "ringfence_held";
const WAITING: &str = "ringfence_waiting";
const RENEWALS: &str = "ringfence_renewals_total";
const LOSSES: &str = "ringfence_losses_total";
const VOTES: &str = "ringfence_votes_total";
const ROUND_TRIP: &str = "ringfence_node_round_trip_seconds";
const CLOCK_OFFSET: &str = "ringfence_node_clock_offset_seconds";
const QUARANTINED: &str = "ringfence_node_quarantined";
const LEADING: &str = "ringfence_leading";

/// The handles of a client.
#[derive(Debug)]
pub(super) struct Exported {
    /// By [`Series`](super::names::Series): without a name first, then one for each template.
    series: Vec<SeriesHandles>,
    nodes: Vec<NodeHandles>,
}

#[derive(Debug)]
struct SeriesHandles {
    /// By [`LockKind`].
    kinds: Vec<KindHandles>,
    renewals: Vec<Counter>,
    losses: Vec<Counter>,
    leading: Gauge,
}

#[derive(Debug)]
struct KindHandles {
    labels: Vec<Label>,
    held: Gauge,
    waiting: Gauge,
    durations: OnceLock<DurationHandles>,
}

#[derive(Debug)]
struct DurationHandles {
    /// By [`AcquireOutcome`].
    acquire: Vec<Histogram>,
    hold: Histogram,
}

#[derive(Debug)]
struct NodeHandles {
    votes: Vec<Counter>,
    round_trip: Histogram,
    clock_offset: Gauge,
    quarantined: Gauge,
}

impl Exported {
    /// Registers with the recorder that is installed now.
    pub(super) fn register<'a>(
        nodes: impl Iterator<Item = &'a str>,
        templates: &Templates,
    ) -> Self {
        describe();
        let names = templates
            .iter()
            .map(|name| vec![Label::new("name", name.to_owned())]);
        let labels = std::iter::once(Vec::new()).chain(names);
        Self {
            series: labels.map(SeriesHandles::register).collect(),
            nodes: nodes.map(NodeHandles::register).collect(),
        }
    }

    /// A call that takes the lock begins.
    pub(super) fn acquiring(&self, lock: ObservedLock) {
        self.kind(lock).durations();
    }

    pub(super) fn acquired(&self, lock: ObservedLock, outcome: AcquireOutcome, waited: Duration) {
        self.kind(lock).durations().acquire[outcome as usize].record(waited.as_secs_f64());
    }

    pub(super) fn held(&self, lock: ObservedLock) {
        self.kind(lock).held.increment(1.0);
        if lock.kind == LockKind::Election {
            self.series(lock).leading.increment(1.0);
        }
    }

    pub(super) fn not_held(&self, lock: ObservedLock, held: Duration) {
        let kind = self.kind(lock);
        kind.held.decrement(1.0);
        kind.durations().hold.record(held.as_secs_f64());
        if lock.kind == LockKind::Election {
            self.series(lock).leading.decrement(1.0);
        }
    }

    pub(super) fn waits(&self, lock: ObservedLock) {
        self.kind(lock).waiting.increment(1.0);
    }

    pub(super) fn waits_no_more(&self, lock: ObservedLock) {
        self.kind(lock).waiting.decrement(1.0);
    }

    pub(super) fn renewed(&self, lock: ObservedLock, outcome: RenewalOutcome) {
        self.series(lock).renewals[outcome as usize].increment(1);
    }

    pub(super) fn lost(&self, lock: ObservedLock, reason: LossReason) {
        self.series(lock).losses[reason as usize].increment(1);
    }

    pub(super) fn voted(&self, node: usize, word: VoteWord) {
        self.nodes[node].votes[word as usize].increment(1);
    }

    pub(super) fn round_trip(&self, node: usize, span: Duration) {
        self.nodes[node].round_trip.record(span.as_secs_f64());
    }

    pub(super) fn clock_offset(&self, node: usize, offset_us: i64) {
        self.nodes[node].clock_offset.set(offset_us as f64 / 1e6);
    }

    pub(super) fn quarantined(&self, node: usize, quarantined: bool) {
        let value = if quarantined { 1.0 } else { 0.0 };
        self.nodes[node].quarantined.set(value);
    }

    fn series(&self, lock: ObservedLock) -> &SeriesHandles {
        &self.series[lock.series.index()]
    }

    fn kind(&self, lock: ObservedLock) -> &KindHandles {
        &self.series(lock).kinds[lock.kind as usize]
    }
}

impl SeriesHandles {
    fn register(labels: Vec<Label>) -> Self {
        let renewals = RenewalOutcome::ALL.iter();
        let renewals =
            renewals.map(|outcome| counter!(RENEWALS, with(&labels, "outcome", outcome.as_str())));
        let losses = LossReason::ALL.iter();
        let losses =
            losses.map(|reason| counter!(LOSSES, with(&labels, "reason", reason.as_str())));
        let kinds = LockKind::ALL.iter();
        Self {
            kinds: kinds
                .map(|kind| KindHandles::register(*kind, &labels))
                .collect(),
            renewals: renewals.collect(),
            losses: losses.collect(),
            leading: gauge!(LEADING, labels),
        }
    }
}

impl KindHandles {
    fn register(kind: LockKind, labels: &[Label]) -> Self {
        let labels = with(labels, "kind", kind.as_str());
        Self {
            held: gauge!(HELD, labels.clone()),
            waiting: gauge!(WAITING, labels.clone()),
            durations: OnceLock::new(),
            labels,
        }
    }

    fn durations(&self) -> &DurationHandles {
        self.durations.get_or_init(|| {
            let outcomes = AcquireOutcome::ALL.iter();
            let acquire = outcomes.map(|outcome| {
                histogram!(ACQUIRE, with(&self.labels, "outcome", outcome.as_str()))
            });
            DurationHandles {
                acquire: acquire.collect(),
                hold: histogram!(HOLD, self.labels.clone()),
            }
        })
    }
}

impl NodeHandles {
    fn register(node: &str) -> Self {
        let labels = vec![Label::new("node", node.to_owned())];
        let votes = VoteWord::ALL.iter();
        let votes = votes.map(|vote| match vote {
            // No call ends with these.
            VoteWord::Pending | VoteWord::BornLater => Counter::noop(),
            vote => counter!(VOTES, with(&labels, "vote", vote.as_str())),
        });
        let quarantined = gauge!(QUARANTINED, labels.clone());
        quarantined.set(0.0);
        Self {
            votes: votes.collect(),
            round_trip: histogram!(ROUND_TRIP, labels.clone()),
            clock_offset: gauge!(CLOCK_OFFSET, labels.clone()),
            quarantined,
        }
    }
}

fn with(labels: &[Label], key: &'static str, value: &'static str) -> Vec<Label> {
    let mut labels = labels.to_vec();
    labels.push(Label::from_static_parts(key, value));
    labels
}

fn describe() {
    describe_histogram!(ACQUIRE, Unit::Seconds, "Time from the call to its outcome");
    describe_histogram!(
        HOLD,
        Unit::Seconds,
        "Time from the attempt that won the lock to its end"
    );
    describe_gauge!(HELD, "Locks that are held now");
    describe_gauge!(WAITING, "Callers that wait now, after a lost attempt");
    describe_counter!(RENEWALS, "Renewals in the background");
    describe_counter!(LOSSES, "Locks that were lost");
    describe_counter!(VOTES, "Calls that take or extend a lock, by answer");
    describe_histogram!(
        ROUND_TRIP,
        Unit::Seconds,
        "Round trips to the node; at most one is measured in a millisecond"
    );
    describe_gauge!(
        CLOCK_OFFSET,
        Unit::Seconds,
        "Clock of the node minus the clock of this machine"
    );
    describe_gauge!(
        QUARANTINED,
        "1 if the votes of the node did not count at its last reply, because of a restart or a \
         clock jump"
    );
    describe_gauge!(LEADING, "Elections that this client leads now");
}
