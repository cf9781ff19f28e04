//! Clients that die while they wait in the queue delay the others only for a limited time.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_core::group::Group;
use ringfence_core::ledger::TICKET_MS;
use ringfence_testkit::{Fleet, wait_until};

use crate::queue::crew::Crew;
use crate::queue::order::one_at_a_time;
use crate::queue::worker::{NAME, Waiters, until_in_queue, voting_fleet};

/// The longest delay by a dead head of the queue: the lifetime of its ticket plus the grace period.
const WORST: Duration = Duration::from_millis(TICKET_MS + Group::DEFAULT_GRACE.as_millis() as u64);
/// Additional time for a busy machine.
const BUSY: Duration = Duration::from_secs(2);

#[tokio::test]
async fn processes_killed_while_they_wait_do_not_block_the_queue() {
    let fleet = voting_fleet(3).await;
    let mut crew = Crew::start(&fleet.urls(), 4, 4);
    crew.turns(200);
    for process in 0..3 {
        crew.kill(process);
        // It had four callers in the queue; one of them may have been woken, or may hold (TTL 10
        // s).
        let mut turns = crew.turns(100);
        one_at_a_time(&mut turns);
    }
}

/// When the head of the queue is killed.
#[derive(Clone, Copy, PartialEq)]
enum Killed {
    BeforeTheRelease,
    /// Woken, but before it tries to acquire.
    AfterItsWake,
}

/// A process with `heads` callers at the head of the queue is killed; two more clients wait behind
/// it.
async fn a_dead_head_is_passed(heads: usize, killed: Killed) {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.unwrap();
    let holder = locks.mutex(NAME).lock().await.unwrap();
    let doomed = Waiters::start(&urls, heads, None);
    until_in_queue(&locks, heads as u64, 3).await;
    let next = Waiters::start(&urls, 1, None);
    until_in_queue(&locks, heads as u64 + 1, 3).await;
    let last = Waiters::start(&urls, 1, None);
    until_in_queue(&locks, heads as u64 + 2, 3).await;

    // A stopped process receives its wake but cannot act on it.
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
        return assert_both_in_time(freed, &next, &last);
    }
    let freed = Clock::System.now();
    holder.release().await.unwrap();
    // A node that joined the grant late may have no waiter to wake.
    wait_until("the wakes of a majority", BUSY, || {
        let grew = unread()
            .into_iter()
            .zip(&before)
            .map(|(now, before)| now > *before);
        grew.filter(|grew| *grew).count() >= 2
    });
    doomed.kill();
    assert_both_in_time(freed, &next, &last);
}

/// The next waiter gets the lock in time, and so does the waiter behind it.
fn assert_both_in_time(freed: ringfence_core::time::Timestamp, next: &Waiters, last: &Waiters) {
    let held = next.held();
    let waited = held.since(freed);
    assert!(waited < WORST + BUSY, "{waited:?}");
    let waited = last.held().since(held);
    assert!(waited < WORST + BUSY, "{waited:?}");
}

#[tokio::test]
async fn a_killed_head_of_the_queue_is_passed_within_ticket_lifetime_and_grace() {
    a_dead_head_is_passed(1, Killed::BeforeTheRelease).await;
}

#[tokio::test]
async fn a_head_killed_between_its_wake_and_its_attempt_is_passed_in_time() {
    a_dead_head_is_passed(1, Killed::AfterItsWake).await;
}

#[tokio::test]
async fn a_killed_process_with_the_first_three_waiters_is_passed_in_time() {
    a_dead_head_is_passed(3, Killed::AfterItsWake).await;
}
