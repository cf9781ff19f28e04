//! Rule 10, `hold`: work that is only done while the lock is held.

use std::cell::Cell;
use std::error::Error;
use std::pin::pin;

use ringfence::{HoldError, Lost, ReleaseError};

use crate::rules::bench::{Bench, at_once, ms, waits};
use crate::rules::log::Log;

/// Records that it was dropped.
struct Flag<'a>(&'a Cell<bool>);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[tokio::test]
async fn rule_10_hold_returns_the_result_of_the_work_and_releases() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x");
    let held = lock.hold(async |guard| {
        assert_eq!(bench.held_by("x", guard), 3);
        guard.fence()
    });
    assert!(at_once(held).await.unwrap() > 0);
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_10_a_failed_release_does_not_hide_the_result_of_the_work() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (log, _listening) = Log::listen();
    let lock = locks.mutex("x");
    let held = lock.hold(async |_guard| {
        bench.break_first(3);
        Err::<(), &str>("the work's own error")
    });
    assert_eq!(
        bench.drive(held).await.unwrap(),
        Err("the work's own error")
    );
    let mut warnings = log.warnings();
    warnings.retain(|line| !line.contains("the node does not vote"));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("no majority of the nodes confirmed"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn rule_10_hold_stops_the_work_when_the_lock_is_lost() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let stopped = Cell::new(false);
    let token = Cell::new(None);
    let lock = locks.mutex("x").ttl(ms(9000));
    let mut held = pin!(lock.hold(async |guard| {
        token.set(Some(guard.token().clone()));
        let _flag = Flag(&stopped);
        std::future::pending::<()>().await;
    }));
    assert!(waits(held.as_mut()).await);
    let token = token.take().unwrap();
    (0..3).for_each(|node| bench.delete(node, "x", &token));
    bench.pass(ms(2995)).await;
    assert!(waits(held.as_mut()).await && !stopped.get());
    bench.pass(ms(5)).await;
    let error = at_once(held).await.unwrap_err();
    assert!(matches!(error, HoldError::Lost(Lost::Gone)), "{error}");
    assert!(stopped.get());
    assert_eq!(
        error.to_string(),
        "the lock was lost before the work was done: the lock is gone: a majority of the nodes cannot \
         hold it any more"
    );
}

#[tokio::test]
async fn rule_10_hold_stops_the_work_at_the_deadline() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").renew(false);
    let mut held = pin!(lock.hold(async |_| std::future::pending::<()>().await));
    assert!(waits(held.as_mut()).await);
    bench.time.step(ms(9897));
    assert!(waits(held.as_mut()).await);
    bench.time.step(ms(1));
    let error = at_once(held).await.unwrap_err();
    assert!(matches!(error, HoldError::Lost(Lost::Expired)), "{error}");
}

/// `hold` cannot stop work between two awaits. The caller learns that the lock was lost.
#[tokio::test]
async fn rule_10_hold_is_lost_if_the_work_ends_after_the_deadline() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").renew(false);
    let held = lock.hold(async |_| bench.time.step(ms(9898)));
    let error = at_once(held).await.unwrap_err();
    assert!(matches!(error, HoldError::Lost(Lost::Expired)), "{error}");
}

#[tokio::test]
async fn rule_10_the_output_of_work_that_ends_after_the_deadline_can_be_had() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").renew(false);
    let late = at_once(lock.hold_to_end(async |_| {
        bench.time.step(ms(9898));
        7
    }));
    let late = late.await.unwrap();
    assert_eq!((late.output, late.lost), (7, Some(Lost::Expired)));
    assert!(matches!(late.held(), Err(HoldError::Lost(Lost::Expired))));
    bench.pass(ms(1000)).await;
    let in_time = at_once(lock.hold_to_end(async |_| 7)).await.unwrap();
    assert_eq!((in_time.output, in_time.lost), (7, None));
    assert_eq!(in_time.held().unwrap(), 7);
}

/// An output that is neither `Debug`, `Send`, `Sync` nor `'static` needs no more than a `?`.
#[tokio::test]
async fn the_error_of_hold_fits_every_error_type_whatever_the_work_returns() {
    struct Output<'a>(&'a str, std::rc::Rc<()>);
    async fn held(
        lock: &ringfence::Lock,
        text: &str,
    ) -> Result<usize, Box<dyn Error + Send + Sync>> {
        let output = lock
            .hold(async |_| Output(text, std::rc::Rc::new(())))
            .await?;
        Ok(output.0.len() * std::rc::Rc::strong_count(&output.1))
    }
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let text = String::from("four");
    assert_eq!(at_once(held(&locks.mutex("x"), &text)).await.unwrap(), 4);
}

#[tokio::test]
async fn rule_10_a_release_after_a_loss_is_an_error_although_the_nodes_had_the_lock() {
    let bench = Bench::new(3).await;
    let guard = bench
        .lock_x_with(|lock| lock.ttl(ms(3000)).max_hold(ms(4000)))
        .await;
    bench.pass(ms(4000)).await;
    assert_eq!(at_once(guard.lost()).await, Lost::MaxHold);
    assert_eq!(bench.held_by("x", &guard), 3);
    assert_eq!(at_once(guard.release()).await, Err(ReleaseError::Expired));
    assert_eq!(bench.holding("x"), 0, "it is free all the same");
}

#[tokio::test]
async fn rule_10_hold_does_not_start_the_work_without_the_lock() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let _guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let other = bench.client().await.mutex("x").attempts(1);
    let error = at_once(other.hold(async |_| panic!("nothing was granted"))).await;
    assert!(matches!(error, Err(HoldError::Acquire(_))));
}

#[tokio::test]
async fn g6_a_dropped_hold_releases() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    {
        let lock = locks.mutex("x");
        let mut held = pin!(lock.hold(async |_| std::future::pending::<()>().await));
        assert!(waits(held.as_mut()).await);
        assert_eq!(bench.holding("x"), 3);
    }
    assert_eq!(bench.holding("x"), 0);
}
