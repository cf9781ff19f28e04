//! `{:?}` of the public handles: enough to identify the handle, and no internals.

use std::fmt::Debug;

use ringfence::blocking;

use crate::rules::bench::{Bench, at_once, ms};

/// About as much as fits into one log line.
const LENGTH_MAX: usize = 400;

#[track_caller]
fn is_short(what: &str, handle: &dyn Debug, names: &[&str]) {
    let text = format!("{handle:?}");
    assert!(text.len() <= LENGTH_MAX, "{what}: {} bytes", text.len());
    for name in names {
        assert!(text.contains(name), "{what} lacks {name}: {text}");
    }
    assert!(format!("{handle:#?}").len() <= 3 * LENGTH_MAX, "{what}");
}

#[tokio::test]
async fn debug_of_handles_is_short_and_names_the_lock() {
    let bench = Bench::new(5).await;
    let locks = bench.client().await;
    // The client has work in progress while it is printed.
    let guards = [at_once(locks.mutex("x").lock()).await.unwrap()];
    is_short("Locks", &locks, &["nodes", "\"a\"", "\"e\"", "10s", "job"]);
    let lock = locks.mutex("orders:42").wait(ms(1500)).label("me");
    is_short("Lock", &lock, &["orders:42", "10s", "1.5s", "me"]);
    is_short("Lock of several", &locks.multi(["a1", "b1"]), &["a1", "b1"]);
    is_short("a lock without a name", &locks.mutex(""), &["Lock"]);
    is_short("RwLock", &locks.rw_lock("rw:1"), &["RwLock", "rw:1"]);
    is_short(
        "PlainLock",
        &locks.plain_mutex("p:1"),
        &["PlainLock", "p:1"],
    );
    let semaphore = locks.semaphore("s:1", 60);
    is_short("Semaphore", &semaphore, &["Semaphore", "s:1", "60"]);
    is_short("Latch", &locks.latch("l:1", 3), &["Latch", "l:1", "3"]);
    is_short("Election", &locks.election("e:1"), &["Election", "e:1"]);
    let observer = locks.election("e:1").observe();
    is_short("Observer", &observer, &["Observer", "e:1"]);
    is_short("Owner", &ringfence::Owner::new(), &["Owner"]);
    is_short("Guard", &guards[0], &["Guard", "\"x\""]);
    let read = at_once(locks.rw_lock("rw:2").read()).await.unwrap();
    is_short("ReadGuard", &read, &["ReadGuard", "rw:2"]);
    let permit = at_once(semaphore.acquire()).await.unwrap();
    is_short("SemaphoreGuard", &permit, &["SemaphoreGuard", "s:1"]);
    let plain = at_once(locks.plain_mutex("p:2").lock()).await.unwrap();
    is_short("PlainGuard", &plain, &["PlainGuard", "p:2"]);
    let lead = at_once(locks.election("e:2").campaign()).await.unwrap();
    is_short("Leadership", &lead, &["Leadership", "e:2"]);
    is_short("Builder", &bench.builder(), &["Builder"]);
    is_short("Receipt", &guards[0].receipt(), &["Receipt"]);
}

#[test]
fn debug_of_blocking_handles_is_short_too() {
    let locks = blocking::Locks::connect("memory:debug").unwrap();
    is_short("Locks", &locks, &["memory:debug"]);
    is_short("Lock", &locks.mutex("orders:42"), &["orders:42"]);
    is_short("RwLock", &locks.rw_lock("rw:1"), &["rw:1"]);
    is_short("PlainLock", &locks.plain_mutex("p:1"), &["p:1"]);
    is_short("Semaphore", &locks.semaphore("s:1", 60), &["s:1"]);
    is_short("Latch", &locks.latch("l:1", 3), &["l:1"]);
    is_short("Election", &locks.election("e:1"), &["e:1"]);
    is_short("Observer", &locks.election("e:1").observe(), &["e:1"]);
    let guard = locks.mutex("x").lock().unwrap();
    is_short("Guard", &guard, &["\"x\""]);
    let read = locks.rw_lock("rw:2").read().unwrap();
    is_short("ReadGuard", &read, &["rw:2"]);
    let permit = locks.semaphore("s:1", 60).acquire().unwrap();
    is_short("SemaphoreGuard", &permit, &["s:1"]);
    let plain = locks.plain_mutex("p:2").lock().unwrap();
    is_short("PlainGuard", &plain, &["p:2"]);
    let lead = locks.election("e:2").campaign().unwrap();
    is_short("Leadership", &lead, &["e:2"]);
}

#[tokio::test]
async fn debug_of_handles_shows_no_secret() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let (_, secret) = guard.token().expose().split_once('.').unwrap();
    for text in [format!("{locks:?}"), format!("{guard:?}")] {
        assert!(!text.contains(secret), "{text}");
    }
}
