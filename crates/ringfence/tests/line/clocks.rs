//! Clients whose wall clocks are wrong gain and lose nothing.

use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Fleet, WallClock};

use crate::worker::{NAME, Waiters, in_line};

const TEN_SECONDS_US: i64 = 10_000_000;
/// How far apart they come: longer than a client's idea of the nodes' time may be wrong, which is a
/// round trip on a busy machine.
const APART: Duration = Duration::from_millis(200);

/// Clients whose clocks are ahead by so much come one after the other, and go in that order.
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
            "its clock is not so: {wrong}"
        );
        waiters.push(waiter);
        in_line(&locks, waiters.len() as u64, 3).await;
        tokio::time::sleep(APART).await;
    }
    holder.release().await.unwrap();
    let held: Vec<_> = waiters.iter().map(Waiters::held).collect();
    assert!(held.is_sorted(), "they came in this order: {held:?}");
}

#[tokio::test]
async fn a_client_ten_seconds_slow_does_not_jump_the_line() {
    first_come_first_served(&[0, TEN_SECONDS_US, 0, -TEN_SECONDS_US, 0]).await;
}

#[tokio::test]
async fn a_client_ten_seconds_fast_does_not_fall_behind() {
    first_come_first_served(&[TEN_SECONDS_US, 0, -TEN_SECONDS_US, TEN_SECONDS_US]).await;
}
