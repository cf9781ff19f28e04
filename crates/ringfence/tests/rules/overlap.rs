//! An owner asks for a name that it already has, alone or together with other names.

use std::pin::pin;

use ringfence::{AcquireError, ConfigError, Owner};

use crate::rules::bench::{Bench, at_once, ms, waits};

/// An owner cannot wait for a lock that it has itself: it gets an error at once, and nothing is
/// sent.
#[tokio::test]
async fn an_owner_that_would_wait_for_itself_gets_an_error() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let owner = Owner::new();
    let (one, both) = (
        locks.mutex("a").owner(&owner),
        locks.multi(["b", "a"]).owner(&owner),
    );
    for (first, second) in [(&one, &both), (&both, &one)] {
        let guard = at_once(first.lock()).await.unwrap();
        bench.log_operations();
        for refused in [
            at_once(second.lock()).await,
            at_once(second.try_lock()).await,
        ] {
            let error = refused.unwrap_err();
            assert!(!error.is_retryable(), "{error}");
            let overlap = |error: &AcquireError| {
                matches!(
                    error,
                    AcquireError::Invalid(ConfigError::OwnerOverlap { .. })
                )
            };
            assert!(overlap(&error), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("`a, b`") && text.contains("`a`"), "{text}");
        }
        assert_eq!(bench.count(|_| true), [0; 3], "nothing was sent");
        assert_eq!(guard.check(), Ok(()));
        // Names that the owner does not have are not affected.
        let apart = locks.multi(["c", "d"]).owner(&owner);
        at_once(at_once(apart.lock()).await.unwrap().release())
            .await
            .unwrap();
        at_once(guard.release()).await.unwrap();
        let guard = at_once(second.lock()).await.unwrap();
        at_once(guard.release()).await.unwrap();
    }
}

/// Also while the owner still waits for its first lock.
#[tokio::test]
async fn an_owner_that_waits_for_a_name_cannot_ask_for_it_among_others() {
    let bench = Bench::new(3).await;
    let (locks, other) = (bench.client().await, bench.client().await);
    let owner = Owner::new();
    let held = at_once(other.mutex("a").lock()).await.unwrap();
    let one = locks.mutex("a").owner(&owner);
    let both = locks.multi(["a", "b"]).owner(&owner);
    {
        let mut waiting = pin!(one.lock());
        assert!(waits(waiting.as_mut()).await);
        assert!(matches!(
            at_once(both.lock()).await,
            Err(AcquireError::Invalid(ConfigError::OwnerOverlap { .. }))
        ));
    }
    // The owner no longer waits for `a`.
    let refused = at_once(both.try_lock()).await;
    assert!(matches!(refused, Err(AcquireError::Held { .. })));
    drop(held);
}

/// A guard whose lock is lost excludes no other request.
#[tokio::test]
async fn an_owner_can_ask_again_for_a_name_whose_lock_it_lost() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let owner = Owner::new();
    let one = locks.mutex("a").owner(&owner).ttl(ms(200)).renew(false);
    let lost = at_once(one.lock()).await.unwrap();
    bench.pass(ms(300)).await;
    assert!(lost.check().is_err());
    let both = locks.multi(["a", "b"]).owner(&owner);
    drop(at_once(both.lock()).await.unwrap());
    drop(lost);
}
