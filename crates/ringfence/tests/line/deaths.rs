//! Those who die in line delay nobody for good.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_core::group::Group;
use ringfence_core::ledger::TICKET_MS;
use ringfence_testkit::{Fleet, wait_until};

use crate::crew::Crew;
use crate::order::one_at_a_time;
use crate::worker::{NAME, Waiters, grown_up, in_line};

/// What a dead head of the line may cost at most: its ticket's lease, and the grace.
const WORST: Duration = Duration::from_millis(TICKET_MS + Group::DEFAULT_GRACE.as_millis() as u64);
/// What a busy machine may cost beside.
const BUSY: Duration = Duration::from_secs(2);

#[tokio::test]
async fn processes_killed_while_they_wait_delay_nobody_for_good() {
    let fleet = grown_up(3).await;
    let mut crew = Crew::start(&fleet.urls(), 4, 4);
    crew.turns(200);
    for process in 0..3 {
        crew.kill(process);
        // It had four in line, one of them perhaps woken, perhaps holding (TTL 10 s).
        let mut turns = crew.turns(100);
        one_at_a_time(&mut turns);
    }
}

/// When the head of the line is killed.
#[derive(Clone, Copy, PartialEq)]
enum Killed {
    BeforeTheRelease,
    /// Woken, and before it asks for the lock.
    AfterItsWake,
}

/// A process with `heads` callers at the head of the line is killed; two more wait behind it.
async fn a_dead_head_is_passed(heads: usize, killed: Killed) {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.unwrap();
    let holder = locks.mutex(NAME).lock().await.unwrap();
    let doomed = Waiters::start(&urls, heads, None);
    in_line(&locks, heads as u64, 3).await;
    let next = Waiters::start(&urls, 1, None);
    in_line(&locks, heads as u64 + 1, 3).await;
    let last = Waiters::start(&urls, 1, None);
    in_line(&locks, heads as u64 + 2, 3).await;

    // Stopped, it hears its wake, and cannot do anything about it.
    doomed.pause();
    let unread = || -> Vec<u64> {
        let ports = fleet.iter().map(|server| server.port());
        ports.map(|port| doomed.unread_from(port)).collect()
    };
    let before = unread();
    if killed == Killed::BeforeTheRelease {
        doomed.kill();
        let freed = Clock::System.now();
        holder.release().await.unwrap();
        return in_turn(freed, &next, &last);
    }
    let freed = Clock::System.now();
    holder.release().await.unwrap();
    // A node that came late to the grant may have nobody to wake for.
    wait_until("the wakes of a majority", BUSY, || {
        let grew = unread()
            .into_iter()
            .zip(&before)
            .map(|(now, before)| now > *before);
        grew.filter(|grew| *grew).count() >= 2
    });
    doomed.kill();
    in_turn(freed, &next, &last);
}

/// Whoever is next is in time, and so is the one behind it, once the name is free again.
fn in_turn(freed: ringfence_core::time::Timestamp, next: &Waiters, last: &Waiters) {
    let held = next.held();
    let waited = held.since(freed);
    assert!(waited < WORST + BUSY, "{waited:?}");
    let waited = last.held().since(held);
    assert!(waited < WORST + BUSY, "{waited:?}");
}

#[tokio::test]
async fn a_head_that_is_killed_is_passed_within_its_lease_and_the_grace() {
    a_dead_head_is_passed(1, Killed::BeforeTheRelease).await;
}

#[tokio::test]
async fn a_head_killed_between_its_wake_and_its_attempt_is_passed_as_soon() {
    a_dead_head_is_passed(1, Killed::AfterItsWake).await;
}

#[tokio::test]
async fn a_process_killed_with_the_first_three_in_line_costs_no_more() {
    a_dead_head_is_passed(3, Killed::AfterItsWake).await;
}
