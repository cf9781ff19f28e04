//! Re-entrant holds: the client counts the guards of one owner; the nodes see one token and fence.

use std::pin::pin;

use ringfence::{AcquireError, ConfigError, Lost, Owner, ReleaseError};
use ringfence_core::message::Op;

use crate::rules::bench::{Bench, at_once, idle, ms, poll_once, waits};

#[tokio::test]
async fn the_first_of_two_releases_does_not_free_the_lock() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let owner = Owner::new();
    let outer = at_once(locks.mutex("x").owner(&owner).lock())
        .await
        .unwrap();
    bench.log_operations();
    let inner = at_once(locks.mutex("x").owner(&owner).lock())
        .await
        .unwrap();
    assert_eq!(
        bench.count(|_| true),
        [0; 3],
        "nothing is sent to the nodes again"
    );
    assert_eq!(outer.fence(), inner.fence());
    assert_eq!(outer.token(), inner.token());
    assert_eq!(outer.exact_deadline(), inner.exact_deadline());
    at_once(outer.release()).await.unwrap();
    assert_eq!(inner.check(), Ok(()));
    assert_eq!(bench.held_by("x", &inner), 3);
    assert!(at_once(other.mutex("x").try_lock()).await.is_err());
    bench.pass(ms(30_000)).await;
    assert_eq!(inner.check(), Ok(()), "renewed for the remaining guard");
    at_once(inner.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn the_last_drop_frees_the_lock_in_any_order() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let owner = Owner::new();
    let lock = locks.mutex("x").owner(&owner);
    let first = at_once(lock.lock()).await.unwrap();
    let second = at_once(lock.try_lock()).await.unwrap();
    let third = at_once(lock.lock()).await.unwrap();
    drop(second);
    drop(first);
    assert_eq!(bench.held_by("x", &third), 3);
    drop(third);
    idle().await;
    assert_eq!(bench.holding("x"), 0);
    let again = at_once(lock.lock()).await.unwrap();
    assert_eq!(
        bench.held_by("x", &again),
        3,
        "and it can be acquired again"
    );
}

#[tokio::test]
async fn another_owner_of_the_same_client_waits() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (one, other) = (Owner::new(), Owner::new());
    let held = at_once(locks.mutex("x").owner(&one).lock()).await.unwrap();
    let lock = locks.mutex("x").owner(&other);
    let error = at_once(lock.try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    let mut waiting = pin!(lock.lock());
    assert!(waits(waiting.as_mut()).await);
    let fence = held.fence();
    at_once(held.release()).await.unwrap();
    let theirs = bench.drive(waiting).await.unwrap();
    assert!(theirs.fence() > fence);
}

#[tokio::test]
async fn two_tasks_of_one_owner_join_one_acquisition() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let held = at_once(other.mutex("x").lock()).await.unwrap();
    let lock = locks.mutex("x").owner(&Owner::new());
    let (mut one, mut two) = (pin!(lock.lock()), pin!(lock.lock()));
    assert!(waits(one.as_mut()).await && waits(two.as_mut()).await);
    bench.pass(ms(100)).await;
    assert!(waits(one.as_mut()).await && waits(two.as_mut()).await);
    let waiting = at_once(other.inspect("x")).await.unwrap();
    let tickets = waiting
        .nodes
        .iter()
        .map(|node| node.view.as_ref().unwrap().waiting);
    assert_eq!(tickets.collect::<Vec<_>>(), [1; 3], "one ticket for both");
    bench.log_operations();
    at_once(held.release()).await.unwrap();
    let (one, two) = bench.drive(async { tokio::join!(one, two) }).await;
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.fence(), two.fence());
    let tokens = bench.nodes[0].take_operations();
    let acquires = tokens
        .iter()
        .filter(|one| matches!(one.request.op, Op::Acquire { .. }));
    assert!(
        acquires
            .map(|one| one.request.token.clone())
            .all(|token| token == *one.token())
    );
    drop(one);
    assert_eq!(bench.held_by("x", &two), 3);
}

#[tokio::test]
async fn if_the_acquiring_task_is_dropped_the_other_task_continues() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let held = at_once(other.mutex("x").lock()).await.unwrap();
    let lock = locks.mutex("x").owner(&Owner::new());
    let mut two = Box::pin(lock.lock());
    {
        let mut one = Box::pin(lock.lock());
        assert!(waits(one.as_mut()).await && waits(two.as_mut()).await);
    }
    assert!(waits(two.as_mut()).await);
    at_once(held.release()).await.unwrap();
    let guard = bench.drive(two).await.unwrap();
    assert_eq!(bench.held_by("x", &guard), 3);
}

#[tokio::test]
async fn each_caller_waits_no_longer_than_its_own_limit() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let _held = at_once(other.mutex("x").label("them").lock())
        .await
        .unwrap();
    let owner = Owner::new();
    let patient = locks.mutex("x").owner(&owner);
    let mut patient = pin!(patient.lock());
    assert!(waits(patient.as_mut()).await);
    let hasty = locks.mutex("x").owner(&owner).wait(ms(300));
    let begun = bench.time.now();
    let hasty = async {
        tokio::select! {
            _ = patient.as_mut() => panic!("it is held"),
            error = hasty.lock() => error.unwrap_err(),
        }
    };
    let error = bench.drive(hasty).await;
    assert!(error.to_string().contains("held by them"), "{error}");
    let took = bench.time.now().since(begun);
    assert!(took >= ms(300) && took < ms(400), "{took:?}");
    let error = at_once(locks.mutex("x").owner(&owner).try_lock())
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    assert!(poll_once(patient).await.is_pending());
}

#[tokio::test]
async fn all_guards_are_lost_together_and_a_lost_hold_is_not_joined() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let owner = Owner::new();
    let lock = locks.mutex("x").owner(&owner);
    let (one, two) = (
        at_once(lock.lock()).await.unwrap(),
        at_once(lock.lock()).await.unwrap(),
    );
    bench.break_first(2);
    let (first, second) = bench
        .drive(async { tokio::join!(one.lost(), two.lost()) })
        .await;
    assert_eq!((first, second), (Lost::Expired, Lost::Expired));
    bench.mend();
    let new = bench.drive(lock.lock()).await.unwrap();
    let held = bench.held_by("x", &new);
    assert!(held >= 2, "{held}");
    assert!(new.fence() > one.fence());
    assert_eq!(at_once(one.release()).await, Err(ReleaseError::Expired));
    at_once(two.release()).await.unwrap_err();
    assert_eq!(new.check(), Ok(()));
    assert_eq!(
        bench.held_by("x", &new),
        held,
        "old guards release nothing of the new hold"
    );
}

#[tokio::test]
async fn a_set_of_names_is_the_same_lock_in_any_order() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let owner = Owner::new();
    let one = at_once(locks.multi(["a", "b"]).owner(&owner).lock())
        .await
        .unwrap();
    let two = at_once(locks.multi(["b", "a"]).owner(&owner).lock())
        .await
        .unwrap();
    assert_eq!(one.fence(), two.fence());
    drop(one);
    assert_eq!((bench.held_by("a", &two), bench.held_by("b", &two)), (3, 3));
    assert!(
        at_once(locks.mutex("a").owner(&owner).try_lock())
            .await
            .is_err(),
        "another set is another lock"
    );
    drop(two);
    assert_eq!((bench.holding("a"), bench.holding("b")), (0, 0));
}

#[tokio::test]
async fn acquiring_twice_with_one_owner_logs_no_warning() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let owner = Owner::new();
    let (log, _scope) = crate::rules::log::Log::listen();
    let _one = at_once(locks.mutex("x").owner(&owner).lock())
        .await
        .unwrap();
    let _two = at_once(locks.mutex("x").owner(&owner).lock())
        .await
        .unwrap();
    assert_eq!(log.warnings(), Vec::<String>::new());
}

#[tokio::test]
async fn a_hold_that_one_guard_left_is_not_released_by_the_last_guard() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").owner(&Owner::new());
    let (one, two) = (
        at_once(lock.lock()).await.unwrap(),
        at_once(lock.lock()).await.unwrap(),
    );
    let receipt = one.leave();
    assert_eq!(two.check(), Ok(()));
    at_once(two.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 3);
    at_once(locks.mutex("x").release_receipt(&receipt))
        .await
        .unwrap();
    assert_eq!(bench.holding("x"), 0);
}

#[test]
fn the_blocking_api_counts_guards_of_one_owner() {
    let locks = ringfence::blocking::Locks::connect("memory:").unwrap();
    let owner = Owner::new();
    let outer = locks.mutex("x").owner(&owner).lock().unwrap();
    let inner = locks.mutex("x").owner(&owner).lock().unwrap();
    assert_eq!(outer.fence(), inner.fence());
    outer.release().unwrap();
    assert!(locks.mutex("x").try_lock().is_err());
    inner.release().unwrap();
    locks.mutex("x").try_lock().unwrap().release().unwrap();
}

#[tokio::test]
async fn a_downgrade_takes_effect_when_the_last_exclusive_guard_of_the_owner_ends() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let lock = locks.mutex("x").owner(&Owner::new());
    let outer = at_once(lock.lock()).await.unwrap();
    let inner = at_once(lock.lock()).await.unwrap();
    let reader = at_once(inner.downgrade()).await.unwrap();
    assert_eq!(outer.check(), Ok(()), "the other guard is still exclusive");
    assert_eq!(reader.check(), Ok(()));
    assert_eq!(bench.held_by("x", &outer), 3);
    let readers = other.rw_lock("x");
    assert!(at_once(readers.try_read()).await.is_err());
    let fence = outer.fence();
    let mut lost = Box::pin(reader.lost());
    assert!(waits(lost.as_mut()).await);
    at_once(outer.release()).await.unwrap();
    let beside = at_once(readers.try_read())
        .await
        .expect("the lock is shared now");
    bench.pass(ms(30_000)).await;
    assert_eq!(reader.check(), Ok(()), "renewed as a reader");
    assert!(waits(lost.as_mut()).await);
    drop(lost);
    assert_eq!(reader.fence(), fence);
    at_once(beside.release()).await.unwrap();
    assert!(at_once(readers.try_write()).await.is_err());
    at_once(reader.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn a_downgraded_guard_may_be_released_before_the_others() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").owner(&Owner::new());
    let outer = at_once(lock.lock()).await.unwrap();
    let reader = at_once(at_once(lock.lock()).await.unwrap().downgrade())
        .await
        .unwrap();
    at_once(reader.release()).await.unwrap();
    assert_eq!((outer.check(), bench.held_by("x", &outer)), (Ok(()), 3));
    drop(outer);
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn when_all_guards_of_an_owner_downgrade_they_hold_one_share() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let owner = Owner::new();
    let lock = locks.mutex("x").owner(&owner);
    let (one, two) = (
        at_once(lock.lock()).await.unwrap(),
        at_once(lock.lock()).await.unwrap(),
    );
    let one = at_once(one.downgrade()).await.unwrap();
    let two = at_once(two.downgrade()).await.unwrap();
    let beside = at_once(other.rw_lock("x").try_read()).await.unwrap();
    drop(beside);
    drop(one);
    assert_eq!((two.check(), bench.holding("x")), (Ok(()), 3));
    // A shared hold does not become exclusive again: the owner would wait for itself.
    let refused = at_once(lock.lock()).await.unwrap_err();
    assert!(
        matches!(
            refused,
            AcquireError::Invalid(ConfigError::OwnerOverlap { .. })
        ),
        "{refused:?}"
    );
    let both = locks.multi(["x", "y"]).owner(&owner);
    assert!(at_once(both.lock()).await.is_err());
    at_once(at_once(locks.rw_lock("x").read()).await.unwrap().release())
        .await
        .unwrap();
    drop(two);
    drop(at_once(lock.lock()).await.unwrap());
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn a_caller_does_not_wait_for_the_share_that_another_caller_of_its_owner_kept() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let held = at_once(other.mutex("x").lock()).await.unwrap();
    let lock = locks.mutex("x").owner(&Owner::new());
    let (mut one, mut two) = (pin!(lock.lock()), pin!(lock.lock()));
    assert!(waits(one.as_mut()).await && waits(two.as_mut()).await);
    at_once(held.release()).await.unwrap();
    // The second caller is not polled until the first has downgraded.
    let reader = bench.drive(async { one.await.unwrap().downgrade().await });
    let reader = reader.await.unwrap();
    let refused = bench.drive(two).await.unwrap_err();
    assert!(is_overlap(&refused), "{refused:?}");
    assert_eq!(reader.check(), Ok(()));
}

#[tokio::test]
async fn an_owner_does_not_wait_for_itself_over_two_clients_of_the_same_nodes() {
    let bench = Bench::new(3).await;
    let (one, two) = (bench.client().await, bench.client().await);
    let owner = Owner::new();
    let guard = at_once(one.mutex("x").owner(&owner).lock()).await.unwrap();
    let refused = at_once(two.mutex("x").owner(&owner).lock()).await;
    let refused = refused.unwrap_err();
    assert!(is_overlap(&refused), "{refused:?}");
    // Names mean other locks on other nodes.
    let elsewhere = ringfence::Locks::connect("memory:elsewhere").await.unwrap();
    let beside = elsewhere.mutex("x").owner(&owner).lock().await.unwrap();
    beside.release().await.unwrap();
    at_once(guard.release()).await.unwrap();
    let after = at_once(two.mutex("x").owner(&owner).lock()).await.unwrap();
    at_once(after.release()).await.unwrap();
    // Readers exclude nobody.
    let shares = [one.rw_lock("x"), two.rw_lock("x")].map(|lock| lock.owner(&owner));
    for share in &shares {
        std::mem::forget(at_once(share.read()).await.unwrap());
    }
}

fn is_overlap(error: &AcquireError) -> bool {
    matches!(
        error,
        AcquireError::Invalid(ConfigError::OwnerOverlap { .. })
    )
}
