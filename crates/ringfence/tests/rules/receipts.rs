//! Receipts: a hold that one process leaves, and another extends and releases.

use ringfence::{ExtendError, Lost, Receipt, ReleaseError, ReleaseReceiptError};

use crate::bench::{Bench, assert_lost, at_once, foreign, ms};

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
