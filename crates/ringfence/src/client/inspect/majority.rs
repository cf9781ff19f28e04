//! What a majority of the nodes says alike. Pure: views in, an inspection out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::message::{
    Arrivals, Holder as NodeHolder, READERS_SHOWN, ReaderView, TICKETS_SHOWN, TicketView, View,
};
use crate::node::Tier;
use crate::protocol::quorum;

use super::super::PERMITS_MAX;
use super::super::inspection::{
    Holder, HolderKind, Inspection, LatchInspection, LockState, NodeInspection, ReportedHolder,
    SemaphoreInspection, WaiterInspection,
};

/// The majority's view of the lock `name`.
pub(super) fn view(name: String, nodes: Vec<NodeInspection>) -> Inspection {
    let (count, quorum) = (nodes.len(), quorum(nodes.len()));
    let answered = answered(&nodes);
    let voting = answered.iter().filter(|answer| answer.votes).count();
    let groups = groups(&answered);
    let most = groups.iter().map(HolderGroup::support).max().unwrap_or(0);
    let state = LockState::of(most, count - voting, count);
    let holding = groups.iter().max_by_key(|group| group.support());
    let holding = holding.filter(|_| state == LockState::Held);
    let holding = holding.map(HolderGroup::voting).unwrap_or_default();
    let tiers = holding.iter();
    let tiers = tiers.map(|answer| answer.tier.unwrap_or(Tier::BestEffort));
    let durability = Tier::of_majority(tiers, count);
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
    let enough = known_by(quorum, answered.len());
    let waiting = reached_by(enough, answered.iter().map(|answer| answer.view.waiting));
    let holder_count = shared_by.unwrap_or(0).max(holders.len() as u64);
    let (queue, kept) = (queue(&answered, enough), is_kept(&holding));
    let mut reported: Vec<_> = groups.iter().flat_map(HolderGroup::reported).collect();
    reported.sort_by_key(|one| Reverse(one.nodes));
    Inspection {
        name,
        kind,
        state,
        reported,
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
    }
}

/// How many nodes must say something before it is shown: a majority if one answers, else any node,
/// because then all that is shown is what single nodes say.
fn known_by(quorum: usize, answered: usize) -> usize {
    if answered >= quorum { quorum } else { 1 }
}

/// The semaphore `name`, if it is in use. `admission` is what the nodes have of its admission
/// record, `slots` are all slots that a semaphore can have.
pub(in crate::client) fn semaphore(
    name: String,
    admission: &Inspection,
    mut slots: Vec<Inspection>,
) -> Option<SemaphoreInspection> {
    let quorum = quorum(admission.nodes.len());
    let recorded = answered(&admission.nodes);
    let enough = known_by(quorum, recorded.len());
    let recorded = recorded.into_iter();
    let recorded = reached_by(enough, recorded.filter_map(|answer| answer.view.permits));
    let last_held = slots.iter().rposition(|slot| match slot.state {
        LockState::Held => true,
        LockState::Free => false,
        LockState::Unknown => !slot.reported.is_empty(),
    });
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
    let answered = answered(&latch.nodes);
    let quorum = known_by(quorum(latch.nodes.len()), answered.len());
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
        quorum: latch.has_quorum(),
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
    votes: bool,
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
            votes: node.votes(),
        })
    });
    answers.collect()
}

/// Who has a lock on a node, as far as the answers of two nodes can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HolderSeat<'a> {
    /// The holder with this id.
    Token(&'a str),
    /// Readers, each with an id of its own.
    Readers,
    /// Another library's client. Without its secret nothing shows whether two nodes have the same
    /// one, so they count as one.
    Foreign,
}

impl<'a> HolderSeat<'a> {
    fn of(view: &'a View) -> Option<Self> {
        let holder = view.holder.as_ref()?;
        Some(match &holder.id {
            Some(id) => Self::Token(id),
            None if view.shared_by > 0 => Self::Readers,
            None => Self::Foreign,
        })
    }
}

/// The answers of nodes that have the same holder.
struct HolderGroup<'a> {
    seat: HolderSeat<'a>,
    answers: Vec<NodeAnswer<'a>>,
}

/// The answers by the holder that they have, in node order.
fn groups<'a>(answered: &[NodeAnswer<'a>]) -> Vec<HolderGroup<'a>> {
    let mut groups: Vec<HolderGroup<'a>> = Vec::new();
    for answer in answered {
        let Some(seat) = HolderSeat::of(answer.view) else {
            continue;
        };
        match groups.iter_mut().find(|group| group.seat == seat) {
            Some(group) => group.answers.push(*answer),
            None => groups.push(HolderGroup {
                seat,
                answers: vec![*answer],
            }),
        }
    }
    groups
}

impl<'a> HolderGroup<'a> {
    fn voting(&self) -> Vec<NodeAnswer<'a>> {
        let answers = self.answers.iter().copied();
        answers.filter(|answer| answer.votes).collect()
    }

    /// How many nodes that vote have one and the same holder.
    fn support(&self) -> usize {
        let voting = self.voting();
        let lists_all =
            |answer: &NodeAnswer<'_>| answer.view.readers.len() as u64 >= answer.view.shared_by;
        if self.seat == HolderSeat::Readers && voting.iter().all(lists_all) {
            let named = named_readers(&voting).into_values();
            return named.map(|said| said.len()).max().unwrap_or(0);
        }
        // Nodes list only the first of many readers. Those may differ, and others be the same.
        voting.len()
    }

    /// What the nodes say of each holder. Nodes that vote, if one of them has it.
    fn reported(&self) -> Vec<ReportedHolder> {
        let voting = self.voting();
        let answers = if voting.is_empty() {
            &self.answers
        } else {
            &voting
        };
        let count = |said: usize| if voting.is_empty() { 0 } else { said };
        if self.seat == HolderSeat::Readers {
            let named = named_readers(answers).into_iter();
            let readers = named.map(|(id, said)| ReportedHolder {
                holder: reader(id, &said, said.len() / 2 + 1),
                nodes: count(said.len()),
            });
            let readers: Vec<_> = readers.take(READERS_SHOWN).collect();
            if !readers.is_empty() {
                return readers;
            }
        }
        let holder = holder(answers, answers.len() / 2 + 1);
        let reported = holder.map(|holder| ReportedHolder {
            holder,
            nodes: count(answers.len()),
        });
        reported.into_iter().collect()
    }
}

/// The holder that the nodes of `holding` have. What a minority says of it, more than its id, may
/// be made up.
fn holder(holding: &[NodeAnswer<'_>], quorum: usize) -> Option<Holder> {
    let holders: Vec<&NodeHolder> = holding
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
    Some(Holder {
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
    first.is_some_and(NodeHolder::is_kept)
}

/// The readers that a majority names, latest end of the lease first.
fn readers(holding: &[NodeAnswer<'_>], quorum: usize) -> Vec<Holder> {
    let named = named_readers(holding).into_iter();
    let named = named.filter(|(_, said)| said.len() >= quorum);
    let readers = named.map(|(id, said)| reader(id, &said, quorum));
    let mut readers: Vec<Holder> = readers.take(READERS_SHOWN).collect();
    readers.sort_by_key(|reader| Reverse(reader.remaining));
    readers
}

/// What each node says of one reader.
type SaidOfReader<'a> = Vec<(NodeAnswer<'a>, &'a ReaderView)>;

fn named_readers<'a>(holding: &[NodeAnswer<'a>]) -> BTreeMap<&'a str, SaidOfReader<'a>> {
    let mut named: BTreeMap<&str, SaidOfReader<'a>> = BTreeMap::new();
    for answer in holding {
        for reader in &answer.view.readers {
            named.entry(&reader.id).or_default().push((*answer, reader));
        }
    }
    named
}

/// What at least `quorum` of the nodes say of the reader `id`.
fn reader(id: &str, said: &SaidOfReader<'_>, quorum: usize) -> Holder {
    let label = agreed(quorum, said.iter().map(|(_, r)| Some(r.label.clone())));
    let fence = agreed(quorum, said.iter().map(|(_, r)| Some(r.ballot)));
    let lasts = reached_by(quorum, said.iter().map(|(_, reader)| reader.for_ms));
    let held_for = said.iter().filter_map(|(a, r)| a.since(r.ballot.get()));
    Holder {
        label: label.filter(|label| !label.is_empty()),
        id: Some(id.to_owned()),
        fence: fence.map(|ballot| ballot.get()),
        held_for: median(held_for),
        remaining: lasts.map(Duration::from_millis),
    }
}

/// The tickets that a majority has, in order.
fn queue(answered: &[NodeAnswer<'_>], quorum: usize) -> Vec<WaiterInspection> {
    let mut named: BTreeMap<(u64, &str), Vec<(&NodeAnswer<'_>, &TicketView)>> = BTreeMap::new();
    for answer in answered {
        for ticket in &answer.view.tickets {
            let said = named.entry((ticket.since_us, &ticket.id)).or_default();
            said.push((answer, ticket));
        }
    }
    let waiters = named.into_iter().filter(|(_, said)| said.len() >= quorum);
    let waiters = waiters.map(|((since_us, id), said)| WaiterInspection {
        id: id.to_owned(),
        label: agreed(
            quorum,
            said.iter().map(|(_, ticket)| Some(ticket.label.clone())),
        )
        .unwrap_or_default(),
        waited: median(said.iter().filter_map(|(a, _)| a.since(since_us))).unwrap_or_default(),
        shared: said.iter().filter(|(_, ticket)| ticket.shared).count() >= quorum,
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
fn some_reader(holders: &[&NodeHolder]) -> Option<String> {
    let shared = |holder: &&NodeHolder| holder.id.is_none() && holder.label.is_some();
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
