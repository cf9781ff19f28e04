//! Inspection: all holders, waiters, permits and arrivals of a name, as a majority sees them.

use std::pin::pin;

use ringfence::admin::{HolderKind, LockState, NameInspection};

use super::bench::*;

async fn seen(bench: &Bench, name: &str) -> NameInspection {
    let looking = bench.client().await;
    at_once(looking.inspect_all(name))
        .await
        .expect("a majority answers")
}

#[tokio::test]
async fn a_holder_is_shown_with_label_fence_and_since_when_it_holds() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").label("checkout").lock())
        .await
        .unwrap();
    bench.pass(ms(20_000)).await;
    let lock = seen(&bench, "x").await.lock;
    assert_eq!(lock.kind, Some(HolderKind::Exclusive));
    let [holder] = &lock.holders[..] else {
        panic!("one holder: {lock:?}");
    };
    assert_eq!(holder.label.as_deref(), Some("checkout"));
    assert_eq!(holder.fence, Some(guard.fence()));
    // Renewals did not change it.
    let held_for = holder.held_for.expect("a fence tells it");
    assert!((ms(19_900)..ms(20_500)).contains(&held_for), "{held_for:?}");
    assert_eq!(lock.voting(), 3);
    at_once(guard.release()).await.unwrap();
    let free = seen(&bench, "x").await;
    assert!(free.state() == LockState::Free && free.lock.holders.is_empty());
    assert!(free.semaphore.is_none() && free.latch.is_none());
}

#[tokio::test]
async fn all_readers_are_shown() {
    let bench = Bench::new(3).await;
    let lock = bench.client().await.rw_lock("x");
    let one = at_once(lock.clone().label("one").read()).await.unwrap();
    let other = at_once(lock.label("other").read()).await.unwrap();
    let seen = seen(&bench, "x").await.lock;
    assert_eq!(seen.kind, Some(HolderKind::Shared));
    let mut labels: Vec<_> = seen
        .holders
        .iter()
        .map(|one| one.label.as_deref())
        .collect();
    labels.sort();
    assert_eq!(labels, [Some("one"), Some("other")]);
    assert_eq!(seen.holder_count, 2);
    let fences = [one.fence(), other.fence()].map(Some);
    assert!(seen.holders.iter().all(|one| fences.contains(&one.fence)));
}

#[tokio::test]
async fn the_queue_is_shown_in_order() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let _held = at_once(locks.mutex("x").lock()).await.unwrap();
    let (first, second) = (
        bench.client().await.mutex("x"),
        bench.client().await.rw_lock("x"),
    );
    let mut waiting = pin!(first.lock());
    assert!(waits(waiting.as_mut()).await);
    bench.pass(ms(2_000)).await;
    let mut behind = pin!(second.read());
    assert!(waits(behind.as_mut()).await);
    let lock = seen(&bench, "x").await.lock;
    assert_eq!(lock.waiting, 2);
    let shared: Vec<bool> = lock.queue.iter().map(|one| one.shared).collect();
    assert_eq!(shared, [false, true]);
    assert!(
        lock.queue[0].waited >= lock.queue[1].waited + ms(1_900),
        "{lock:?}"
    );
}

#[tokio::test]
async fn a_semaphore_is_shown_without_its_size_also_long_after_it_was_taken() {
    let bench = Bench::new(3).await;
    let semaphore = bench.client().await.semaphore("x", 3);
    let permit = at_once(semaphore.acquire()).await.unwrap();
    let seen_now = seen(&bench, "x").await.semaphore.expect("a permit is held");
    assert_eq!((seen_now.permits, seen_now.taken()), (3, 1));
    // Nodes forget the number of permits after a minute.
    bench.pass(ms(120_000)).await;
    let later = seen(&bench, "x").await.semaphore.expect("it is still held");
    assert_eq!(later.taken(), 1);
    assert_eq!(
        later.slots[permit.slot() as usize].fence,
        Some(permit.fence())
    );
}

#[tokio::test]
async fn a_latch_is_shown_without_its_size() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    for party in ["a", "b"] {
        at_once(locks.latch("x", 3).party(party).arrive())
            .await
            .unwrap();
    }
    let latch = seen(&bench, "x").await.latch.expect("parties have arrived");
    assert_eq!(
        (latch.arrived, latch.parties),
        (2, vec!["a".to_owned(), "b".to_owned()])
    );
}

#[tokio::test]
async fn a_node_in_quarantine_is_seen_but_does_not_vote() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let _held = at_once(locks.mutex("x").lock()).await.unwrap();
    bench.nodes[0].forget();
    let seen = at_once(locks.inspect("x")).await.unwrap();
    assert_eq!((seen.is_held(), seen.voting()), (true, 2));
    assert!(seen.nodes[0].discount.is_some(), "{seen:?}");
}
