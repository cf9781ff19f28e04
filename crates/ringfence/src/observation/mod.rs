//! The one place where the client reports what happened to its locks and nodes. It feeds the stats,
//! the metrics, the listener and the `tracing` events. It decides nothing.
//!
//! Without a listener and without the feature `metrics`, a report is a few counters.

mod acquiring;
mod event;
#[cfg(feature = "metrics")]
mod exported;
#[cfg(not(feature = "metrics"))]
#[path = "unexported.rs"]
mod exported;
mod labels;
pub(crate) mod names;
mod nodes;
mod stats;
mod traced;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::wall_us;
use crate::message::{Claim, Reply};
use crate::node::{CallError, Facts, Node};
use crate::protocol::{ExtensionVerdict, GrantId, Lost, Vote};
use crate::time::Timestamp;

use event::EventQueue;
pub use event::{Event, Listener};
use exported::Exported;
use labels::vote_word;
pub use labels::{AcquireOutcome, LockKind, NodeState, RenewalOutcome};
use names::{Series, Templates};
use nodes::ObservedNode;
use stats::Counts;
pub use stats::{NodeStats, Stats};

/// What the user wants to observe.
#[derive(Clone, Default)]
pub(crate) struct Observed {
    pub(crate) listener: Option<Arc<dyn Listener>>,
    pub(crate) templates: Templates,
    /// Whether spans have the names of locks.
    pub(crate) trace_names: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Observation {
    node_names: Vec<String>,
    nodes: Vec<ObservedNode>,
    counts: Counts,
    exported: Exported,
    events: Option<EventQueue>,
    templates: Templates,
    trace_names: bool,
}

/// How a lock is observed: its kind, and its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObservedLock {
    pub(crate) kind: LockKind,
    pub(crate) series: Series,
}

/// How a holder ended its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Released,
    Left,
    Downgraded,
}

impl Observation {
    /// Registers the metrics and starts the thread of the listener.
    pub(crate) fn new(nodes: &[Arc<dyn Node>], wanted: Observed) -> io::Result<Self> {
        let node_names: Vec<String> = nodes.iter().map(|node| node.name().to_owned()).collect();
        let names = node_names.iter().map(String::as_str);
        Ok(Self {
            nodes: names.clone().map(ObservedNode::new).collect(),
            counts: Counts::default(),
            exported: Exported::register(names, &wanted.templates),
            events: wanted.listener.map(EventQueue::start).transpose()?,
            templates: wanted.templates,
            trace_names: wanted.trace_names,
            node_names,
        })
    }

    /// How a lock of this `kind` is observed. `names`: as the user gave them.
    pub(crate) fn lock<'a>(
        &self,
        kind: LockKind,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> ObservedLock {
        ObservedLock {
            kind,
            series: self.templates.series(names),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let events = self.events.as_ref();
        let events = events.map_or((0, 0), |events| (events.dropped(), events.panics()));
        let nodes = self.nodes.iter().map(ObservedNode::stats);
        self.counts.stats(events, nodes.collect())
    }

    /// A call to `node` ended at `now`.
    #[inline]
    pub(crate) fn answered<T>(
        &self,
        node: usize,
        outcome: &Result<T, CallError>,
        discount: Option<&Vote>,
        now: Timestamp,
    ) {
        let Some(state) = NodeState::of(outcome, discount) else {
            return;
        };
        let before = self.nodes[node].set_state(state);
        if let Some(before) = before {
            self.node_changed(node, before, state);
        }
        if state != NodeState::Voting {
            let error = outcome.as_ref().err();
            self.log_gone(node, error, discount, now);
        } else if before.is_some() && self.nodes[node].is_to_tell_back() {
            let node = &*self.nodes[node].name;
            tracing::info!(target: "ringfence", node, "the node is back and votes");
        }
    }

    /// Logs that `node` does not vote, and why, unless the log says so already.
    fn log_gone(
        &self,
        node: usize,
        error: Option<&CallError>,
        discount: Option<&Vote>,
        now: Timestamp,
    ) {
        let observed = &self.nodes[node];
        let why = match (error, discount) {
            (Some(error), _) => Vote::Failed(error.clone()),
            // Whoever finds these logs them.
            (None, None | Some(Vote::ClockJumped { .. } | Vote::Duplicate { .. })) => {
                return observed.was_told_gone();
            }
            (None, Some(discount)) => discount.clone(),
        };
        if !observed.is_to_tell_gone(now) {
            return;
        }
        let (node, why) = (&*observed.name, why.to_string());
        let why = after_name(node, &why);
        tracing::warn!(target: "ringfence", node, "the node does not vote: {why}");
    }

    /// The log says of every node that it does not vote.
    pub(crate) fn told_all_gone(&self) {
        self.nodes.iter().for_each(ObservedNode::was_told_gone);
    }

    /// A call to `node` that takes or extends a lock has ended.
    pub(crate) fn voted(
        &self,
        node: usize,
        outcome: &Result<Reply, CallError>,
        discount: Option<&Vote>,
        sent: Timestamp,
        now: Timestamp,
    ) {
        if let Some(word) = vote_word(outcome, discount) {
            self.nodes[node].voted(word);
            self.exported.voted(node, word);
        }
        let Ok(reply) = outcome else { return };
        let observed = &self.nodes[node];
        if observed.measures_round_trip(now) {
            let span = now.since(sent);
            observed.set_round_trip(span);
            self.exported.round_trip(node, span);
            if let Some(stamp) = reply.stamp {
                self.read_clock(node, stamp.clock_us, sent, now);
            }
        }
    }

    /// A handshake of `node` has ended.
    pub(crate) fn shook_hands(&self, node: usize, facts: &Facts, discount: Option<&Vote>) {
        self.nodes[node].set_version(&facts.version);
        self.answered(node, &Ok(()), discount, facts.received);
        self.read_clock(node, facts.clock_us, facts.sent, facts.received);
    }

    /// The node's clock was `clock_us` at some time between `sent` and `now`, which is the present.
    fn read_clock(&self, node: usize, clock_us: u64, sent: Timestamp, now: Timestamp) {
        if !self.nodes[node].measures_offset(now) {
            return;
        }
        let half = u64::try_from(now.since(sent).as_micros() / 2).unwrap_or(u64::MAX);
        let ours = i128::from(wall_us().saturating_sub(half));
        let offset = (i128::from(clock_us) - ours).clamp(i64::MIN.into(), i64::MAX.into());
        self.nodes[node].set_offset(offset as i64);
        self.exported.clock_offset(node, offset as i64);
    }

    fn node_changed(&self, node: usize, from: NodeState, to: NodeState) {
        self.exported
            .quarantined(node, to == NodeState::Quarantined);
        tracing::debug!(
            target: "ringfence",
            node = &*self.nodes[node].name,
            %from,
            %to,
            "node state changed"
        );
        self.tell(|| Event::NodeChanged {
            node: Arc::clone(&self.nodes[node].name),
            from,
            to,
        });
    }

    /// A renewal of `id` ended.
    pub(crate) fn renewed(
        &self,
        id: &GrantId,
        lock: Option<ObservedLock>,
        verdict: ExtensionVerdict,
    ) {
        let Some(lock) = lock else { return };
        let outcome = RenewalOutcome::from(verdict);
        self.counts.renewed(outcome);
        self.exported.renewed(lock, outcome);
        self.tell(|| Event::Renewed {
            name: given_names(&id.claims),
            kind: lock.kind,
            fence: id.ballot.get(),
            outcome,
        });
    }

    /// The lock `id` was lost after it was `held` for so long.
    pub(crate) fn lost(&self, id: &GrantId, lock: Option<ObservedLock>, why: Lost, held: Duration) {
        tracing::warn!(
            target: "ringfence",
            name = %GivenNames(&id.claims),
            token = %id.token,
            fence = %id.ballot,
            why = %why,
            "lock lost"
        );
        let Some(lock) = lock else { return };
        self.not_held(lock, held);
        self.counts.lost(why.into());
        self.exported.lost(lock, why.into());
        self.tell(|| Event::Lost {
            name: given_names(&id.claims),
            kind: lock.kind,
            fence: id.ballot.get(),
            why,
            held,
        });
    }

    /// The holder of `id` ended its hold before it was lost.
    pub(crate) fn ended(
        &self,
        id: &GrantId,
        lock: Option<ObservedLock>,
        end: HoldEnd,
        held: Duration,
    ) {
        let Some(lock) = lock else { return };
        self.not_held(lock, held);
        if end == HoldEnd::Released {
            self.counts.released();
        }
        self.tell(|| {
            let (name, fence) = (given_names(&id.claims), id.ballot.get());
            let kind = lock.kind;
            match end {
                HoldEnd::Released => Event::Released {
                    name,
                    kind,
                    fence,
                    held,
                },
                HoldEnd::Left => Event::Left {
                    name,
                    kind,
                    fence,
                    held,
                },
                HoldEnd::Downgraded => Event::Downgraded { name, fence, held },
            }
        });
    }

    /// The release of `id` begins.
    pub(crate) fn releasing(&self, id: &GrantId) {
        tracing::debug!(
            target: "ringfence",
            name = %GivenNames(&id.claims),
            token = %id.token,
            fence = %id.ballot,
            "lock released"
        );
    }

    /// A hold begins.
    pub(crate) fn held(&self, lock: ObservedLock) {
        self.counts.held(lock.kind);
        self.exported.held(lock);
    }

    fn not_held(&self, lock: ObservedLock, held: Duration) {
        self.counts.not_held(lock.kind);
        self.exported.not_held(lock, held);
    }

    /// Makes the event only if there is a listener.
    #[inline]
    fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(events) = &self.events {
            events.push(event());
        }
    }
}

/// `text` about `node` without the node's name, with which some texts begin.
pub(crate) fn after_name<'a>(node: &str, text: &'a str) -> &'a str {
    let rest = text
        .strip_prefix(node)
        .and_then(|rest| rest.strip_prefix(' '));
    rest.unwrap_or(text)
}

/// The names of the claims as the user gave them, separated by commas.
struct GivenNames<'a>(&'a [Claim]);

impl fmt::Display for GivenNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, claim) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            // Names come from users and are printed to terminals and logs.
            write!(f, "{comma}{}", claim.name.given().escape_debug())?;
        }
        Ok(())
    }
}

fn given_names(claims: &[Claim]) -> Arc<str> {
    GivenNames(claims).to_string().into()
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("listener", &self.listener.is_some())
            .field("templates", &self.templates)
            .finish_non_exhaustive()
    }
}
