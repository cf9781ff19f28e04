//! What the second line reads of a schedule (`second.rs`): whether the keeper is late, and what is due
//! then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::time::Timestamp;

use super::Schedule;
use crate::runtime::hold::HeldLock;
use crate::runtime::lock;
use crate::runtime::second::SecondLine;

impl Schedule {
    /// From now on `second` watches this client.
    pub(in crate::runtime) fn watched_by(&self, second: &'static SecondLine) {
        let _ = self.second.set(second);
    }

    /// The client was dropped.
    pub(in crate::runtime) fn leave_second(&self) {
        if let Some(second) = self.second.get() {
            second.forget_dropped();
        }
    }

    /// A renewal failed because nodes did not answer: asks the second line for its connections.
    pub(in crate::runtime) fn want_second(&self) {
        if let Some(second) = self.second.get() {
            self.second_wanted.store(true, Ordering::Relaxed);
            second.look_by(Timestamp::ZERO);
        }
    }

    /// Whether [`want_second`](Self::want_second) was called.
    pub(in crate::runtime) fn is_second_wanted(&self) -> bool {
        self.second_wanted.load(Ordering::Relaxed)
    }

    /// The second line has its connections.
    pub(in crate::runtime) fn second_is_there(&self) {
        self.second_wanted.store(false, Ordering::Relaxed);
    }

    /// Whether the second line does the work of the keeper.
    pub(in crate::runtime) fn is_taken_over(&self) -> bool {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// Whether what was due at `at` is overdue at `now`, so that the second line takes over.
    pub(in crate::runtime) fn is_overdue(&self, at: Timestamp, now: Timestamp) -> bool {
        let may_be_late = lock(&self.entries).may_be_late.unwrap_or_default();
        let overdue = self.look_after(at, may_be_late) <= now;
        if overdue {
            self.taken_over.store(true, Ordering::Relaxed);
        }
        overdue
    }

    /// When the first hold is due.
    pub(in crate::runtime) fn first_hold(&self) -> Option<Timestamp> {
        let entries = lock(&self.entries);
        entries.holds.first_key_value().map(|(key, _)| key.at())
    }

    /// Removes and returns the next hold that is due at `now`, if the second line has taken over.
    pub(in crate::runtime) fn pop_hold(&self, now: Timestamp) -> Option<Arc<HeldLock>> {
        if !self.is_taken_over() {
            return None;
        }
        let mut entries = lock(&self.entries);
        let first = entries.holds.first_entry()?;
        (first.key().at() <= now).then(|| first.remove())
    }

    /// When the second line looks at this client next, because of its holds or of a renewal that
    /// waits since `waiting`.
    pub(in crate::runtime) fn plan_look(&self, waiting: Option<Timestamp>) -> Option<Timestamp> {
        let mut entries = lock(&self.entries);
        let first = entries.holds.first_key_value().map(|(key, _)| key.at());
        let due = match (first, waiting) {
            (Some(first), Some(waiting)) => Some(first.min(waiting)),
            (first, waiting) => first.or(waiting),
        };
        let may_be_late = entries.may_be_late.unwrap_or_default();
        entries.look_at = due.map(|due| self.look_after(due, may_be_late));
        entries.look_at
    }

    /// When the second line looks for what is due at `at`.
    pub(super) fn look_after(&self, at: Timestamp, may_be_late: Duration) -> Timestamp {
        match self.is_taken_over() {
            true => at,
            false => at + may_be_late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::runtime::schedule::Due;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// A schedule that a second line watches, and a hold.
    fn watched() -> (Schedule, &'static SecondLine, Arc<HeldLock>) {
        use crate::message::{Ballot, Kind};
        use crate::node::memory::MemoryNode;
        use crate::protocol::{Drift, GrantId, HoldPolicy};
        use crate::runtime::ClientRuntime;
        use crate::token::{TOKEN_ENTROPY_BYTES, Token};
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let runtime = ClientRuntime::of_group(vec![Arc::new(MemoryNode::new("m"))], clock);
        let token = Token::from_entropy([1; TOKEN_ENTROPY_BYTES]);
        let id = GrantId::of_receipt(
            Arc::from([]),
            token,
            Ballot::new(1),
            Kind::Exclusive,
            Duration::ZERO,
        );
        let policy = HoldPolicy {
            ttl: Duration::from_millis(600),
            lock_delay: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            call_timeout: Duration::from_millis(60),
            drift: Drift::default(),
            renew: true,
            max_hold: None,
            label: Arc::from(""),
        };
        let hold = HeldLock::resume(&runtime, id, policy);
        let line: &SecondLine = Box::leak(Box::new(SecondLine::new()));
        let schedule = Schedule::default();
        schedule.watched_by(line);
        (schedule, line, hold)
    }

    #[test]
    fn the_second_line_takes_over_once_the_keeper_is_late_until_it_runs_again() {
        let (schedule, _, hold) = watched();
        let insert = |ms| schedule.insert_hold(at(ms), Duration::from_millis(600), hold.clone());
        insert(200);
        assert_eq!(schedule.first_hold(), Some(at(200)));
        assert_eq!(schedule.plan_look(None), Some(at(300)));
        assert!(!schedule.is_overdue(at(200), at(299)));
        assert!(schedule.pop_hold(at(299)).is_none(), "the keeper may come");
        assert!(schedule.is_overdue(at(200), at(300)));
        assert!(schedule.pop_hold(at(300)).is_some());
        assert!(schedule.pop_hold(at(300)).is_none());
        // From now on without delay.
        insert(310);
        assert_eq!(schedule.plan_look(None), Some(at(310)));
        assert!(schedule.pop_hold(at(309)).is_none());
        assert!(schedule.pop_hold(at(310)).is_some());
        // A renewal that became due, but that the keeper did not begin.
        assert_eq!(schedule.plan_look(Some(at(320))), Some(at(320)));
        insert(400);
        assert!(schedule.pop(at(400)).is_some(), "the keeper runs again");
        assert!(!schedule.is_taken_over());
        insert(500);
        assert!(schedule.pop_hold(at(500)).is_none());
        assert_eq!(schedule.plan_look(None), Some(at(600)));
        assert_eq!(schedule.plan_look(Some(at(450))), Some(at(550)));
    }

    /// It costs a system call, and another thread runs then.
    #[test]
    fn lock_after_lock_wakes_the_second_line_only_for_an_earlier_look() {
        let (schedule, line, hold) = watched();
        let insert =
            |ms, ttl| schedule.insert_hold(at(ms), Duration::from_millis(ttl), hold.clone());
        let first = insert(200, 600);
        assert!(line.was_woken());
        schedule.remove_hold(first);
        schedule.remove_hold(insert(201, 600));
        schedule.remove_hold(insert(299, 600));
        assert!(!line.was_woken());
        insert(100, 1_200);
        assert!(line.was_woken(), "it is due earlier");
        insert(190, 60);
        assert!(!line.was_woken(), "it is looked at at 200");
        insert(185, 60);
        assert!(line.was_woken(), "a shorter TTL has less time");
        schedule.insert(at(1), Due::Refresh);
        assert!(!line.was_woken(), "nothing is held by it");
    }
}
