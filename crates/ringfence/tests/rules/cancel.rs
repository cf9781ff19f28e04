//! Rule 5 and G6: whatever becomes of the caller, nothing of a lost attempt stays behind.

use std::pin::pin;
use std::task::Poll;

use ringfence::clock::Clock;
use ringfence::node::memory::MemoryNode;
use ringfence::{AcquireError, Builder, Locks};
use ringfence_core::message::Op;
use ringfence_core::name::Name;

use crate::bench::{Bench, at_once, idle, ms, poll_once, unreachable, waits};
use crate::postman::Postman;

/// What a node does while the future that is to be dropped is polled.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Answers,
    HoldsReplies,
    Hangs,
}

const MOODS: [Mood; 3] = [Mood::Answers, Mood::HoldsReplies, Mood::Hangs];

/// Polls a `lock()` `polls` times with the nodes in `moods`, drops it, lets the nodes go on, and
/// tells how many keys are left. `None` once the future was done before.
async fn left_behind(moods: [Mood; 3], polls: usize, held: bool) -> Option<usize> {
    let bench = Bench::new(3).await;
    let holder = bench.client().await;
    let locks = bench.client().await;
    let guard = match held {
        true => Some(at_once(holder.mutex("x").lock()).await.unwrap()),
        false => None,
    };
    for (node, mood) in bench.nodes.iter().zip(moods) {
        node.hold_replies(matches!(mood, Mood::HoldsReplies));
        node.hang(matches!(mood, Mood::Hangs));
    }
    let mut done = false;
    {
        let lock = locks.mutex("x").ttl(ms(200)).wait(ms(2000));
        let mut locking = pin!(lock.lock());
        for _ in 0..polls {
            if let Poll::Ready(outcome) = poll_once(locking.as_mut()).await {
                drop(outcome);
                done = true;
                break;
            }
            idle().await;
            bench.time.step(ms(7));
        }
    }
    bench.mend();
    bench.pass(ms(100)).await;
    let ours = match &guard {
        Some(guard) => bench.holding("x") - bench.held_by("x", guard),
        None => bench.holding("x"),
    };
    (!done).then_some(ours)
}

#[tokio::test]
async fn rule_5_dropping_a_waiting_future_gives_up_its_place_in_line() {
    let bench = Bench::new(3).await;
    let _guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    let name = Name::new("", "x").unwrap();
    let in_line = |node: &MemoryNode| node.entry(&name).line.tickets.len();
    {
        let lock = locks.mutex("x");
        let mut locking = pin!(lock.lock());
        for _ in 0..4 {
            assert!(waits(locking.as_mut()).await);
        }
        assert!(bench.nodes.iter().all(|node| in_line(node) == 1));
    }
    idle().await;
    assert!(bench.nodes.iter().all(|node| in_line(node) == 0));
}

#[tokio::test]
async fn rule_5_dropping_the_future_at_any_await_leaves_nothing() {
    let mut dropped_while_waiting = 0;
    for held in [false, true] {
        for a in MOODS {
            for b in MOODS {
                for c in MOODS {
                    for polls in 0..14 {
                        let Some(left) = left_behind([a, b, c], polls, held).await else {
                            break;
                        };
                        assert_eq!(left, 0, "{:?}, {polls} polls, held: {held}", [a, b, c]);
                        dropped_while_waiting += usize::from(polls > 0);
                    }
                }
            }
        }
    }
    assert!(dropped_while_waiting > 200, "only {dropped_while_waiting}");
}

#[tokio::test]
async fn g6_a_cancelled_task_leaves_nothing() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let task = tokio::spawn(async move { locks.mutex("x").lock().await });
    idle().await;
    assert_eq!(bench.holding("x"), 3);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    bench.mend();
    idle().await;
    assert_eq!(bench.holding("x"), 0);
}

async fn behind_postmen(bench: &Bench) -> (Locks, Vec<Postman>) {
    let postmen: Vec<Postman> = bench.nodes.iter().map(Postman::before).collect();
    let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let builder = postmen.iter().cloned().fold(builder, Builder::node);
    (builder.connect().await.unwrap(), postmen)
}

/// Two of three nodes say that the lock is held; the third answers after that. Whoever has nothing of
/// ours is not asked to give it back.
#[tokio::test]
async fn rule_5_a_node_that_says_held_after_the_verdict_is_told_no_undo() {
    let bench = Bench::new(3).await;
    let holder = bench.client().await;
    let _guard = at_once(holder.mutex("x").lock()).await.unwrap();
    let locks = bench.client().await;
    let (one, two) = (locks.mutex("x"), locks.mutex("x"));
    let (mut first, mut second) = (pin!(one.lock()), pin!(two.lock()));
    assert!(waits(first.as_mut()).await);
    bench.log_operations();
    bench.nodes[2].hold_replies(true);
    assert!(waits(second.as_mut()).await);
    bench.nodes[2].hold_replies(false);
    assert!(waits(second.as_mut()).await);
    bench.pass(ms(100)).await;
    assert!(waits(second.as_mut()).await);
    let undone = |op: &Op| matches!(op, Op::Release { .. });
    assert_eq!(bench.count(undone), [0; 3]);
}

/// The same, but the third has granted. Its answer is waited for, and not for long.
#[tokio::test]
async fn rule_5_a_node_that_grants_after_the_verdict_is_undone_whether_it_says_so_or_not() {
    for says_so in [true, false] {
        let bench = Bench::new(3).await;
        let holder = bench.client().await;
        let guard = at_once(holder.mutex("x").lock()).await.unwrap();
        let locks = bench.client().await;
        let (one, two) = (locks.mutex("x"), locks.mutex("x"));
        let (mut first, mut second) = (pin!(one.lock()), pin!(two.lock()));
        bench.nodes[2].fail_with(Some(unreachable()));
        assert!(waits(first.as_mut()).await, "in line on the others only");
        bench.nodes[2].fail_with(None);
        bench.delete(2, "x", guard.token());
        bench.nodes[2].hold_replies(true);
        assert!(waits(second.as_mut()).await);
        assert_eq!(bench.holding("x"), 3, "the third has granted");
        if says_so {
            bench.nodes[2].hold_replies(false);
        } else {
            bench.time.step(ms(2));
        }
        assert!(waits(second.as_mut()).await);
        idle().await;
        assert_eq!(bench.holding("x"), 2, "says so: {says_so}");
    }
}

#[tokio::test]
async fn rule_5_an_acquire_that_arrives_after_its_undo_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, postmen) = behind_postmen(&bench).await;
    postmen.iter().for_each(Postman::keep_acquires);
    let error = bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    bench.log_operations();
    postmen.iter().for_each(Postman::deliver);
    assert_eq!(bench.count(|op| matches!(op, Op::Acquire { .. })), [1; 3]);
    assert_eq!(bench.holding("x"), 0);
    // And it stands in nobody's way.
    drop(
        at_once(bench.client().await.mutex("x").lock())
            .await
            .unwrap(),
    );
}

#[tokio::test]
async fn rule_5_an_acquire_that_arrives_after_the_release_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, postmen) = behind_postmen(&bench).await;
    postmen[2].keep_acquires();
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    at_once(guard.release()).await.unwrap();
    postmen[2].deliver();
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_5_an_undo_is_retried_until_it_is_acknowledged() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes.iter().for_each(|node| node.lose_replies(true));
    let error = at_once(locks.mutex("x").attempts(1).lock())
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    // The undo was carried out too, but nobody knows.
    bench.log_operations();
    bench.pass(ms(3000)).await;
    let tries = bench.count(|op| matches!(op, Op::Release { .. }));
    assert!(
        tries.iter().all(|&tries| (3..20).contains(&tries)),
        "{tries:?}"
    );
    bench.mend();
    bench.pass(ms(1100)).await;
    assert_eq!(bench.count(|op| matches!(op, Op::Release { .. })), [1; 3]);
    bench.pass(ms(5000)).await;
    assert_eq!(bench.count(|_| true), [0; 3], "acknowledged is over");
}

#[tokio::test]
async fn rule_5_an_undo_that_could_not_be_sent_is_sent_later() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    {
        let lock = locks.mutex("x");
        let mut locking = pin!(lock.lock());
        assert!(waits(locking.as_mut()).await);
        assert_eq!(bench.holding("x"), 3);
        bench.break_first(3);
    }
    bench.pass(ms(4000)).await;
    assert_eq!(bench.holding("x"), 3, "nobody could be told");
    bench.mend();
    bench.pass(ms(1100)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_5_own_partial_votes_do_not_block_own_retries() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    // Two set the key but nobody hears of it, and undoing it does not work either.
    bench.nodes[0].lose_replies(true);
    bench.nodes[1].hold_replies(true);
    let lock = locks.mutex("x");
    let mut locking = pin!(lock.lock());
    bench
        .drive(async {
            tokio::select! {
                _ = locking.as_mut() => panic!("two of three do not answer"),
                () = bench_time(&bench, 1500) => {}
            }
        })
        .await;
    bench.mend();
    let start = bench.time.now();
    let guard = bench.drive(locking).await.unwrap();
    assert!(
        bench.time.now().since(start) <= ms(1000),
        "not after the TTL"
    );
    bench.pass(ms(1000)).await;
    assert_eq!(
        bench.held_by("x", &guard),
        3,
        "and no late undo takes it away"
    );
}

async fn bench_time(bench: &Bench, span_ms: u64) {
    let until = bench.time.now() + ms(span_ms);
    Clock::Stepped(bench.time.clone()).sleep_until(until).await;
}

/// A restore to the same node does not mean that the acquire has arrived there.
#[tokio::test]
async fn rule_5_an_acquire_that_arrives_after_a_restore_and_the_release_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, postmen) = behind_postmen(&bench).await;
    postmen[2].keep_acquires();
    postmen[2].keep_restores(true);
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    at_once(guard.extend(ms(10_000))).await.unwrap();
    assert_eq!(postmen[2].kept(), 2, "the acquire and a restore");
    at_once(guard.release()).await.unwrap();
    postmen[2].deliver();
    assert_eq!(bench.keys("x"), [None, None, None]);
}

/// The first restore is overtaken by the next round, by its restore and by the release.
#[tokio::test]
async fn a_restore_of_a_reader_that_arrives_after_its_release_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, postmen) = behind_postmen(&bench).await;
    let lock = locks.rw_lock("x").renew(false);
    let reader = at_once(lock.read()).await.unwrap();
    bench.unshare(2, "x", &reader);
    postmen[2].keep_restores(true);
    at_once(reader.extend(ms(10_000))).await.unwrap();
    assert_eq!(postmen[2].kept(), 1);
    postmen[2].keep_restores(false);
    at_once(reader.extend(ms(10_000))).await.unwrap();
    assert_eq!(bench.holding("x"), 3, "put back by the second round");
    at_once(reader.extend(ms(10_000))).await.unwrap();
    at_once(reader.release()).await.unwrap();
    postmen[2].deliver();
    assert_eq!(bench.keys("x"), [None, None, None]);
    drop(at_once(lock.try_write()).await.unwrap());
}
