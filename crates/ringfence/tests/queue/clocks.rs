//! Clients with wrong wall clocks gain no advantage and suffer no disadvantage in the queue.

use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Fleet, WallClock};

use crate::queue::worker::{NAME, Waiters, until_in_queue};

const TEN_SECONDS_US: i64 = 10_000_000;
/// The time between two arrivals: longer than the error of a client's estimate of the nodes' time,
/// which is a round trip on a busy machine.
const APART: Duration = Duration::from_millis(200);

/// Clients whose clocks are ahead by `ahead_us` arrive one after the other and get the lock in that
/// order.
async fn first_come_first_served(ahead_us: &[i64]) {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.unwrap();
    let holder = locks.mutex(NAME).lock().await.unwrap();
    let mut waiters = Vec::new();
    let clocks: Vec<WallClock> = ahead_us.iter().map(|&us| WallClock::ahead_by(us)).collect();
    for (clock, &ahead_us) in clocks.iter().zip(ahead_us) {
        let waiter = Waiters::start(&urls, 1, Some(clock));
        let wrong = waiter.wall_clock_ahead_us - ahead_us;
        assert!(
            wrong.abs() < TEN_SECONDS_US / 2,
            "the clock of the process is not set: {wrong}"
        );
        waiters.push(waiter);
        until_in_queue(&locks, waiters.len() as u64, 3).await;
        tokio::time::sleep(APART).await;
    }
    holder.release().await.unwrap();
    let held: Vec<_> = waiters.iter().map(Waiters::held).collect();
    assert!(held.is_sorted(), "not in the order of arrival: {held:?}");
}

#[tokio::test]
async fn a_client_ten_seconds_slow_does_not_jump_the_queue() {
    first_come_first_served(&[0, TEN_SECONDS_US, 0, -TEN_SECONDS_US, 0]).await;
}

#[tokio::test]
async fn a_client_ten_seconds_fast_does_not_fall_behind() {
    first_come_first_served(&[TEN_SECONDS_US, 0, -TEN_SECONDS_US, TEN_SECONDS_US]).await;
}
