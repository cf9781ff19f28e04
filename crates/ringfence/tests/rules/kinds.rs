//! Several names at once, plain locks, and inspecting without changing anything.

use std::time::Duration;

use ringfence::admin::LockState;
use ringfence::node::Tier;
use ringfence::{AcquireError, Locks, ReleaseError};

use crate::rules::bench::{Bench, Dice, at_once, foreign, ms};

#[tokio::test]
async fn multi_is_all_or_nothing() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    let b = at_once(one.mutex("b").lock()).await.unwrap();
    let error = at_once(other.multi(["a", "b", "c"]).try_lock())
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    assert!(
        error.to_string().starts_with("`a, b, c` is held by job"),
        "{error}"
    );
    assert_eq!((bench.holding("a"), bench.holding("c")), (0, 0));
    at_once(b.release()).await.unwrap();
    let all = at_once(other.multi(["a", "b", "c"]).try_lock())
        .await
        .unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(bench.held_by(name, &all), 3);
        assert!(at_once(one.mutex(name).try_lock()).await.is_err());
    }
    assert_eq!(all.name(), "a, b, c");
    bench.pass(ms(30_000)).await;
    assert_eq!(all.check(), Ok(()), "all are renewed");
    at_once(all.release()).await.unwrap();
    assert_eq!(
        bench.holding("a") + bench.holding("b") + bench.holding("c"),
        0
    );
}

#[tokio::test]
async fn multi_is_lost_when_one_of_its_names_is_lost() {
    let bench = Bench::new(3).await;
    let all = at_once(bench.client().await.multi(["a", "b"]).lock())
        .await
        .unwrap();
    for node in [0, 1] {
        bench.delete(node, "b", all.token());
        bench.occupy(node, "b", &foreign(1), 60_000);
    }
    bench.pass(ms(3400)).await;
    assert_eq!(all.check(), Err(ringfence::Lost::Gone));
    assert_eq!(at_once(all.release()).await, Err(ReleaseError::Taken));
    assert_eq!(bench.holding("a"), 0, "the other name is released");
}

#[tokio::test]
async fn disjoint_sets_do_not_exclude_each_other() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let _one = at_once(locks.multi(["a", "b"]).lock()).await.unwrap();
    let _other = at_once(locks.multi(["c", "d"]).lock()).await.unwrap();
    assert!(at_once(locks.multi(["d", "e"]).try_lock()).await.is_err());
}

#[tokio::test]
async fn random_sets_never_deadlock_and_never_overlap() {
    use std::sync::{Arc, Mutex};
    let bench = Bench::new(3).await;
    let inside = Arc::new(Mutex::new([None::<usize>; 6]));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20 {
        let locks = bench.client().await;
        let inside = Arc::clone(&inside);
        let clock = ringfence::clock::Clock::Stepped(bench.time.clone());
        tasks.spawn(async move {
            let mut dice = Dice::new(task as u64);
            for _ in 0..4 {
                let mut names: Vec<usize> = (0..6).filter(|_| dice.roll(3) == 0).collect();
                if dice.roll(2) == 0 {
                    names.reverse();
                }
                if names.is_empty() {
                    continue;
                }
                let lock = locks.multi(names.iter().map(|name| format!("n{name}")));
                let guard = lock.ttl(ms(2000)).lock().await.unwrap();
                for &name in &names {
                    let before = inside.lock().unwrap()[name].replace(task);
                    assert_eq!(before, None, "two holders of n{name}");
                }
                clock.sleep_until(clock.now() + ms(dice.roll(20))).await;
                for &name in &names {
                    inside.lock().unwrap()[name] = None;
                }
                guard.release().await.unwrap();
            }
        });
    }
    bench
        .drive(async {
            while let Some(done) = tasks.join_next().await {
                done.unwrap()
            }
        })
        .await;
    assert!((0..6).all(|name| bench.holding(&format!("n{name}")) == 0));
}

#[tokio::test]
async fn plain_and_fenced_locks_exclude_each_other() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    let plain = at_once(one.plain_mutex("x").lock()).await.unwrap();
    let error = at_once(other.mutex("x").try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    assert!(at_once(other.plain_mutex("x").try_lock()).await.is_err());
    bench.pass(ms(30_000)).await;
    assert_eq!(plain.check(), Ok(()), "renewed");
    at_once(plain.extend(ms(20_000))).await.unwrap();
    at_once(plain.release()).await.unwrap();
    assert!(
        bench.nodes[0].entries().is_empty(),
        "it leaves no side record"
    );

    let fenced = at_once(other.mutex("x").lock()).await.unwrap();
    assert!(at_once(one.plain_mutex("x").try_lock()).await.is_err());
    at_once(fenced.release()).await.unwrap();
    let plain = at_once(one.plain_mutex("x").renew(false).lock())
        .await
        .unwrap();
    bench.time.step(ms(10_001));
    assert_eq!(at_once(plain.release()).await, Err(ReleaseError::Expired));
}

#[tokio::test]
async fn a_dropped_or_failed_plain_lock_leaves_no_key() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    drop(at_once(locks.plain_mutex("x").lock()).await.unwrap());
    assert_eq!(bench.holding("x"), 0);
    bench.break_first(2);
    assert!(
        at_once(locks.plain_mutex("x").attempts(1).lock())
            .await
            .is_err()
    );
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn inspect_shows_the_view_of_a_majority_and_changes_nothing() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let free = at_once(locks.inspect("x")).await.unwrap();
    assert!(
        free.state == LockState::Free
            && free.label.is_none()
            && free.fence.is_none()
            && free.remaining.is_none()
    );
    let guard = at_once(locks.mutex("x").label("nightly").renew(false).lock())
        .await
        .unwrap();
    bench.delete(0, "x", guard.token());
    bench.nodes[0].fail_with(None);
    bench.time.step(ms(4000));
    let before: Vec<_> = bench.nodes.iter().map(|node| node.entries()).collect();
    let seen = at_once(bench.client().await.inspect("x")).await.unwrap();
    assert!(seen.is_held());
    assert_eq!(
        (seen.name.as_str(), seen.label.as_deref()),
        ("x", Some("nightly"))
    );
    assert_eq!(seen.fence, Some(guard.fence()));
    assert_eq!(seen.holder_id.as_deref(), Some(guard.token().id()));
    assert_eq!(seen.remaining, Some(ms(6000)));
    let holders = seen
        .nodes
        .iter()
        .map(|node| node.view.as_ref().unwrap().holder.is_some());
    assert_eq!(holders.collect::<Vec<_>>(), [false, true, true]);
    let after: Vec<_> = bench.nodes.iter().map(|node| node.entries()).collect();
    assert_eq!(before, after);
    bench.delete(1, "x", guard.token());
    assert!(
        !at_once(locks.inspect("x")).await.unwrap().is_held(),
        "one of three nodes is not a majority"
    );
}

#[tokio::test]
async fn inspect_waits_for_a_hung_minority_only_until_its_timeout() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let _guard = at_once(locks.mutex("x").lock()).await.unwrap();
    bench.nodes[1].hang(true);
    let seen = bench.drive(locks.inspect("x")).await.unwrap();
    assert!(seen.is_held() && seen.nodes[1].view.is_err());
}

#[tokio::test]
async fn nodes_reports_tier_quarantine_and_errors_of_each_node() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    assert_eq!(locks.node_names(), ["a", "b", "c"]);
    bench.nodes[1].forget();
    bench.nodes[2].fail_with(Some(crate::rules::bench::unreachable()));
    let nodes = at_once(locks.nodes()).await;
    let names: Vec<&str> = nodes.iter().map(|node| &*node.node).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let healthy = nodes[0].facts.as_ref().unwrap();
    assert_eq!(
        (healthy.tier, nodes[0].quarantine),
        (Tier::Quarantined, None)
    );
    assert_eq!(healthy.group.unwrap().nodes, 3);
    let left = nodes[1].quarantine.unwrap();
    assert!(
        left > Duration::from_secs(35) && left < Duration::from_secs(37),
        "{left:?}"
    );
    assert!(nodes[2].facts.is_err());
}

#[tokio::test]
async fn clones_share_one_client_and_are_send_and_sync() {
    fn shareable<T: Send + Sync + Clone>(_: &T) {}
    let bench = Bench::new(3).await;
    let locks: Locks = bench.client().await;
    shareable(&locks);
    let guard = at_once(locks.clone().mutex("x").lock()).await.unwrap();
    drop(locks);
    bench.pass(ms(30_000)).await;
    assert_eq!(guard.check(), Ok(()), "a guard keeps its client alive");
}
