//! Rule 5 and G6: nothing of a lost attempt remains on a node, whatever happens to the caller.

use std::pin::pin;
use std::task::Poll;

use ringfence::clock::Clock;
use ringfence::node::memory::MemoryNode;
use ringfence::{AcquireError, Builder, Locks};
use ringfence_core::message::Op;
use ringfence_core::name::Name;

use crate::rules::bench::{Bench, at_once, idle, ms, poll_once, unreachable, waits};
use crate::rules::delaying_node::DelayingNode;

/// What a node does while the future is polled that will be dropped.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Answers,
    HoldsReplies,
    Hangs,
}

const FAULTS: [Fault; 3] = [Fault::Answers, Fault::HoldsReplies, Fault::Hangs];

/// Polls a `lock()` `polls` times with the nodes in `faults`, drops it, ends the faults, and
/// returns how many keys remain. `None` if the future was ready before it could be dropped.
async fn left_behind(faults: [Fault; 3], polls: usize, held: bool) -> Option<usize> {
    let bench = Bench::new(3).await;
    let holder = bench.client().await;
    let locks = bench.client().await;
    let guard = match held {
        true => Some(at_once(holder.mutex("x").lock()).await.unwrap()),
        false => None,
    };
    for (node, fault) in bench.nodes.iter().zip(faults) {
        node.hold_replies(matches!(fault, Fault::HoldsReplies));
        node.hang(matches!(fault, Fault::Hangs));
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
async fn rule_5_dropping_a_waiting_future_removes_its_ticket_from_the_queue() {
    let bench = Bench::new(3).await;
    let _guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    let name = Name::new("", "x").unwrap();
    let in_queue = |node: &MemoryNode| node.entry(&name).queue.entries.len();
    {
        let lock = locks.mutex("x");
        let mut locking = pin!(lock.lock());
        for _ in 0..4 {
            assert!(waits(locking.as_mut()).await);
        }
        assert!(bench.nodes.iter().all(|node| in_queue(node) == 1));
    }
    idle().await;
    assert!(bench.nodes.iter().all(|node| in_queue(node) == 0));
}

#[tokio::test]
async fn rule_5_dropping_the_future_at_any_await_leaves_nothing() {
    let mut dropped_while_waiting = 0;
    for held in [false, true] {
        for a in FAULTS {
            for b in FAULTS {
                for c in FAULTS {
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

async fn behind_delaying_nodes(bench: &Bench) -> (Locks, Vec<DelayingNode>) {
    let delaying: Vec<DelayingNode> = bench.nodes.iter().map(DelayingNode::before).collect();
    let builder = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let builder = delaying.iter().cloned().fold(builder, Builder::node);
    (builder.connect().await.unwrap(), delaying)
}

/// Two of three nodes reply that the lock is held; the third answers after the verdict. A node that
/// granted nothing receives no undo.
#[tokio::test]
async fn rule_5_a_node_that_reports_held_after_the_verdict_receives_no_undo() {
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

/// The same, but the third node has granted. The undo waits for its reply, but only for a moment.
#[tokio::test]
async fn rule_5_a_grant_after_the_verdict_is_undone_with_or_without_its_reply() {
    for replies in [true, false] {
        let bench = Bench::new(3).await;
        let holder = bench.client().await;
        let guard = at_once(holder.mutex("x").lock()).await.unwrap();
        let locks = bench.client().await;
        let (one, two) = (locks.mutex("x"), locks.mutex("x"));
        let (mut first, mut second) = (pin!(one.lock()), pin!(two.lock()));
        bench.nodes[2].fail_with(Some(unreachable()));
        assert!(
            waits(first.as_mut()).await,
            "in the queue of the others only"
        );
        bench.nodes[2].fail_with(None);
        bench.delete(2, "x", guard.token());
        bench.nodes[2].hold_replies(true);
        assert!(waits(second.as_mut()).await);
        assert_eq!(bench.holding("x"), 3, "the third has granted");
        if replies {
            bench.nodes[2].hold_replies(false);
        } else {
            bench.time.step(ms(2));
        }
        assert!(waits(second.as_mut()).await);
        idle().await;
        assert_eq!(bench.holding("x"), 2, "replies: {replies}");
    }
}

#[tokio::test]
async fn rule_5_an_acquire_that_arrives_after_its_undo_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, delaying) = behind_delaying_nodes(&bench).await;
    delaying.iter().for_each(DelayingNode::keep_acquires);
    let error = bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    bench.log_operations();
    delaying.iter().for_each(DelayingNode::deliver);
    assert_eq!(bench.count(|op| matches!(op, Op::Acquire { .. })), [1; 3]);
    assert_eq!(bench.holding("x"), 0);
    // And the name is free for other clients.
    drop(
        at_once(bench.client().await.mutex("x").lock())
            .await
            .unwrap(),
    );
}

/// How many acquires and releases each node was asked for since the last count.
fn asked(bench: &Bench) -> [Vec<usize>; 2] {
    let counts = bench.nodes.iter().map(|node| {
        let ops = node.take_operations();
        let count =
            |wanted: fn(&Op) -> bool| ops.iter().filter(|op| wanted(&op.request.op)).count();
        let acquires = count(|op| matches!(op, Op::Acquire(_)));
        (acquires, count(|op| matches!(op, Op::Release(_))))
    });
    let (acquires, releases) = counts.unzip();
    [acquires, releases]
}

#[tokio::test]
async fn rule_5_what_was_not_sent_when_its_caller_gave_up_is_neither_sent_nor_undone() {
    let bench = Bench::new(3).await;
    let (locks, delaying) = behind_delaying_nodes(&bench).await;
    bench.log_operations();
    for node in &delaying[1..] {
        node.queue_all();
    }
    {
        let lock = locks.mutex("x");
        let mut locking = pin!(lock.lock());
        assert!(waits(locking.as_mut()).await);
    }
    delaying.iter().for_each(DelayingNode::deliver);
    idle().await;
    assert_eq!(asked(&bench), [[1, 0, 0], [1, 0, 0]]);
    assert_eq!(bench.holding("x"), 0);
    // The nodes have not failed, so the next caller waits for none of them in vain.
    drop(at_once(locks.mutex("x").lock()).await.unwrap());
    let stats = locks.stats();
    assert!(stats.nodes.iter().all(|node| node.failed == 0), "{stats:?}");
    bench.pass(ms(20_000)).await;
    at_once(locks.close()).await;
}

/// The second attempt reached no queue of the third node, but the first one did.
#[tokio::test]
async fn rule_5_the_ticket_of_an_earlier_attempt_is_withdrawn_where_the_last_was_not_sent() {
    let bench = Bench::new(3).await;
    let guard = at_once(bench.client().await.mutex("x").lock())
        .await
        .unwrap();
    let (locks, delaying) = behind_delaying_nodes(&bench).await;
    let name = Name::new("", "x").unwrap();
    let queues = || {
        let length = |node: &MemoryNode| node.entry(&name).queue.entries.len();
        bench.nodes.iter().map(length).collect::<Vec<_>>()
    };
    {
        let lock = locks.mutex("x");
        let mut locking = pin!(lock.lock());
        for _ in 0..4 {
            assert!(waits(locking.as_mut()).await);
        }
        assert_eq!(queues(), [1; 3]);
        bench.log_operations();
        delaying[1].queue_all();
        delaying[2].queue_all();
        // The release wakes the waiter.
        at_once(guard.release()).await.unwrap();
        assert!(waits(locking.as_mut()).await);
        assert_eq!((delaying[1].kept(), delaying[2].kept()), (1, 1));
    }
    delaying.iter().for_each(DelayingNode::deliver);
    idle().await;
    // The release of the holder is among them.
    assert_eq!(asked(&bench), [[1, 0, 0], [2, 2, 2]]);
    assert_eq!(queues(), [0; 3]);
    assert_eq!(bench.holding("x"), 0);
}

/// Callers that give up at once, while the nodes answer nothing: only a few of them ask.
#[tokio::test]
async fn rule_5_callers_that_give_up_send_no_more_than_the_nodes_answer() {
    let bench = Bench::new(3).await;
    let (locks, delaying) = behind_delaying_nodes(&bench).await;
    let before: Vec<usize> = delaying.iter().map(DelayingNode::calls).collect();
    delaying.iter().for_each(DelayingNode::queue_all);
    for _ in 0..1_000 {
        let lock = locks.mutex("x");
        let mut locking = pin!(lock.lock());
        assert!(waits(locking.as_mut()).await);
    }
    for (node, before) in delaying.iter().zip(before) {
        assert!(node.calls() - before <= 2 * 4, "{} calls", node.calls());
    }
    // Callers of another name are not concerned.
    let others: Vec<_> = (0..20).map(|_| locks.mutex("y")).collect();
    let mut others: Vec<_> = others.iter().map(|lock| Box::pin(lock.lock())).collect();
    let before = delaying[0].calls();
    for other in &mut others {
        assert!(waits(other.as_mut()).await);
    }
    assert_eq!(delaying[0].calls() - before, 20);
    delaying.iter().for_each(DelayingNode::deliver);
    drop(others);
    idle().await;
    assert_eq!(bench.holding("x") + bench.holding("y"), 0);
    drop(at_once(locks.mutex("x").lock()).await.unwrap());
}

#[tokio::test]
async fn rule_5_an_acquire_that_arrives_after_the_release_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, delaying) = behind_delaying_nodes(&bench).await;
    delaying[2].keep_acquires();
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    at_once(guard.release()).await.unwrap();
    delaying[2].deliver();
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
    // The nodes executed the undo, too, but the client does not know that.
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
    assert_eq!(bench.count(|_| true), [0; 3], "an acknowledged undo ends");
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
    assert_eq!(bench.holding("x"), 3, "no node could be reached");
    bench.mend();
    bench.pass(ms(1100)).await;
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_5_own_partial_votes_do_not_block_own_retries() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    // Two nodes set the key, but the client receives no reply, and their undos fail, too.
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
    assert_eq!(bench.held_by("x", &guard), 3, "and no late undo removes it");
}

async fn bench_time(bench: &Bench, span_ms: u64) {
    let until = bench.time.now() + ms(span_ms);
    Clock::Stepped(bench.time.clone()).sleep_until(until).await;
}

/// A restore that reaches a node does not prove that the acquire has reached it.
#[tokio::test]
async fn rule_5_an_acquire_that_arrives_after_a_restore_and_the_release_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, delaying) = behind_delaying_nodes(&bench).await;
    delaying[2].keep_acquires();
    delaying[2].keep_restores(true);
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    at_once(guard.extend(ms(10_000))).await.unwrap();
    assert_eq!(delaying[2].kept(), 2, "the acquire and a restore");
    at_once(guard.release()).await.unwrap();
    delaying[2].deliver();
    assert_eq!(bench.keys("x"), [None, None, None]);
}

/// The first restore is overtaken by the next round, by that round's restore and by the release.
#[tokio::test]
async fn a_restore_of_a_reader_that_arrives_after_its_release_is_refused() {
    let bench = Bench::new(3).await;
    let (locks, delaying) = behind_delaying_nodes(&bench).await;
    let lock = locks.rw_lock("x").renew(false);
    let reader = at_once(lock.read()).await.unwrap();
    bench.unshare(2, "x", &reader);
    delaying[2].keep_restores(true);
    at_once(reader.extend(ms(10_000))).await.unwrap();
    assert_eq!(delaying[2].kept(), 1);
    delaying[2].keep_restores(false);
    at_once(reader.extend(ms(10_000))).await.unwrap();
    assert_eq!(bench.holding("x"), 3, "restored by the second round");
    at_once(reader.extend(ms(10_000))).await.unwrap();
    at_once(reader.release()).await.unwrap();
    delaying[2].deliver();
    assert_eq!(bench.keys("x"), [None, None, None]);
    drop(at_once(lock.try_write()).await.unwrap());
}
