//! What changed between two looks at a lock. Pure: looks in, changes out.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfence::{HolderInspection, HolderKind, Inspection, NameInspection};
use serde_json::{Value, json};

use super::super::millis;
use crate::command::status::text::who;
use crate::duration;
use crate::report::one_line;

/// How much more than the time between two looks a fence must rise before a client must have taken
/// the lock. A fence that no client has raised follows the clocks of the nodes.
const SLACK: Duration = Duration::from_millis(20);

/// What one look showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// A majority answered.
    Seen {
        /// The holders, by what they hold and their id.
        holders: BTreeMap<HolderKey, SeenHolder>,
        /// The fence that a majority has reached, also if the lock is free.
        floor: u64,
    },
    /// No majority answered, and why.
    NoQuorum(String),
}

/// What is held, and the id of the holder.
type HolderKey = (Option<usize>, String);

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenHolder {
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
pub(super) struct Changes {
    last: Option<LastLook>,
    /// Whether the last look had no majority.
    blind: bool,
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
pub(super) enum HandChange {
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
    /// The fence rose by a holder that no look showed.
    InBetween { fence: u64 },
    /// No majority answers.
    MajorityLost(String),
    /// A majority answers again.
    MajorityBack,
}

impl Look {
    pub(super) fn of(seen: &NameInspection) -> Self {
        let mut holders = BTreeMap::new();
        add(&mut holders, &seen.lock, None);
        let slots = seen.semaphore.iter().flat_map(|one| &one.slots);
        for (slot, inspection) in slots.enumerate() {
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
        let HolderInspection { id, fence, .. } = holder;
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
    pub(super) fn handle_look(&mut self, at: Duration, look: Look) -> Vec<HandChange> {
        let (holders, floor) = match look {
            Look::NoQuorum(why) => {
                let news = !std::mem::replace(&mut self.blind, true);
                return news
                    .then_some(HandChange::MajorityLost(why))
                    .into_iter()
                    .collect();
            }
            Look::Seen { holders, floor } => (holders, floor),
        };
        let mut changes = Vec::new();
        if std::mem::take(&mut self.blind) {
            changes.push(HandChange::MajorityBack);
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

    /// Whether a client that neither look showed has raised the fence.
    fn rose_unseen(
        &self,
        at: Duration,
        holders: &BTreeMap<HolderKey, SeenHolder>,
        floor: u64,
    ) -> bool {
        let passed = at.saturating_sub(self.at) + SLACK;
        let by_clocks = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        let seen = holders.values().chain(self.holders.values());
        let seen = seen.filter(|one| one.slot.is_none());
        let highest = seen.filter_map(|one| one.fence).max().unwrap_or(0);
        let is_kept = holders.values().any(|one| one.kept);
        floor > self.floor.saturating_add(by_clocks) && floor > highest && !is_kept
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
    pub(super) fn text(&self, at: Duration) -> String {
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
                format!("changed hands in between: the fence rose to {fence}")
            }
            Self::MajorityLost(why) => format!("no majority: {why}"),
            Self::MajorityBack => "a majority answers again".to_owned(),
        };
        format!("{:>9}  {}", duration::show(at), one_line(&what))
    }

    /// The line for programs.
    pub(super) fn json(&self, at: Duration) -> Value {
        let (change, holder, details) = match self {
            Self::Free => ("free", None, Value::Null),
            Self::Held(holder) => ("held", Some(holder), Value::Null),
            Self::Taken(holder) => ("taken", Some(holder), Value::Null),
            Self::Gone(holder) => ("gone", Some(holder), Value::Null),
            Self::Kept(holder) => ("kept", Some(holder), Value::Null),
            Self::InBetween { fence } => ("in_between", None, json!(fence)),
            Self::MajorityLost(why) => ("majority_lost", None, json!(why)),
            Self::MajorityBack => ("majority_back", None, Value::Null),
        };
        let mut line = json!({
            "at_ms": millis(at),
            "change": change,
            "holder": holder.map(SeenHolder::json),
        });
        match self {
            Self::InBetween { .. } => line["fence"] = details,
            Self::MajorityLost(_) => line["why"] = details,
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

    fn seen(holders: &[SeenHolder], floor: u64) -> Look {
        let holders = holders
            .iter()
            .map(|one| ((one.slot, one.who.clone()), one.clone()));
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
            seen(&[a.clone()], 10),
            seen(&[a.clone()], 10),
            seen(&[], 10),
            seen(&[], 10),
            seen(&[b.clone()], 20),
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
        let found = changes([seen(&[a.clone()], 10), seen(&[b.clone()], 20)]);
        assert_eq!(found[1], [HandChange::Gone(a), HandChange::Taken(b)]);
    }

    #[test]
    fn a_fence_that_rose_by_an_unseen_holder_changed_hands_in_between() {
        let found = changes([seen(&[], 1_000), seen(&[], 5_001_000)]);
        assert_eq!(found[1], [HandChange::InBetween { fence: 5_001_000 }]);
        // Also beside a holder that is gone.
        let a = holder("a", 1_000);
        let found = changes([seen(&[a.clone()], 1_000), seen(&[], 5_001_000)]);
        assert_eq!(
            found[1],
            [
                HandChange::Gone(a),
                HandChange::InBetween { fence: 5_001_000 }
            ]
        );
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
        let found = changes([seen(&[], 1_000), seen(&[a.clone()], 9_000_000)]);
        assert_eq!(found[1], [HandChange::Taken(a)]);
    }

    #[test]
    fn readers_come_and_go_one_by_one() {
        let reader = |who, fence| SeenHolder {
            shared: true,
            ..holder(who, fence)
        };
        let (a, b) = (reader("a", 10), reader("b", 20));
        let found = changes([
            seen(&[a.clone()], 10),
            seen(&[a.clone(), b.clone()], 20),
            seen(&[b.clone()], 20),
        ]);
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
        let found = changes([
            seen(&[a.clone()], 10),
            seen(&[kept.clone()], 10),
            seen(&[], 10),
        ]);
        assert_eq!(found[1], [HandChange::Gone(a), HandChange::Kept(kept)]);
        assert!(found[2].is_empty());
    }

    #[test]
    fn a_lost_majority_is_told_once_and_so_is_its_return() {
        let lost = || Look::NoQuorum("a is down".to_owned());
        let a = holder("a", 10);
        let found = changes([
            seen(&[a.clone()], 10),
            lost(),
            lost(),
            seen(&[a.clone()], 10),
        ]);
        assert_eq!(found[1], [HandChange::MajorityLost("a is down".to_owned())]);
        assert!(found[2].is_empty());
        assert_eq!(found[3], [HandChange::MajorityBack]);
    }

    #[test]
    fn a_label_cannot_write_to_the_terminal() {
        let change = HandChange::Taken(holder("\u{1b}[2J\n", 10));
        assert!(!change.text(MS).chars().any(char::is_control));
    }
}
