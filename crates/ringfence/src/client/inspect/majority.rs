//! What a majority of the nodes says alike. Pure: views in, an inspection out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::message::{Arrivals, Holder, READERS_SHOWN, ReaderView, TICKETS_SHOWN, View};
use crate::node::Tier;
use crate::protocol::{Vote, quorum};

use super::super::PERMITS_MAX;
use super::super::error::InspectError;
use super::super::inspection::{
    HolderInspection, HolderKind, Inspection, LatchInspection, NodeInspection, SemaphoreInspection,
    WaiterInspection,
};
use super::super::votes::Votes;

/// The majority's view of the lock `name`.
pub(super) fn view(
    name: String,
    names: &[String],
    nodes: Vec<NodeInspection>,
) -> Result<Inspection, InspectError> {
    let quorum = quorum(nodes.len());
    let answered = answered(&nodes);
    if answered.len() < quorum {
        let votes = nodes.iter().map(|node| match &node.view {
            Ok(_) => Vote::Granted,
            Err(error) => Vote::Failed(error.clone()),
        });
        return Err(InspectError::NoQuorum {
            name,
            votes: Votes::worded("answers", names, votes),
        });
    }
    let holding = same_holder(&answered, quorum);
    let tiers = holding.iter();
    let tiers = tiers.map(|answer| answer.tier.unwrap_or(Tier::BestEffort));
    let durability = Tier::of_majority(tiers, nodes.len());
    let held = holder(&holding, quorum);
    let readers = readers(&holding, quorum);
    let shared_by = reached_by(quorum, holding.iter().map(|answer| answer.view.shared_by));
    let kind = held.as_ref().map(|held| match shared_by {
        Some(1..) => HolderKind::Shared,
        _ if held.fence.is_some() || is_kept(&holding) => HolderKind::Exclusive,
        _ if holding.iter().any(|answer| answer.view.ballot.is_some()) => HolderKind::Exclusive,
        _ => HolderKind::Plain,
    });
    let holders = match kind {
        Some(HolderKind::Shared) if !readers.is_empty() => readers,
        _ => held.clone().into_iter().collect(),
    };
    // At least so many on a majority: a ticket on a minority is no position in the queue.
    let waiting = reached_by(quorum, answered.iter().map(|answer| answer.view.waiting));
    let holder_count = shared_by.unwrap_or(0).max(holders.len() as u64);
    let (queue, kept) = (queue(&answered, quorum), is_kept(&holding));
    Ok(Inspection {
        name,
        kind,
        held: held.is_some(),
        kept,
        label: held.as_ref().and_then(|held| held.label.clone()),
        holder_id: held.as_ref().and_then(|held| held.id.clone()),
        remaining: held.as_ref().and_then(|held| held.remaining),
        fence: held.as_ref().and_then(|held| held.fence),
        durability,
        holders,
        holder_count,
        waiting: waiting.unwrap_or_default(),
        queue,
        nodes,
    })
}

/// The semaphore `name`, if it is in use. `admission` is what the nodes have of its admission
/// record, `slots` are all slots that a semaphore can have.
pub(in crate::client) fn semaphore(
    name: String,
    admission: &Inspection,
    mut slots: Vec<Inspection>,
) -> Option<SemaphoreInspection> {
    let quorum = quorum(admission.nodes.len());
    let recorded = answered(&admission.nodes).into_iter();
    let recorded = reached_by(quorum, recorded.filter_map(|answer| answer.view.permits));
    let last_held = slots.iter().rposition(|slot| slot.held);
    let held = last_held.map_or(0, |last| last as u64 + 1);
    let permits = recorded.unwrap_or(0).min(u64::from(PERMITS_MAX)).max(held);
    if permits == 0 && admission.waiting == 0 {
        return None;
    }
    slots.truncate(permits as usize);
    Some(SemaphoreInspection {
        name,
        permits,
        slots,
        waiting: admission.waiting,
        queue: admission.queue.clone(),
    })
}

/// The latch, if it is in use. `latch` is what the nodes have of its key.
pub(in crate::client) fn latch(latch: &Inspection) -> Option<LatchInspection> {
    let quorum = quorum(latch.nodes.len());
    let answered = answered(&latch.nodes);
    let known = || {
        let known = answered.iter();
        known.filter_map(|answer| Some((answer, answer.view.arrivals.as_ref()?)))
    };
    let arrived = reached_by(quorum, known().map(|(_, arrivals)| arrivals.arrived));
    if arrived.unwrap_or(0) == 0 && latch.waiting == 0 {
        return None;
    }
    let mut naming: BTreeMap<&str, usize> = BTreeMap::new();
    for party in known().flat_map(|(_, Arrivals { parties, .. })| parties) {
        *naming.entry(party).or_default() += 1;
    }
    let parties = naming.into_iter().filter(|(_, nodes)| *nodes >= quorum);
    let ages = known().filter_map(|(answer, arrivals)| answer.since(arrivals.since_us?));
    Some(LatchInspection {
        name: latch.name.clone(),
        arrived: arrived.unwrap_or(0),
        parties: parties.map(|(party, _)| shown_party(party)).collect(),
        age: median(ages),
        waiting: latch.waiting,
    })
}

/// The name that the user gave to a party, or the id of one without a name.
fn shown_party(party: &str) -> String {
    party.strip_prefix("named:").unwrap_or(party).to_owned()
}

/// What one node that answered has of a name.
#[derive(Clone, Copy)]
struct NodeAnswer<'a> {
    view: &'a View,
    tier: Option<Tier>,
    clock_us: u64,
}

impl NodeAnswer<'_> {
    /// How long before its answer the node's clock showed `time_us`.
    fn since(self, time_us: u64) -> Option<Duration> {
        let passed = self.clock_us.checked_sub(time_us);
        Some(Duration::from_micros(passed.unwrap_or(0)))
    }
}

fn answered(nodes: &[NodeInspection]) -> Vec<NodeAnswer<'_>> {
    let answers = nodes.iter().filter_map(|node| {
        Some(NodeAnswer {
            view: node.view.as_ref().ok()?,
            tier: node.tier,
            clock_us: node.clock_us?,
        })
    });
    answers.collect()
}

/// The answers of nodes that have one and the same holder, if they are a majority.
fn same_holder<'a>(answered: &[NodeAnswer<'a>], quorum: usize) -> Vec<NodeAnswer<'a>> {
    // A holder without an id is another library's. Without its secret nothing shows whether two
    // nodes have the same one, so they count as one.
    let id_of = |answer: &NodeAnswer<'a>| Some(answer.view.holder.as_ref()?.id.clone());
    let same = |id: Option<String>| -> Vec<NodeAnswer<'a>> {
        let answers = answered.iter().copied();
        let has = |answer: &NodeAnswer<'a>| id_of(answer).is_some_and(|other| other == id);
        answers.filter(has).collect()
    };
    let holders = answered.iter().filter_map(id_of).map(same);
    let most = holders.max_by_key(Vec::len);
    most.filter(|answers| answers.len() >= quorum)
        .unwrap_or_default()
}

/// The holder that the nodes of `holding` have. What a minority says of it, more than its id, may
/// be made up.
fn holder(holding: &[NodeAnswer<'_>], quorum: usize) -> Option<HolderInspection> {
    let holders: Vec<&Holder> = holding
        .iter()
        .filter_map(|answer| answer.view.holder.as_ref())
        .collect();
    let first = holders.first()?;
    let label = agreed(quorum, holders.iter().map(|holder| holder.label.clone()))
        .or_else(|| some_reader(&holders));
    let fence = agreed(quorum, holding.iter().map(|answer| answer.view.ballot));
    let lasts = holders.iter().map(|h| h.for_ms.unwrap_or(u64::MAX));
    let lasts = reached_by(quorum, lasts).filter(|ms| *ms != u64::MAX);
    let held_for = fence.map(|fence| holding.iter().filter_map(move |a| a.since(fence.get())));
    Some(HolderInspection {
        label: label.filter(|label| !label.is_empty()),
        id: first.id.clone(),
        fence: fence.map(|ballot| ballot.get()),
        held_for: held_for.and_then(median),
        remaining: lasts.map(Duration::from_millis),
    })
}

fn is_kept(holding: &[NodeAnswer<'_>]) -> bool {
    let first = holding
        .first()
        .and_then(|answer| answer.view.holder.as_ref());
    first.is_some_and(Holder::is_kept)
}

/// The readers that a majority names, latest end of the lease first.
fn readers(holding: &[NodeAnswer<'_>], quorum: usize) -> Vec<HolderInspection> {
    let mut named: BTreeMap<&str, Vec<(&NodeAnswer<'_>, &ReaderView)>> = BTreeMap::new();
    for answer in holding {
        for reader in &answer.view.readers {
            named.entry(&reader.id).or_default().push((answer, reader));
        }
    }
    let readers = named.into_iter().filter(|(_, said)| said.len() >= quorum);
    let readers = readers.map(|(id, said)| {
        let label = agreed(quorum, said.iter().map(|(_, r)| Some(r.label.clone())));
        let fence = agreed(quorum, said.iter().map(|(_, r)| Some(r.ballot)));
        let lasts = reached_by(quorum, said.iter().map(|(_, reader)| reader.for_ms));
        let held_for = said.iter().filter_map(|(a, r)| a.since(r.ballot.get()));
        HolderInspection {
            label: label.filter(|label| !label.is_empty()),
            id: Some(id.to_owned()),
            fence: fence.map(|ballot| ballot.get()),
            held_for: median(held_for),
            remaining: lasts.map(Duration::from_millis),
        }
    });
    let mut readers: Vec<HolderInspection> = readers.take(READERS_SHOWN).collect();
    readers.sort_by_key(|reader| Reverse(reader.remaining));
    readers
}

/// The tickets that a majority has, in order.
fn queue(answered: &[NodeAnswer<'_>], quorum: usize) -> Vec<WaiterInspection> {
    let mut named: BTreeMap<(u64, &str), Vec<(&NodeAnswer<'_>, bool)>> = BTreeMap::new();
    for answer in answered {
        for ticket in &answer.view.tickets {
            let said = named.entry((ticket.since_us, &ticket.id)).or_default();
            said.push((answer, ticket.shared));
        }
    }
    let waiters = named.into_iter().filter(|(_, said)| said.len() >= quorum);
    let waiters = waiters.map(|((since_us, id), said)| WaiterInspection {
        id: id.to_owned(),
        waited: median(said.iter().filter_map(|(a, _)| a.since(since_us))).unwrap_or_default(),
        shared: said.iter().filter(|(_, shared)| *shared).count() >= quorum,
        own: false,
    });
    waiters.take(TICKETS_SHOWN).collect()
}

/// What at least `quorum` nodes say alike.
fn agreed<T: Clone + PartialEq>(quorum: usize, said: impl Iterator<Item = Option<T>>) -> Option<T> {
    let said: Vec<Option<T>> = said.collect();
    let alike = |one: &&Option<T>| said.iter().filter(|other| other == one).count() >= quorum;
    said.iter().find(alike).cloned().flatten()
}

/// One of the readers of a name. Each node names the reader whose lease ends last there, so all
/// nodes can be right and name different ones.
fn some_reader(holders: &[&Holder]) -> Option<String> {
    let shared = |holder: &&Holder| holder.id.is_none() && holder.label.is_some();
    let label = holders.first().and_then(|holder| holder.label.clone());
    label.filter(|_| holders.iter().all(shared))
}

/// The largest number that at least `quorum` of `said` reach.
fn reached_by(quorum: usize, said: impl Iterator<Item = u64>) -> Option<u64> {
    let mut said: Vec<u64> = said.collect();
    said.sort_unstable_by(|a, b| b.cmp(a));
    said.get(quorum - 1).copied()
}

fn median(said: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut said: Vec<Duration> = said.collect();
    said.sort_unstable();
    said.get(said.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests;
