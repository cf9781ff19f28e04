//! `ringfence watch NAME`: a line whenever the lock changes hands. Changes nothing. What changed between
//! two looks is decided by [`Changes`], which is pure: looks in, changes out.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence::Holder;
use ringfence::admin::{HolderKind, Inspection, LockState, NameInspection};
use ringfence::clock::Clock;
use serde_json::{Value, json};

use super::CommandContext;
use super::status::{unknown, who};
use crate::args::WatchArgs;
use crate::duration;
use crate::exit::Exit;
use crate::report::{CliFailure, one_line, reader_has_gone, said_after};
use crate::row::millis;

/// How often the lock is inspected.
const INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn watch(context: &CommandContext, args: WatchArgs) -> Result<Exit, CliFailure> {
    let began = Clock::System.now();
    let mut changes = Changes::default();
    let mut tick = tokio::time::interval(INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut is_first = true;
    loop {
        tick.tick().await;
        if reader_has_gone() {
            return Ok(Exit::Success);
        }
        let seen = context.locks.inspect_all(&args.name).await?;
        // A mistyped address is an error; nodes that go away later are news.
        if is_first && seen.lock.nodes.iter().all(|node| node.view.is_err()) {
            return Err(no_node_answers(&seen.lock));
        }
        let look = Look::of(&seen);
        let at = Clock::System.now().since(began);
        is_first = false;
        for change in changes.handle_look(at, look) {
            let written = context.report.stream(&change.text(at), &change.json(at))?;
            if written.is_break() {
                return Ok(Exit::Success);
            }
        }
    }
}

fn no_node_answers(lock: &Inspection) -> CliFailure {
    let nodes = lock.nodes.iter().filter_map(|node| {
        let error = node.view.as_ref().err()?.to_string();
        Some((node.node.clone(), said_after(&node.node, &error)))
    });
    let nodes: Vec<(String, String)> = nodes.collect();
    // Of several nodes each gets a line of its own below.
    let message = match &nodes[..] {
        [(node, said)] => format!("the node does not answer: {node}: {said}"),
        _ => "no node answers".to_owned(),
    };
    CliFailure {
        nodes,
        ..CliFailure::new(Exit::NoQuorum, message)
    }
}

/// How much more than the time between two looks a fence must rise before a client must have asked
/// for the lock. A fence that no client has raised follows the clocks of the nodes.
const SLACK: Duration = Duration::from_millis(20);

/// What one look showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is known who holds it.
    Seen {
        /// The holders, by what they hold and their id.
        holders: BTreeMap<HolderKey, SeenHolder>,
        /// The fence that a majority has reached, also if the lock is free.
        floor: u64,
    },
    /// It is unknown who holds it. What the nodes say.
    Unknown(String),
}

/// What is held, and the id of the holder.
type HolderKey = (Option<usize>, String);

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenHolder {
    /// Its label, or its id.
    who: String,
    fence: Option<u64>,
    shared: bool,
    /// It has released the lock and keeps it from others.
    kept: bool,
    /// The slot of a semaphore.
    slot: Option<usize>,
}

/// The changes of a lock since the last look.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    last: Option<LastLook>,
    /// What the last look said, if it was unknown who holds the lock.
    unknown: Option<String>,
}

/// The last look that showed something.
#[derive(Debug)]
struct LastLook {
    at: Duration,
    holders: BTreeMap<HolderKey, SeenHolder>,
    floor: u64,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HandChange {
    /// The first look: the lock is free.
    Free,
    /// The first look: a client holds it.
    Held(SeenHolder),
    /// A client has taken it since the last look.
    Taken(SeenHolder),
    /// A holder is gone: it released the lock or lost it. Only the holder knows which.
    Gone(SeenHolder),
    /// The last holder released it and keeps it from others.
    Kept(SeenHolder),
    /// The fence rose, and no look showed by whom: a client may have held the lock.
    InBetween { fence: u64 },
    /// It is unknown who holds it. What the nodes say.
    Unknown(String),
    /// It is known again.
    Known,
}

impl Look {
    pub(crate) fn of(seen: &NameInspection) -> Self {
        if seen.lock.state == LockState::Unknown {
            return Self::Unknown(unknown(&seen.lock));
        }
        let slots = || seen.semaphore.iter().flat_map(|one| &one.slots);
        let mut slots_seen = (0..).zip(slots());
        let is_unknown = |(_, slot): &(usize, &Inspection)| slot.state == LockState::Unknown;
        if let Some((number, slot)) = slots_seen.find(is_unknown) {
            return Self::Unknown(format!("slot {number}: {}", unknown(slot)));
        }
        let mut holders = BTreeMap::new();
        add(&mut holders, &seen.lock, None);
        for (slot, inspection) in slots().enumerate() {
            add(&mut holders, inspection, Some(slot));
        }
        Self::Seen {
            holders,
            floor: floor(&seen.lock),
        }
    }
}

fn add(holders: &mut BTreeMap<HolderKey, SeenHolder>, lock: &Inspection, slot: Option<usize>) {
    for holder in &lock.holders {
        let Holder { id, fence, .. } = holder;
        let key = (slot, id.clone().unwrap_or_default());
        let seen = SeenHolder {
            who: who(holder),
            fence: *fence,
            shared: lock.kind == Some(HolderKind::Shared),
            kept: lock.kept,
            slot,
        };
        holders.insert(key, seen);
    }
}

/// The highest fence that a majority of the nodes has reached.
fn floor(lock: &Inspection) -> u64 {
    let views = lock.nodes.iter().filter_map(|node| node.view.as_ref().ok());
    let mut floors: Vec<u64> = views.map(|view| view.floor.get()).collect();
    floors.sort_unstable_by(|a, b| b.cmp(a));
    floors.get(lock.nodes.len() / 2).copied().unwrap_or(0)
}

impl Changes {
    /// What changed between the last look and this one, which was taken at `at`.
    pub(crate) fn handle_look(&mut self, at: Duration, look: Look) -> Vec<HandChange> {
        let (holders, floor) = match look {
            Look::Unknown(why) => {
                let before = self.unknown.replace(why.clone());
                let news = before.is_none_or(|before| before != why);
                let change = news.then_some(HandChange::Unknown(why));
                return change.into_iter().collect();
            }
            Look::Seen { holders, floor } => (holders, floor),
        };
        let mut changes = Vec::new();
        if self.unknown.take().is_some() {
            changes.push(HandChange::Known);
        }
        match &self.last {
            None if holders.is_empty() => changes.push(HandChange::Free),
            None => changes.extend(holders.values().cloned().map(HandChange::Held)),
            Some(last) => changes.extend(last.changes_to(at, &holders, floor)),
        }
        self.last = Some(LastLook { at, holders, floor });
        changes
    }
}

impl LastLook {
    fn changes_to(
        &self,
        at: Duration,
        holders: &BTreeMap<HolderKey, SeenHolder>,
        floor: u64,
    ) -> Vec<HandChange> {
        let gone = self.holders.iter();
        let gone = gone.filter(|(key, one)| !one.kept && !holders.contains_key(*key));
        let taken = holders.iter();
        let taken = taken.filter(|(key, _)| !self.holders.contains_key(*key));
        let taken: Vec<&SeenHolder> = taken.map(|(_, one)| one).collect();
        let mut changes: Vec<HandChange> =
            gone.map(|(_, one)| HandChange::Gone(one.clone())).collect();
        if self.rose_unseen(at, holders, floor) {
            changes.push(HandChange::InBetween { fence: floor });
        }
        changes.extend(taken.into_iter().cloned().map(|one| match one.kept {
            true => HandChange::Kept(one),
            false => HandChange::Taken(one),
        }));
        changes
    }

    /// Whether the fence rose, and a client may have held the lock that neither look showed. A failed
    /// attempt raises the fence, too. So while a client is seen to hold the lock, a fence above its
    /// own shows nothing: nobody was granted the lock since.
    fn rose_unseen(
        &self,
        at: Duration,
        holders: &BTreeMap<HolderKey, SeenHolder>,
        floor: u64,
    ) -> bool {
        let passed = at.saturating_sub(self.at) + SLACK;
        let by_clocks = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        let is_held = holders.values().any(|one| one.slot.is_none());
        let before = self.holders.values().filter(|one| one.slot.is_none());
        let highest = before.filter_map(|one| one.fence).max().unwrap_or(0);
        floor > self.floor.saturating_add(by_clocks) && floor > highest && !is_held
    }
}

impl SeenHolder {
    /// The holder with its fence.
    fn text(&self) -> String {
        let slot = self.slot.map(|slot| format!("slot {slot}, "));
        let slot = slot.unwrap_or_default();
        match self.fence {
            Some(fence) => format!("{} ({slot}fence {fence})", self.who),
            None => format!("{} ({slot}without a fence)", self.who),
        }
    }

    fn json(&self) -> Value {
        json!({
            "who": self.who,
            "fence": self.fence,
            "shared": self.shared,
            "slot": self.slot,
        })
    }
}

impl HandChange {
    /// The line for people.
    fn text(&self, at: Duration) -> String {
        let what = match self {
            Self::Free => "free".to_owned(),
            Self::Held(holder) if holder.kept => {
                format!("kept from others; {} released it", holder.who)
            }
            Self::Held(holder) if holder.shared => format!("shared by {}", holder.text()),
            Self::Held(holder) => format!("held by {}", holder.text()),
            Self::Taken(holder) if holder.shared => format!("shared by {}", holder.text()),
            Self::Taken(holder) => format!("taken by {}", holder.text()),
            Self::Gone(holder) => format!("{} is gone", holder.text()),
            Self::Kept(holder) => format!("kept from others; {} released it", holder.who),
            Self::InBetween { fence } => {
                format!("the fence rose to {fence}: a client may have held it in between")
            }
            Self::Unknown(why) => why.clone(),
            Self::Known => "a majority answers again".to_owned(),
        };
        format!("{:>9}  {}", duration::show(at), one_line(&what))
    }

    /// The line for programs.
    pub(crate) fn json(&self, at: Duration) -> Value {
        let (change, holder) = match self {
            Self::Free => ("free", None),
            Self::Held(holder) => ("held", Some(holder)),
            Self::Taken(holder) => ("taken", Some(holder)),
            Self::Gone(holder) => ("gone", Some(holder)),
            Self::Kept(holder) => ("kept", Some(holder)),
            Self::InBetween { .. } => ("in_between", None),
            Self::Unknown(_) => ("unknown", None),
            Self::Known => ("known", None),
        };
        let holder = holder.map(SeenHolder::json);
        let mut line = json!({"at_ms": millis(at), "change": change, "holder": holder});
        match self {
            Self::InBetween { fence } => line["fence"] = json!(fence),
            Self::Unknown(why) => line["why"] = json!(why),
            _ => {}
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LOOK: Duration = Duration::from_millis(250);

    fn holder(who: &str, fence: u64) -> SeenHolder {
        SeenHolder {
            who: who.to_owned(),
            fence: Some(fence),
            shared: false,
            kept: false,
            slot: None,
        }
    }

    fn seen(holders: &[&SeenHolder], floor: u64) -> Look {
        let holders = holders
            .iter()
            .map(|one| ((one.slot, one.who.clone()), SeenHolder::clone(one)));
        Look::Seen {
            holders: holders.collect(),
            floor,
        }
    }

    /// The changes of each look, 250 ms apart.
    fn changes(looks: impl IntoIterator<Item = Look>) -> Vec<Vec<HandChange>> {
        let mut changes = Changes::default();
        let looks = (0..).zip(looks);
        looks
            .map(|(n, look)| changes.handle_look(n * LOOK, look))
            .collect()
    }

    #[test]
    fn the_first_look_says_what_is_and_the_next_only_what_changed() {
        let (a, b) = (holder("a", 10), holder("b", 20));
        let found = changes([
            seen(&[&a], 10),
            seen(&[&a], 10),
            seen(&[], 10),
            seen(&[], 10),
            seen(&[&b], 20),
        ]);
        assert_eq!(found[0], [HandChange::Held(a.clone())]);
        assert!(found[1].is_empty() && found[3].is_empty());
        assert_eq!(found[2], [HandChange::Gone(a)]);
        assert_eq!(found[4], [HandChange::Taken(b)]);
        assert_eq!(changes([seen(&[], 0)]), [[HandChange::Free]]);
    }

    #[test]
    fn one_holder_after_the_other_is_a_gone_and_a_taken() {
        let (a, b) = (holder("a", 10), holder("b", 20));
        let found = changes([seen(&[&a], 10), seen(&[&b], 20)]);
        assert_eq!(found[1], [HandChange::Gone(a), HandChange::Taken(b)]);
    }

    #[test]
    fn a_fence_that_rose_while_no_holder_was_seen_is_told() {
        let found = changes([seen(&[], 1_000), seen(&[], 5_001_000)]);
        assert_eq!(found[1], [HandChange::InBetween { fence: 5_001_000 }]);
        // Also beside a holder that is gone.
        let a = holder("a", 1_000);
        let found = changes([seen(&[&a], 1_000), seen(&[], 5_001_000)]);
        assert_eq!(
            found[1],
            [
                HandChange::Gone(a),
                HandChange::InBetween { fence: 5_001_000 }
            ]
        );
    }

    /// Attempts that fail raise the fence. The fence of a holder is its own.
    #[test]
    fn a_fence_that_rises_above_that_of_the_holder_is_no_change() {
        let a = holder("a", 1_000);
        let found = changes((0..5).map(|n| seen(&[&a], 1_000 + n * 5_000_000)));
        assert!(found[1..].iter().all(Vec::is_empty), "{found:?}");
        // Nor if another client holds it now: the fence may have risen since it was granted.
        let b = holder("b", 4_000_000);
        let found = changes([seen(&[&a], 1_000), seen(&[&b], 9_000_000)]);
        assert_eq!(found[1], [HandChange::Gone(a), HandChange::Taken(b)]);
    }

    /// Without a record the fence follows the clocks.
    #[test]
    fn a_fence_that_follows_the_clocks_is_no_change() {
        let found = changes((0..10).map(|n| seen(&[], 1_000 + n * 250_000)));
        assert!(found[1..].iter().all(Vec::is_empty), "{found:?}");
    }

    #[test]
    fn the_fence_of_a_holder_that_is_seen_is_no_unseen_one() {
        let a = holder("a", 9_000_000);
        let found = changes([seen(&[], 1_000), seen(&[&a], 9_000_000)]);
        assert_eq!(found[1], [HandChange::Taken(a)]);
    }

    #[test]
    fn readers_come_and_go_one_by_one() {
        let reader = |who, fence| SeenHolder {
            shared: true,
            ..holder(who, fence)
        };
        let (a, b) = (reader("a", 10), reader("b", 20));
        let found = changes([seen(&[&a], 10), seen(&[&a, &b], 20), seen(&[&b], 20)]);
        assert_eq!(found[1], [HandChange::Taken(b)]);
        assert_eq!(found[2], [HandChange::Gone(a)]);
    }

    #[test]
    fn a_lock_that_is_kept_is_released_once() {
        let a = holder("a", 10);
        let kept = SeenHolder {
            who: "kept.a".to_owned(),
            kept: true,
            ..a.clone()
        };
        let found = changes([seen(&[&a], 10), seen(&[&kept], 10), seen(&[], 10)]);
        assert_eq!(found[1], [HandChange::Gone(a), HandChange::Kept(kept)]);
        assert!(found[2].is_empty());
    }

    #[test]
    fn what_is_unknown_is_told_when_it_changes_and_so_is_that_it_is_known_again() {
        let unknown = |text: &str| Look::Unknown(text.to_owned());
        let (one, two) = ("unknown: 1 says a", "unknown: 2 say a");
        let a = holder("a", 10);
        let looks = [unknown(one), unknown(one), unknown(two), seen(&[&a], 10)];
        let found = changes([seen(&[&a], 10)].into_iter().chain(looks));
        assert_eq!(found[1], [HandChange::Unknown(one.to_owned())]);
        assert!(found[2].is_empty());
        assert_eq!(found[3], [HandChange::Unknown(two.to_owned())]);
        assert_eq!(found[4], [HandChange::Known]);
        assert_eq!(
            changes([unknown(one), seen(&[], 0)])[1],
            [HandChange::Known, HandChange::Free]
        );
    }

    #[test]
    fn a_label_cannot_write_to_the_terminal() {
        let change = HandChange::Taken(holder("\u{1b}[2J\n", 10));
        assert!(!change.text(MS).chars().any(char::is_control));
    }
}
