//! A lock that an operator breaks.

use std::pin::pin;

use ringfence::Lost;

use ringfence::admin::BreakError;
use ringfence_core::protocol::Vote;

use super::bench::*;

#[tokio::test]
async fn a_broken_holder_learns_it_at_its_next_renewal_with_the_reason() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    let operator = bench.client().await;
    let hold = operator
        .break_lock("x")
        .by("olga")
        .reason("host-7 burnt down");
    let broken = at_once(hold.run()).await.unwrap();
    assert!(broken.fence > guard.fence());
    assert_eq!(broken.holders, 1);
    assert_eq!(guard.check(), Ok(()), "nothing stops it before that");
    bench.pass(ms(10_000)).await;
    assert_eq!(guard.check(), Err(Lost::Broken));
    let votes = guard.votes();
    let Vote::Broken(note) = &votes[0].vote else {
        panic!("{votes}");
    };
    assert_eq!(note.to_string(), "broken by olga: host-7 burnt down");
    assert_eq!(bench.holding("x"), 0, "and it is not restored");
    let next = bench.lock_x().await;
    assert!(next.fence() > broken.fence);
}

#[tokio::test]
async fn a_waiter_gets_a_broken_lock() {
    let bench = Bench::new(5).await;
    let dead = bench.lock_x_with(|lock| lock.renew(false)).await;
    let other = bench.client().await;
    let mutex = other.mutex("x");
    let mut waiting = pin!(mutex.lock());
    assert!(waits(waiting.as_mut()).await);
    bench.break_first(2);
    let broken = bench.drive(other.break_lock("x").run()).await.unwrap();
    let guard = bench.drive(waiting).await.unwrap();
    assert!(dead.fence() < broken.fence && broken.fence < guard.fence());
}

#[tokio::test]
async fn a_lock_that_changed_hands_is_not_broken() {
    let bench = Bench::new(3).await;
    let first = bench.lock_x().await;
    let seen = first.fence();
    at_once(first.release()).await.unwrap();
    let locks = bench.client().await;
    let free = at_once(locks.break_lock("x").run()).await;
    assert!(matches!(free, Err(BreakError::Free { .. })), "{free:?}");
    let second = bench.lock_x().await;
    let changed = at_once(locks.break_lock("x").seen(seen).run()).await;
    assert!(
        matches!(changed, Err(BreakError::Changed { .. })),
        "{changed:?}"
    );
    at_once(second.extend(ms(10_000))).await.unwrap();
    at_once(locks.break_lock("x").seen(second.fence()).run())
        .await
        .unwrap();
}

#[tokio::test]
async fn without_a_majority_nothing_is_reported_as_broken() {
    let bench = Bench::new(3).await;
    let _guard = bench.lock_x().await;
    let locks = bench.client().await;
    bench.break_first(2);
    let failed = bench.drive(locks.break_lock("x").run()).await;
    let Err(BreakError::NoQuorum { votes, .. }) = failed else {
        panic!("{failed:?}");
    };
    assert!(matches!(votes[0].vote, Vote::Failed(_)), "{votes}");
    assert!(!matches!(votes[2].vote, Vote::Failed(_)), "{votes}");
}

#[tokio::test]
async fn readers_are_broken_one_by_one_or_all() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.rw_lock("x");
    let (one, other) = (
        at_once(lock.read()).await.unwrap(),
        at_once(lock.read()).await.unwrap(),
    );
    let only = locks.break_lock("x").reader(one.token().id(), one.fence());
    assert_eq!(at_once(only.run()).await.unwrap().holders, 1);
    at_once(other.extend(ms(10_000))).await.unwrap();
    assert!(at_once(one.extend(ms(10_000))).await.is_err());
    assert_eq!(one.check(), Err(Lost::Broken));
    at_once(locks.break_lock("x").run()).await.unwrap();
    assert!(at_once(other.extend(ms(10_000))).await.is_err());
    assert_eq!(bench.holding("x"), 0);
}
