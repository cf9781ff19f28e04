//! `Loss`: the signal for tasks and threads that do not have the guard.

use std::pin::pin;

use ringfence::{Held, HoldError, Locks, Lost, Owner, blocking};

use crate::rules::bench::{Bench, at_once, ms, waits};

async fn one_of_each(locks: &Locks) -> Vec<Box<dyn Held>> {
    vec![
        Box::new(at_once(locks.mutex("mutex").lock()).await.unwrap()),
        Box::new(at_once(locks.rw_lock("read").read()).await.unwrap()),
        Box::new(at_once(locks.plain_mutex("plain").lock()).await.unwrap()),
        Box::new(at_once(locks.semaphore("pool", 2).acquire()).await.unwrap()),
        Box::new(at_once(locks.election("lead").campaign()).await.unwrap()),
    ]
}

#[tokio::test]
async fn a_signal_of_any_guard_reports_the_loss_to_another_task() {
    let bench = Bench::new(3).await;
    let guards = one_of_each(&bench.client().await).await;
    let mut heard = Vec::new();
    for guard in &guards {
        let (loss, other) = (guard.loss(), guard.loss());
        assert_eq!((loss.is_lost(), loss.reason()), (false, None), "{guard:?}");
        heard.push(tokio::spawn(async move { Err(loss.await) }));
        heard.push(tokio::spawn(async move {
            other.run(std::future::pending::<()>()).await
        }));
    }
    bench.break_first(3);
    for heard in heard {
        assert_eq!(bench.drive(heard).await.unwrap(), Err(Lost::Expired));
    }
    for guard in guards {
        let reason = guard.loss().reason();
        assert_eq!(reason, Some(Lost::Expired), "{guard:?}");
    }
}

#[tokio::test]
async fn a_signal_outlives_the_guard_and_reports_its_release() {
    let bench = Bench::new(3).await;
    for guard in one_of_each(&bench.client().await).await {
        let loss = guard.loss();
        let mut lost = pin!(loss.lost());
        assert!(waits(lost.as_mut()).await);
        at_once(guard.release()).await.unwrap();
        assert_eq!(at_once(lost).await, Lost::Released);
        assert!(loss.is_lost());
    }
    let guard = bench.lock_x().await;
    let loss = guard.loss();
    drop(guard);
    assert_eq!(loss.reason(), Some(Lost::Released));
}

#[tokio::test]
async fn the_signal_of_an_exclusive_guard_reports_its_downgrade_and_that_of_the_reader_does_not() {
    let bench = Bench::new(3).await;
    let writer = bench.lock_x().await;
    let alone = writer.loss();
    let reader = at_once(writer.downgrade()).await.unwrap();
    let shared = reader.loss();
    assert_eq!(alone.reason(), Some(Lost::Released));
    bench.pass(ms(30_000)).await;
    assert_eq!(shared.reason(), None);
}

#[tokio::test]
async fn the_signal_of_a_downgraded_guard_follows_the_hold_of_its_owner() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").owner(&Owner::new());
    let outer = at_once(lock.lock()).await.unwrap();
    let inner = at_once(lock.lock()).await.unwrap();
    let reader = at_once(inner.downgrade()).await.unwrap();
    // Here the hold is still exclusive: it becomes a share when the other guard ends.
    let loss = reader.loss();
    let mut lost = pin!(loss.lost());
    assert!(waits(lost.as_mut()).await);
    at_once(outer.release()).await.unwrap();
    bench.pass(ms(30_000)).await;
    assert_eq!(loss.check(), Ok(()));
    assert!(waits(lost.as_mut()).await);
    at_once(reader.release()).await.unwrap();
    assert_eq!(at_once(lost).await, Lost::Released);
}

#[test]
fn a_signal_without_async_reports_the_release_to_another_thread() {
    let locks = blocking::Locks::connect("memory:").unwrap();
    let guard = locks.mutex("x").lock().unwrap();
    let loss = guard.loss();
    assert_eq!((loss.is_lost(), loss.reason()), (false, None));
    let other = loss.clone();
    let waiting = std::thread::spawn(move || other.lost());
    guard.release().unwrap();
    assert_eq!(waiting.join().unwrap(), Lost::Released);
    assert_eq!(loss.check(), Err(Lost::Released));
}

#[test]
fn a_loss_is_an_error_of_hold() {
    fn work() -> Result<(), HoldError> {
        Err(Lost::Broken)?
    }
    assert!(matches!(work(), Err(HoldError::Lost(Lost::Broken))));
}
