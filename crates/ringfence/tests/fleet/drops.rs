//! Futures and guards that are dropped at any point.

use std::thread;
use std::time::Duration;

use ringfence_testkit::{Flavor, Fleet, Server, wait_until};
use tokio::runtime::Runtime;

use crate::fleet::stage::*;

/// xorshift64: the same points in every run.
struct Points(u64);

impl Points {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

async fn yields(times: u64) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn futures_dropped_anywhere_leave_no_key() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor));
        let locks = client_of(&fleet).await;
        let mut points = Points(0x5eed);
        let (mut dropped, mut granted) = (0, 0);
        for _ in 0..300 {
            let lock = match points.below(3) {
                0 => locks.multi(["a", "b", "c"]),
                1 => locks.mutex("b"),
                _ => locks.mutex("d"),
            };
            // From right after the first send to after the verdict, however fast the servers are;
            // some at once, and some never.
            let turns = match points.below(6) {
                0 => 0,
                1 => points.below(4),
                2 => points.below(16),
                3 => points.below(64),
                4 => points.below(512),
                _ => u64::MAX,
            };
            let work = async {
                let guard = lock.lock().await.unwrap();
                if points.below(2) == 0 {
                    guard.release().await.unwrap();
                }
            };
            tokio::select! {
                biased;
                () = work => granted += 1,
                () = yields(turns) => dropped += 1,
            }
        }
        assert!(dropped > 30 && granted > 10, "{dropped}, {granted}");
        no_key_remains(fleet.iter()).await;
        locks.close().await;
    }
}

#[tokio::test]
async fn a_waiting_future_that_is_dropped_leaves_no_key() {
    let fleet = Fleet::start(3);
    let (one, two) = (client_of(&fleet).await, client_of(&fleet).await);
    let guard = one.mutex("n").lock().await.unwrap();
    let waits = Duration::from_millis(50);
    let waiting = two.mutex("n");
    let outcome = tokio::time::timeout(waits, waiting.lock()).await;
    assert!(outcome.is_err(), "{outcome:?}");
    guard.release().await.unwrap();
    no_key_remains(fleet.iter()).await;
    round(&one, "n").await;
}

#[test]
fn a_guard_dropped_in_a_thread_without_a_tokio_runtime_is_released() {
    let fleet = Fleet::start(3);
    let runtime = Runtime::new().unwrap();
    let locks = runtime.block_on(client_of(&fleet));
    let guard = runtime.block_on(locks.mutex("n").lock()).unwrap();
    let blocked = thread::spawn(move || {
        let begun = now();
        drop(guard);
        now().since(begun)
    });
    let blocked = blocked.join().expect("no panic");
    assert!(blocked < Duration::from_millis(500), "{blocked:?}");
    runtime.block_on(no_key_remains(fleet.iter()));
}

#[test]
fn a_guard_dropped_after_its_tokio_runtime_is_released_without_blocking() {
    let fleet = Fleet::start(3);
    let runtime = Runtime::new().unwrap();
    let locks = runtime.block_on(client_of(&fleet));
    let guard = runtime.block_on(locks.mutex("n").lock()).unwrap();
    drop(runtime);
    assert!(fleet.iter().filter(|server| has_key(server, "n")).count() >= 2);
    let blocked = thread::spawn(move || {
        let begun = now();
        assert!(guard.check().is_ok());
        drop(guard);
        drop(locks);
        now().since(begun)
    });
    let blocked = blocked.join().expect("no panic");
    assert!(blocked < Duration::from_millis(500), "{blocked:?}");
    wait_until("the key to go", SOON, || {
        fleet.iter().all(|server| lock_keys(server).is_empty())
    });
}
