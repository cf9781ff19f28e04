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
