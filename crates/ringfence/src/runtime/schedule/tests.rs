//! Tests of when the keeper is woken, and of sleepers.

use std::pin::pin;
use std::time::Duration;

use crate::clock::SteppedClock;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// Whether the keeper has been woken.
fn is_woken(schedule: &Schedule) -> bool {
    let changed = pin!(schedule.changed());
    let mut cx = Context::from_waker(Waker::noop());
    changed.poll(&mut cx).is_ready()
}

#[test]
fn the_keeper_is_woken_only_for_entries_due_before_its_next_wake_up() {
    let schedule = Schedule::default();
    let first = schedule.insert(at(10), Due::Refresh);
    assert!(is_woken(&schedule));
    assert_eq!(schedule.next(), Some(at(10)));
    schedule.remove(first);
    // Lock after lock: the keeper wakes at 10, finds no entry due, and reads the next time.
    let second = schedule.insert(at(20), Due::Refresh);
    assert!(!is_woken(&schedule));
    schedule.insert(at(5), Due::Refresh);
    assert!(is_woken(&schedule));
    schedule.insert(at(6), Due::Refresh);
    assert!(!is_woken(&schedule));
    while schedule.pop(at(10)).is_some() {}
    assert_eq!(schedule.next(), Some(at(20)));
    schedule.remove(second);
    assert_eq!(schedule.next(), None);
    schedule.insert(at(30), Due::Refresh);
    assert!(is_woken(&schedule));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_keeper_sleeps_on_if_its_entry_was_removed() {
    use crate::environment::Timer;
    let (schedule, timer) = (Schedule::default(), Timer::new(Clock::System));
    let kernel_timer = || timer.kernel_timer().unwrap();
    schedule.wakes_by(kernel_timer());
    let hours = |hours: u64| Clock::System.now() + Duration::from_secs(3600 * hours);
    let first = schedule.insert(hours(1), Due::Refresh);
    assert!(is_woken(&schedule));
    assert!(kernel_timer().set(schedule.next().unwrap()));
    schedule.insert(hours(5), Due::Refresh);
    schedule.postpone();
    assert!(kernel_timer().left() < Duration::from_secs(2 * 3600));
    schedule.remove(first);
    schedule.postpone();
    assert!(kernel_timer().left() > Duration::from_secs(4 * 3600));
    assert!(!is_woken(&schedule));
    // An earlier entry still wakes it.
    schedule.insert(hours(3), Due::Refresh);
    assert!(is_woken(&schedule));
}

#[test]
fn a_sleeper_is_on_the_schedule_until_its_time_or_its_drop() {
    let (schedule, time) = (Schedule::default(), SteppedClock::default());
    let clock = Clock::Stepped(time.clone());
    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut sleep = pin!(schedule.sleep_until(at(10), &clock));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!(schedule.next(), Some(at(10)));
        assert!(schedule.pop(at(9)).is_none());
        assert!(matches!(schedule.pop(at(10)), Some(Due::Sleeper(_))));
        assert_eq!(schedule.next(), None, "it had one entry");
        // Woken too early, it sleeps again.
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        assert_eq!(schedule.next(), Some(at(10)));
        time.step(Duration::from_millis(10));
        assert!(sleep.as_mut().poll(&mut cx).is_ready());
    }
    assert_eq!(schedule.next(), None);
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
    let insert = |ms, ttl| schedule.insert_hold(at(ms), Duration::from_millis(ttl), hold.clone());
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
