//! Receipts: a hold that one process leaves, and another extends and releases.

use ringfence::{ConfigError, ExtendError, Lost, ReleaseError};

use ringfence::receipt::{Receipt, ReleaseReceiptError};

use crate::rules::bench::{Bench, assert_lost, at_once, foreign, ms};

#[tokio::test]
async fn a_left_lock_stays_until_its_ttl_and_is_not_renewed() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let fence = guard.fence();
    let receipt = guard.leave();
    assert_eq!(receipt.fence(), fence);
    drop(locks);
    bench.pass(ms(9999)).await;
    assert_eq!(bench.holding("x"), 3);
    bench.pass(ms(2)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn another_client_extends_and_releases_a_left_lock() {
    let bench = Bench::new(3).await;
    let left = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap()
        .leave();
    // Between processes a receipt is passed as text.
    let receipt = Receipt::parse(&left.expose()).unwrap();
    let other = bench.client().await;
    bench.pass(ms(8000)).await;
    let valid = at_once(other.mutex("x").extend_receipt(&receipt, ms(20_000)))
        .await
        .unwrap();
    assert_eq!(valid, ms(20_000 - 200 - 2));
    bench.pass(ms(15_000)).await;
    assert_eq!(bench.holding("x"), 3);
    at_once(other.mutex("x").release_receipt(&receipt))
        .await
        .unwrap();
    assert_eq!(bench.holding("x"), 0);
    let again = at_once(other.mutex("x").release_receipt(&receipt)).await;
    assert!(matches!(
        again,
        Err(ReleaseReceiptError::Release(ReleaseError::Expired))
    ));
    assert_eq!(
        again.unwrap_err().to_string(),
        "this token does not hold the lock: it has expired, was released before, or never existed"
    );
    let error = at_once(other.mutex("x").extend_receipt(&receipt, ms(20_000)))
        .await
        .unwrap_err();
    assert_lost(&error, Lost::Gone);
    assert_eq!(
        bench.holding("x"),
        0,
        "an extend does not acquire the lock again"
    );
}

#[tokio::test]
async fn releasing_a_receipt_reports_that_another_client_holds_the_lock() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let receipt = at_once(locks.mutex("x").lock()).await.unwrap().leave();
    bench.time.step(ms(10_001));
    let next = at_once(locks.mutex("x").lock()).await.unwrap();
    let outcome = at_once(locks.mutex("x").release_receipt(&receipt)).await;
    assert!(matches!(
        outcome,
        Err(ReleaseReceiptError::Release(ReleaseError::Taken))
    ));
    assert_eq!(bench.held_by("x", &next), 3);
}

#[tokio::test]
async fn a_receipt_without_a_majority_is_unconfirmed() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let receipt = at_once(locks.mutex("x").lock()).await.unwrap().leave();
    bench.break_first(2);
    let error = at_once(locks.mutex("x").extend_receipt(&receipt, ms(9000)))
        .await
        .unwrap_err();
    assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error}");
    let outcome = bench
        .drive(locks.mutex("x").release_receipt(&receipt))
        .await;
    assert!(matches!(
        outcome,
        Err(ReleaseReceiptError::Release(ReleaseError::Unconfirmed))
    ));
}

#[tokio::test]
async fn releasing_the_receipt_of_a_live_guard_ends_its_lock() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").ttl(ms(9000)).lock())
        .await
        .unwrap();
    at_once(
        bench
            .client()
            .await
            .mutex("x")
            .release_receipt(&guard.receipt()),
    )
    .await
    .unwrap();
    bench.pass(ms(3000)).await;
    assert_eq!(
        guard.check(),
        Err(Lost::Gone),
        "reported at the next renewal"
    );
    assert_eq!(bench.holding("x"), 0, "and a closed ballot is not restored");
}

/// Once each round restored the lock on nodes that lacked it, and the next round counted those
/// nodes.
#[tokio::test]
async fn extending_a_receipt_never_revives_an_expired_lock() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let receipt = at_once(locks.mutex("x").lock()).await.unwrap().leave();
    bench.time.step(ms(10_001));
    for down in [2, 1, 0] {
        bench.mend();
        bench.break_first(down);
        let error = at_once(locks.mutex("x").extend_receipt(&receipt, ms(9000)))
            .await
            .unwrap_err();
        assert_eq!(bench.holding("x"), 0, "{down} nodes down: {error}");
    }
    let next = at_once(locks.mutex("x").try_lock()).await.unwrap();
    assert!(next.fence() > receipt.fence());
}

#[tokio::test]
async fn nodes_in_quarantine_do_not_count_for_the_extension_of_a_receipt() {
    let bench = Bench::uninitialised(&[0; 3]);
    let locks = bench.client().await;
    let token = foreign(7);
    (0..3).for_each(|node| bench.occupy(node, "x", &token, 10_000));
    let receipt = Receipt::parse(&format!("{}.1", token.expose())).unwrap();
    let error = at_once(locks.mutex("x").extend_receipt(&receipt, ms(20_000)))
        .await
        .unwrap_err();
    assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error}");
    bench.pass(ms(37_000)).await;
    (0..3).for_each(|node| bench.occupy(node, "x", &token, 10_000));
    at_once(locks.mutex("x").extend_receipt(&receipt, ms(20_000)))
        .await
        .expect("the quarantine is over");
}

#[tokio::test]
async fn the_receipt_of_a_reader_extends_and_releases_its_share_only() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let shared = locks.rw_lock("x");
    let left = at_once(shared.read()).await.unwrap().leave();
    let other = at_once(shared.read()).await.unwrap();
    let receipt = Receipt::parse(&left.expose()).unwrap();
    let client = bench.client().await;
    bench.pass(ms(8000)).await;
    at_once(client.rw_lock("x").extend_receipt(&receipt, ms(20_000)))
        .await
        .expect("a share is extended");
    bench.pass(ms(8000)).await;
    let readers = at_once(locks.inspect("x")).await.unwrap().holders.len();
    assert_eq!(readers, 2);
    // A mutex of this name is the same lock.
    at_once(client.mutex("x").release_receipt(&receipt))
        .await
        .expect("a share is released");
    let readers = at_once(locks.inspect("x")).await.unwrap().holders.len();
    assert_eq!(readers, 1);
    assert_eq!(other.check(), Ok(()));
}

#[tokio::test]
async fn the_receipt_of_a_permit_extends_and_releases_its_slot() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let pool = locks.semaphore("x", 2);
    let first = at_once(pool.acquire()).await.unwrap();
    let left = at_once(pool.acquire()).await.unwrap().leave();
    let receipt = Receipt::parse(&left.expose()).unwrap();
    assert_eq!(receipt.permits(), Some(2));
    bench.pass(ms(8000)).await;
    at_once(pool.extend_receipt(&receipt, ms(20_000)))
        .await
        .expect("a permit is extended");
    bench.pass(ms(8000)).await;
    assert!(at_once(pool.try_acquire()).await.is_err(), "both are taken");
    at_once(pool.release_receipt(&receipt))
        .await
        .expect("a permit is released");
    assert_eq!(first.check(), Ok(()));
    let next = at_once(pool.try_acquire()).await;
    assert!(next.is_ok(), "the slot is free again");
    let again = at_once(pool.release_receipt(&receipt)).await;
    assert!(matches!(again, Err(ReleaseReceiptError::Release(_))));
}

#[tokio::test]
async fn a_receipt_of_another_kind_is_refused_before_anything_is_sent() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let permit = at_once(locks.semaphore("x", 2).acquire()).await.unwrap();
    let held = at_once(locks.mutex("y").lock()).await.unwrap();
    let refused = |outcome| match outcome {
        Err(ReleaseReceiptError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    let permit = permit.leave();
    let why = refused(at_once(locks.mutex("x").release_receipt(&permit)).await);
    assert_eq!(why, ConfigError::ReceiptOfPermit);
    let why = refused(at_once(locks.semaphore("y", 2).release_receipt(&held.receipt())).await);
    assert_eq!(why, ConfigError::ReceiptOfLock);
    // A slot that the semaphore does not have.
    let text = permit.expose().replace("slot0of2", "slot1of2");
    let beyond = Receipt::parse(&text).unwrap();
    let why = refused(at_once(locks.semaphore("x", 1).release_receipt(&beyond)).await);
    assert_eq!(why, ConfigError::ReceiptOfPermit);
}

#[tokio::test]
async fn an_extended_receipt_has_the_lock_delay_of_the_grant() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").lock_delay(ms(5000));
    let receipt = at_once(lock.lock()).await.unwrap().leave();
    let receipt = Receipt::parse(&receipt.expose()).unwrap();
    at_once(locks.mutex("x").extend_receipt(&receipt, ms(10_000)))
        .await
        .unwrap();
    bench.pass(ms(14_990)).await;
    assert_eq!(bench.holding("x"), 3, "the delay is kept");
    bench.pass(ms(20)).await;
    assert_eq!(bench.holding("x"), 0);
}

/// The process that left the lock behind may be inside its critical section until the TTL is over.
/// The lock delay protects other clients from it, so a late receipt must not cut the delay.
#[tokio::test]
async fn a_late_extend_or_release_of_a_receipt_is_a_loss_and_leaves_the_lock_delay() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").ttl(ms(2000)).lock_delay(ms(5000));
    let receipt = at_once(lock.lock()).await.unwrap().leave();
    let receipt = Receipt::parse(&receipt.expose()).unwrap();
    bench.pass(ms(2000)).await;
    let extended = at_once(lock.extend_receipt(&receipt, ms(2000))).await;
    assert!(
        matches!(extended, Err(ExtendError::Lost { .. })),
        "{extended:?}"
    );
    let released = at_once(locks.mutex("x").release_receipt(&receipt)).await;
    let expired = ReleaseReceiptError::Release(ReleaseError::Expired);
    assert_eq!(
        format!("{:?}", released.unwrap_err()),
        format!("{expired:?}")
    );
    bench.pass(ms(4990)).await;
    assert_eq!(bench.holding("x"), 3, "the delay is kept");
    bench.pass(ms(20)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn a_late_release_of_a_permit_s_receipt_is_a_loss_too() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let pool = locks.semaphore("x", 1).ttl(ms(2000)).lock_delay(ms(5000));
    let receipt = at_once(pool.acquire()).await.unwrap().leave();
    bench.pass(ms(2000)).await;
    assert!(
        at_once(pool.extend_receipt(&receipt, ms(2000)))
            .await
            .is_err()
    );
    assert!(at_once(pool.release_receipt(&receipt)).await.is_err());
    assert!(
        at_once(pool.try_acquire()).await.is_err(),
        "the delay is kept"
    );
}

#[tokio::test]
async fn a_released_receipt_keeps_the_lock_for_the_rest_of_hold_at_least() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").hold_at_least(ms(60_000));
    let receipt = at_once(lock.lock()).await.unwrap().leave();
    let receipt = Receipt::parse(&receipt.expose()).unwrap();
    bench.pass(ms(5000)).await;
    at_once(locks.mutex("x").release_receipt(&receipt))
        .await
        .unwrap();
    bench.pass(ms(54_900)).await;
    assert!(at_once(locks.mutex("x").try_lock()).await.is_err());
    bench.pass(ms(200)).await;
    let next = at_once(locks.mutex("x").try_lock()).await;
    assert!(next.is_ok(), "the time is over");
}

#[tokio::test]
async fn an_expired_receipt_keeps_nothing() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").hold_at_least(ms(60_000));
    let receipt = at_once(lock.lock()).await.unwrap().leave();
    bench.pass(ms(11_000)).await;
    let late = at_once(locks.mutex("x").release_receipt(&receipt)).await;
    assert!(matches!(
        late,
        Err(ReleaseReceiptError::Release(ReleaseError::Expired))
    ));
    let next = at_once(locks.mutex("x").try_lock()).await;
    assert!(next.is_ok(), "it is free");
}
