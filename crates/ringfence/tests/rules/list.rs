//! The list of all locks.

use std::pin::pin;

use ringfence::Locks;

use ringfence::admin::{HolderKind, ListError, ListedLock, LockList, LockState};

use super::bench::*;

async fn list(bench: &Bench, locks: &Locks) -> LockList {
    bench
        .drive(locks.list().collect())
        .await
        .expect("a majority answers")
}

fn names(list: &LockList) -> Vec<&str> {
    list.locks.iter().map(|lock| &*lock.name).collect()
}

#[tokio::test]
async fn every_kind_is_listed_with_its_holders() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let mutex = at_once(locks.mutex("mutex").lock()).await.unwrap();
    let _reader = at_once(locks.rw_lock("read").read()).await.unwrap();
    let permits = locks.semaphore("permits", 3);
    let _permits = [
        at_once(permits.acquire()).await.unwrap(),
        at_once(permits.acquire()).await.unwrap(),
    ];
    at_once(locks.latch("latch", 2).arrive()).await.unwrap();
    let _plain = at_once(locks.plain_mutex("plain").lock()).await.unwrap();
    let list = list(&bench, &bench.client().await).await;
    assert_eq!(names(&list), ["latch", "mutex", "permits", "read"]);
    let [latch, held, semaphore, read] = &list.locks[..] else {
        panic!("{list:?}");
    };
    let lock = held.lock.as_ref().expect("a lock");
    assert_eq!(
        (lock.fence, lock.label.as_deref()),
        (Some(mutex.fence()), Some("job"))
    );
    assert_eq!(lock.nodes.len(), 3);
    let kind = |lock: &ListedLock| lock.lock.as_ref().and_then(|lock| lock.kind);
    assert_eq!(kind(held), Some(HolderKind::Exclusive));
    assert_eq!(kind(read), Some(HolderKind::Shared));
    let semaphore = semaphore.semaphore.as_ref().expect("a semaphore");
    assert_eq!((semaphore.taken(), semaphore.permits), (2, 3));
    assert_eq!(latch.latch.as_ref().map(|latch| latch.arrived), Some(1));
    assert!(latch.lock.is_none() && held.semaphore.is_none());
}

#[tokio::test]
async fn a_lock_that_is_only_queued_for_is_listed() {
    let bench = Bench::new(3).await;
    let held = bench.lock_x().await;
    let other = bench.client().await;
    let mutex = other.mutex("x");
    let mut waiting = pin!(mutex.lock());
    assert!(waits(waiting.as_mut()).await);
    let list = list(&bench, &other).await;
    let lock = list.locks[0].lock.as_ref().expect("a lock");
    assert_eq!((lock.is_held(), lock.waiting), (true, 1));
    drop(held);
}

#[tokio::test]
async fn only_wanted_names_of_the_own_prefix_are_listed() {
    let bench = Bench::new(1).await;
    let ours = bench.builder().prefix("team:").connect().await.unwrap();
    let others = bench.client().await;
    let _held = [
        at_once(ours.mutex("a").lock()).await.unwrap(),
        at_once(ours.mutex("b").lock()).await.unwrap(),
        at_once(others.mutex("c").lock()).await.unwrap(),
    ];
    assert_eq!(names(&list(&bench, &ours).await), ["a", "b"]);
    assert_eq!(
        names(&list(&bench, &others).await),
        ["c", "team:a", "team:b"]
    );
    let only = bench.drive(ours.list().only(|name| name == "b").collect());
    assert_eq!(names(&only.await.unwrap()), ["b"]);
}

#[tokio::test]
async fn a_minority_need_not_answer() {
    let bench = Bench::new(3).await;
    let _held = bench.lock_x().await;
    let locks = bench.client().await;
    bench.break_first(1);
    let list = list(&bench, &locks).await;
    assert_eq!(names(&list), ["x"]);
    let failed: Vec<bool> = list.nodes.iter().map(|node| node.error.is_some()).collect();
    assert_eq!(failed, [true, false, false]);
    assert!(list.has_quorum());
}

/// What the nodes have that answer is listed, as unknown; not that everything else is free.
#[tokio::test]
async fn without_a_majority_what_single_nodes_have_is_listed_as_unknown() {
    let bench = Bench::new(3).await;
    let held = bench.lock_x().await;
    let locks = bench.client().await;
    bench.break_first(2);
    let list = list(&bench, &locks).await;
    assert!(!list.has_quorum());
    assert_eq!(names(&list), ["x"]);
    let lock = list.locks[0].lock.as_ref().expect("a lock");
    assert_eq!(
        (lock.state, lock.label.as_deref()),
        (LockState::Unknown, None)
    );
    let [one] = &lock.reported[..] else {
        panic!("{lock:?}");
    };
    assert_eq!((one.holder.fence, one.nodes), (Some(held.fence()), 1));
    bench.break_first(3);
    let error = bench.drive(locks.list().collect()).await.unwrap_err();
    assert!(
        matches!(&error, ListError::NoQuorum { votes } if votes.len() == 3),
        "{error}"
    );
}

#[tokio::test]
async fn nodes_in_quarantine_make_no_majority_of_a_list() {
    let bench = Bench::new(3).await;
    let _held = bench.lock_x().await;
    let locks = bench.client().await;
    bench.nodes[0].forget();
    assert!(list(&bench, &locks).await.has_quorum());
    bench.nodes[1].forget();
    let list = list(&bench, &locks).await;
    let votes: Vec<bool> = list.nodes.iter().map(|node| node.votes()).collect();
    assert_eq!(
        (votes, list.has_quorum()),
        (vec![false, false, true], false)
    );
}

#[tokio::test]
async fn after_the_last_step_the_next_round_begins() {
    let bench = Bench::new(1).await;
    let held = bench.lock_x().await;
    let locks = bench.client().await;
    let mut listing = locks.list();
    for _ in 0..2 {
        let step = bench.drive(listing.step()).await.unwrap();
        assert_eq!((step.complete, step.locks.len()), (true, 1));
    }
    at_once(held.release()).await.unwrap();
    let step = bench.drive(listing.step()).await.unwrap();
    assert_eq!((step.complete, step.locks.len()), (true, 0));
}

#[tokio::test]
async fn an_entry_says_how_old_it_is() {
    let bench = Bench::new(1).await;
    let _held = bench.lock_x().await;
    let list = list(&bench, &bench.client().await).await;
    bench.pass(ms(3_000)).await;
    assert!(list.locks[0].age() >= ms(3_000));
}

#[tokio::test]
async fn broken_holds_are_listed_once_although_every_node_remembers_them() {
    let bench = Bench::new(3).await;
    let dead = bench.lock_x().await;
    let operator = bench.client().await;
    let hold = operator.break_lock("x").by("olga").reason("burnt down");
    let broken = at_once(hold.run()).await.unwrap();
    bench.pass(ms(5_000)).await;
    let breaks = bench.drive(operator.list_breaks()).await.unwrap();
    let [one] = &breaks[..] else {
        panic!("{breaks:?}");
    };
    assert_eq!((&*one.name, one.slot, one.nodes), ("x", None, 3));
    assert_eq!((&*one.note.by, &*one.note.reason), ("olga", "burnt down"));
    assert_eq!(
        (one.note.fence.get(), one.note.ballot.get()),
        (broken.fence, dead.fence())
    );
    assert!(one.ago >= ms(5_000));
}
