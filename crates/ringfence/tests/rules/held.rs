//! `Held`: one trait for the guards of all kinds.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::time::Duration;

use ringfence::{
    Guard, Held, HeldExt, Leadership, Locks, Lost, PlainGuard, ReadGuard, SemaphoreGuard,
};

use crate::rules::bench::{Bench, at_once, ms, waits};

/// One guard of each kind, each with a name of its own.
async fn one_of_each(locks: &Locks) -> Vec<Box<dyn Held>> {
    vec![
        Box::new(at_once(locks.mutex("mutex").lock()).await.unwrap()),
        Box::new(at_once(locks.rw_lock("read").read()).await.unwrap()),
        Box::new(at_once(locks.plain_mutex("plain").lock()).await.unwrap()),
        Box::new(
            at_once(locks.semaphore("permit", 2).acquire())
                .await
                .unwrap(),
        ),
        Box::new(at_once(locks.election("lead").campaign()).await.unwrap()),
    ]
}

#[tokio::test]
async fn every_guard_is_used_through_a_trait_object() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guards = one_of_each(&locks).await;
    let look = |guard: &dyn Held| (guard.name().to_owned(), guard.fence().is_some());
    let seen: Vec<_> = guards.iter().map(|guard| look(guard.as_ref())).collect();
    let expected = [
        ("mutex", true),
        ("read", true),
        ("plain", false),
        ("permit", true),
        ("lead", true),
    ];
    assert_eq!(seen, expected.map(|(name, fence)| (name.to_owned(), fence)));
    for guard in guards {
        assert_eq!(guard.check(), Ok(()));
        assert_eq!(guard.votes().len(), 3);
        assert_eq!(guard.durability(), ringfence::Tier::Quarantined);
        at_once(guard.extend(ms(20_000))).await.unwrap();
        assert!(guard.remaining() > ms(19_000), "{guard:?}");
        assert_eq!(guard.exact_deadline(), bench.time.now() + guard.remaining());
        assert_eq!(at_once(guard.run(async { 7 })).await, Ok(7));
        at_once(guard.release()).await.unwrap();
    }
    for name in ["mutex", "read", "plain", "lead"] {
        assert_eq!(bench.holding(name), 0, "{name}");
    }
}

#[tokio::test]
async fn a_trait_object_reports_its_loss() {
    let bench = Bench::new(3).await;
    let guards = one_of_each(&bench.client().await).await;
    bench.break_first(3);
    for guard in guards {
        let mut lost = guard.lost();
        bench.drive(&mut lost).await;
        drop(lost);
        assert_eq!(guard.check(), Err(Lost::Expired), "{guard:?}");
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert_eq!(at_once(guard.run(async {})).await, Err(Lost::Expired));
        assert!(bench.drive(guard.release()).await.is_err());
    }
}

/// Work that knows nothing of the kind. It is checked here that its future is `Send`.
async fn count_under<H: Held>(guard: H, to: u32) -> Result<u32, Lost> {
    let counted = guard
        .run(async {
            for _ in 0..to {
                tokio::task::yield_now().await;
            }
            to
        })
        .await?;
    guard.check()?;
    let released = Box::new(guard).release().await;
    assert_eq!(released, Ok(()));
    Ok(counted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_generic_over_held_runs_in_a_spawned_task() {
    let locks = Locks::connect("memory:generic").await.unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();
    let permit = locks.semaphore("b", 2).acquire().await.unwrap();
    let lead = locks.election("c").campaign().await.unwrap();
    let tasks = [
        tokio::spawn(count_under(guard, 3)),
        tokio::spawn(count_under(permit, 4)),
        tokio::spawn(count_under(lead, 5)),
    ];
    let mut counted = Vec::new();
    for task in tasks {
        counted.push(task.await.unwrap());
    }
    assert_eq!(counted, [Ok(3), Ok(4), Ok(5)]);
}

/// Notes that it was dropped.
struct Dropped<'a>(&'a Cell<bool>);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[tokio::test]
async fn run_drops_the_work_when_the_lock_is_lost() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    let dropped = Cell::new(false);
    let work = async {
        let _dropped = Dropped(&dropped);
        std::future::pending::<()>().await;
    };
    let mut running = pin!(guard.run(work));
    assert!(waits(running.as_mut()).await);
    bench.time.step(guard.remaining() - ms(1));
    assert!(waits(running.as_mut()).await && !dropped.get());
    bench.time.step(ms(1));
    assert_eq!(at_once(running).await, Err(Lost::Expired));
    assert!(dropped.get());
}

#[tokio::test]
async fn run_returns_the_result_and_keeps_the_lock() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    assert_eq!(at_once(guard.run(async { "done" })).await, Ok("done"));
    assert_eq!(bench.held_by("x", &guard), 3);
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "what a user compares a deadline with"
)]
async fn a_deadline_is_comparable_with_the_clock_that_users_have() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    let (before, remaining) = (std::time::Instant::now(), guard.remaining());
    let deadline = guard.deadline();
    let after = std::time::Instant::now();
    assert!(before + remaining <= deadline && deadline <= after + remaining);
    // Timers of tokio take it, too.
    let sleep = tokio::time::sleep_until(deadline.into());
    assert_eq!(sleep.deadline().into_std(), deadline);
    bench.time.step(remaining + ms(100));
    assert!(
        guard.deadline() < std::time::Instant::now(),
        "it has passed"
    );
}

#[test]
fn guards_are_unwind_safe() {
    fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe + Send + Sync>() {}
    is_unwind_safe::<Guard>();
    is_unwind_safe::<ReadGuard>();
    is_unwind_safe::<PlainGuard>();
    is_unwind_safe::<SemaphoreGuard>();
    is_unwind_safe::<Leadership>();
}

#[tokio::test]
async fn a_panic_under_a_lock_releases_it() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    let work = move || -> () {
        assert!(guard.check().is_ok());
        panic!("the work failed");
    };
    std::panic::catch_unwind(work).unwrap_err();
    assert_eq!(bench.holding("x"), 0);
}
