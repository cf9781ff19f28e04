//! Semaphores: at most as many holders as permits, in queue order, and nothing left on the nodes.

use ringfence::{AcquireError, Lost, SemaphoreGuard};

use ringfence::admin::InspectError;
use ringfence_core::message::{AcquireSlot, Op};
use ringfence_core::name::Name;

use crate::rules::bench::{Bench, at_once, idle, ms};
use crate::rules::log::Log;

/// The number of slots of `name` that have a holder on some node.
pub(crate) fn taken(bench: &Bench, name: &str, permits: u32) -> usize {
    let name = Name::new("", name).unwrap();
    let slots = (0..permits).map(|slot| name.slot(slot));
    let held = |slot: &Name| {
        bench
            .nodes
            .iter()
            .any(|node| node.entry(slot).key.is_some())
    };
    slots.filter(held).count()
}

fn keys(bench: &Bench, name: &str, slot: u32) -> usize {
    let slot = Name::new("", name).unwrap().slot(slot);
    let nodes = bench.nodes.iter();
    nodes.filter(|node| node.entry(&slot).key.is_some()).count()
}

fn waiting(bench: &Bench, name: &str) -> Vec<usize> {
    let gate = Name::new("", name).unwrap().admission();
    let nodes = bench.nodes.iter();
    nodes
        .map(|node| node.entry(&gate).queue.entries.len())
        .collect()
}

#[tokio::test]
async fn each_permit_holds_its_own_slot() {
    let bench = Bench::new(5).await;
    let locks = bench.client().await;
    let semaphore = locks.semaphore("s", 3);
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(at_once(semaphore.try_acquire()).await.unwrap());
    }
    let mut slots: Vec<u32> = guards.iter().map(SemaphoreGuard::slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
    let error = at_once(semaphore.try_acquire()).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::Full { permits: 3, .. }),
        "{error}"
    );
    assert!(error.is_held() && error.is_retryable());
    let text = error.to_string();
    let told = "`s` is full: 3 of 3 permits are taken; one is held by job";
    assert!(text.starts_with(told), "{text}");
    bench.pass(ms(30_000)).await;
    for guard in &guards {
        assert_eq!(guard.check(), Ok(()), "all are renewed");
        assert_eq!(keys(&bench, "s", guard.slot()), 5);
    }
    let (slot, fence) = (guards[1].slot(), guards[1].fence());
    at_once(guards.remove(1).release()).await.unwrap();
    let next = at_once(semaphore.try_acquire()).await.unwrap();
    assert_eq!(next.slot(), slot);
    assert!(next.fence() > fence, "fences of a slot rise");
    drop((guards, next));
    at_once(locks.close()).await;
    assert_eq!(taken(&bench, "s", 3), 0);
}

#[tokio::test]
async fn inspect_shows_the_holder_of_each_slot_and_the_number_of_waiters() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let semaphore = locks.semaphore("s", 2).label("first");
    let first = at_once(semaphore.try_acquire()).await.unwrap();
    let seen = at_once(semaphore.inspect()).await.unwrap();
    assert_eq!((seen.name.as_str(), seen.waiting), ("s", 0));
    let held = seen.slots.iter().map(|slot| slot.is_held());
    assert_eq!(held.collect::<Vec<_>>(), [true, false]);
    let slot = &seen.slots[first.slot() as usize];
    assert_eq!(slot.label.as_deref(), Some("first"));
    assert_eq!(slot.fence, Some(first.fence()));
    assert_eq!(slot.holder_id.as_deref(), Some(first.token().id()));

    let semaphore = semaphore.label("second");
    let second = at_once(semaphore.try_acquire()).await.unwrap();
    let waiter = bench.client().await.semaphore("s", 2);
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    bench.pass(ms(50)).await;
    let seen = at_once(semaphore.inspect()).await.unwrap();
    assert_eq!(seen.waiting, 1);
    let fences = seen.slots.iter().map(|slot| slot.fence.unwrap());
    assert_eq!(fences.collect::<Vec<_>>(), [first.fence(), second.fence()]);
    waiter.abort();

    let nothing = locks.semaphore("s", 0);
    let refused = at_once(nothing.inspect()).await;
    assert!(
        matches!(refused, Err(InspectError::Invalid(_))),
        "{refused:?}"
    );
    bench.break_first(2);
    let seen = at_once(semaphore.inspect()).await.unwrap();
    assert_eq!((seen.taken(), seen.unknown()), (0, 2));
    let reported = seen.slots.iter().map(|slot| slot.reported[0].holder.fence);
    let fences = [first.fence(), second.fence()].map(Some);
    assert_eq!(reported.collect::<Vec<_>>(), fences);
}

#[tokio::test]
async fn a_semaphore_and_a_mutex_of_one_name_are_independent() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let mutex = at_once(locks.mutex("n").try_lock()).await.unwrap();
    let permit = at_once(locks.semaphore("n", 1).try_acquire())
        .await
        .unwrap();
    assert!(at_once(locks.mutex("n").try_lock()).await.is_err());
    assert!(
        at_once(locks.semaphore("n", 1).try_acquire())
            .await
            .is_err()
    );
    assert_eq!(permit.name(), "n");
    at_once(mutex.release()).await.unwrap();
    at_once(permit.release()).await.unwrap();
}

#[tokio::test]
async fn an_invalid_number_of_permits_is_refused() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    for permits in [0, 257, u32::MAX] {
        let error = at_once(locks.semaphore("n", permits).acquire())
            .await
            .unwrap_err();
        assert!(matches!(error, AcquireError::Invalid(_)), "{error}");
    }
    let error = at_once(locks.semaphore("", 1).acquire()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Invalid(_)), "{error}");
    let most = at_once(locks.semaphore("n", 256).acquire()).await.unwrap();
    assert_eq!(most.slot(), 0);
}

#[tokio::test]
async fn a_released_slot_goes_to_the_first_waiter_without_delay() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let semaphore = locks.semaphore("s", 2);
    let one = at_once(semaphore.try_acquire()).await.unwrap();
    let _two = at_once(semaphore.try_acquire()).await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let semaphore = bench.client().await.semaphore("s", 2);
        waiters.push(tokio::spawn(async move { semaphore.acquire().await }));
        bench.pass(ms(50)).await;
    }
    assert_eq!(waiting(&bench, "s"), [3, 3, 3]);
    let error = at_once(semaphore.try_acquire()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Full { .. }), "{error}");
    let slot = one.slot();
    bench.log_operations();
    at_once(one.release()).await.unwrap();
    idle().await;
    assert!(waiters[0].is_finished(), "woken without polling");
    for node in &bench.nodes {
        let operations = node.take_operations();
        let requested = operations.iter().filter_map(|op| match op.request.op {
            Op::AcquireSlot(AcquireSlot { slot, .. }) => Some(slot),
            _ => None,
        });
        let requested: Vec<Option<u32>> = requested.collect();
        assert_eq!(requested, [Some(slot)], "for the slot that was freed, once");
    }
    assert!(!waiters[1].is_finished() && !waiters[2].is_finished());
    assert!(
        at_once(semaphore.try_acquire()).await.is_err(),
        "no caller passes the queue"
    );
    let first = waiters.remove(0).await.unwrap().unwrap();
    assert_eq!(first.slot(), slot);
    assert_eq!(
        waiting(&bench, "s"),
        [2, 2, 2],
        "a holder is not in the queue"
    );
    waiters[0].abort();
    idle().await;
    assert_eq!(
        waiting(&bench, "s"),
        [1, 1, 1],
        "nor is a caller that gave up"
    );
    at_once(first.release()).await.unwrap();
    idle().await;
    assert!(waiters[1].is_finished());
}

#[tokio::test]
async fn the_slot_of_a_dead_holder_is_free_after_the_ttl() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let semaphore = locks.semaphore("s", 1);
    let held = semaphore.clone().renew(false).ttl(ms(2_000));
    let dead = at_once(held.try_acquire()).await.unwrap();
    let started = bench.time.now();
    let next = bench.drive(semaphore.acquire()).await.unwrap();
    let took = bench.time.now().since(started);
    assert!((ms(1_990)..ms(3_100)).contains(&took), "{took:?}");
    assert_eq!(dead.check(), Err(Lost::Expired));
    assert!(next.fence() > dead.fence());
    // The late release of the dead holder does not affect the next holder.
    assert!(at_once(dead.release()).await.is_err());
    assert_eq!(keys(&bench, "s", 0), 3);
    assert_eq!(next.check(), Ok(()));
}

#[tokio::test]
async fn with_a_lock_delay_the_nodes_keep_the_slot_of_a_lost_holder_longer() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let semaphore = locks.semaphore("s", 2);
    let delayed = semaphore.clone().ttl(ms(2_000)).lock_delay(ms(3_000));
    let forgotten = delayed.clone().renew(false);
    let dead = at_once(forgotten.try_acquire()).await.unwrap();
    let alive = at_once(delayed.try_acquire()).await.unwrap();
    bench.pass(ms(4_000)).await;
    assert_eq!(dead.check(), Err(Lost::Expired));
    assert_eq!(alive.check(), Ok(()), "renewed");
    let slot = dead.slot();
    assert!(at_once(dead.release()).await.is_err(), "too late");
    assert_eq!(keys(&bench, "s", slot), 3, "and does not shorten the delay");
    assert!(at_once(semaphore.try_acquire()).await.is_err());
    // A release in time frees the slot without the delay.
    let free = alive.slot();
    at_once(alive.release()).await.unwrap();
    assert_eq!(keys(&bench, "s", free), 0);
    bench.pass(ms(1_100)).await;
    let next = [
        at_once(semaphore.try_acquire()).await.unwrap(),
        at_once(semaphore.try_acquire()).await.unwrap(),
    ];
    assert_ne!(next[0].slot(), next[1].slot());
}

#[tokio::test]
async fn a_permit_is_restored_on_a_node_that_lost_it() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let permit = at_once(locks.semaphore("s", 2).acquire()).await.unwrap();
    bench.nodes[0].forget();
    assert_eq!(keys(&bench, "s", 0), 2);
    bench.pass(ms(4_000)).await;
    assert_eq!(keys(&bench, "s", 0), 3);
    assert_eq!(permit.check(), Ok(()));
}

/// The client releases surplus slots: those that a node granted beside the one that was won, and
/// those that a node without a reply may have granted.
#[tokio::test]
async fn surplus_slots_are_released() {
    let bench = Bench::new(5).await;
    let (one, other) = (bench.client().await, bench.client().await);
    // Two nodes miss the first grant, so they grant its slot to the second client.
    bench.break_first(2);
    let first = at_once(one.semaphore("s", 2).try_acquire()).await.unwrap();
    bench.mend();
    assert_eq!((first.slot(), keys(&bench, "s", 0)), (0, 3));
    bench.nodes[0].hold_replies(true);
    let second = at_once(other.semaphore("s", 2).try_acquire())
        .await
        .unwrap();
    assert_eq!(second.slot(), 1);
    idle().await;
    assert_eq!(
        keys(&bench, "s", 0),
        4,
        "the second node reported its grant"
    );
    bench.pass(ms(1_100)).await;
    assert_eq!(
        keys(&bench, "s", 0),
        3,
        "the first node may have granted it, too"
    );
    bench.mend();
    bench.pass(ms(30_000)).await;
    assert_eq!((first.check(), second.check()), (Ok(()), Ok(())));
    assert_eq!((keys(&bench, "s", 0), keys(&bench, "s", 1)), (5, 5));
}

/// A ticket that is left on a node that did not grant would keep a slot from the waiters behind it.
#[tokio::test]
async fn a_holder_of_a_permit_has_no_ticket_in_any_queue() {
    let bench = Bench::new(5).await;
    let (one, other) = (bench.client().await, bench.client().await);
    let held = at_once(one.semaphore("s", 1).try_acquire()).await.unwrap();
    let waits = other.semaphore("s", 1);
    let waiter = tokio::spawn(async move { waits.acquire().await });
    bench.pass(ms(50)).await;
    assert_eq!(waiting(&bench, "s"), [1; 5]);
    // Two nodes receive the release only later.
    bench.break_first(2);
    at_once(held.release()).await.unwrap();
    bench.mend();
    bench.pass(ms(500)).await;
    let _next = waiter.await.unwrap().unwrap();
    assert_eq!(waiting(&bench, "s"), [0; 5]);
}

#[tokio::test]
async fn dropping_the_future_undoes_its_grants() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    for node in &bench.nodes {
        node.hold_replies(true);
    }
    let semaphore = locks.semaphore("s", 2);
    let task = tokio::spawn(async move { semaphore.acquire().await });
    idle().await;
    assert_eq!(taken(&bench, "s", 2), 1);
    task.abort();
    idle().await;
    bench.mend();
    bench.pass(ms(3_000)).await;
    assert_eq!(taken(&bench, "s", 2), 0);
}

#[tokio::test]
async fn a_client_with_fewer_permits_than_others_use_is_warned() {
    let bench = Bench::new(3).await;
    let (old, new) = (bench.client().await, bench.client().await);
    let _held = at_once(old.semaphore("s", 2).acquire()).await.unwrap();
    let (log, _listening) = Log::listen();
    let _new = at_once(new.semaphore("s", 3).acquire()).await.unwrap();
    assert_eq!(log.warnings(), [""; 0]);
    let waits = old.semaphore("s", 2).wait(ms(300));
    let _ = bench.drive(waits.acquire()).await.unwrap_err();
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("permits=2 others=3"), "{warnings:?}");
}

#[tokio::test]
async fn an_uncontended_permit_needs_one_round() {
    let bench = Bench::new(5).await;
    let locks = bench.client().await;
    bench.log_operations();
    let permit = at_once(locks.semaphore("s", 3).acquire()).await.unwrap();
    at_once(permit.release()).await.unwrap();
    for node in &bench.nodes {
        let operations = node.take_operations();
        assert!(matches!(operations[0].request.op, Op::AcquireSlot { .. }));
        assert_eq!(operations.len(), 2, "{operations:?}");
    }
}
