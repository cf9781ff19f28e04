//! A ticket does not remain after its use: a grant removes it from the queue of every node.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};

use ringfence::node::memory::MemoryNode;
use ringfence::node::{Hear, Node};
use ringfence::{AcquireError, Guard, Locks};
use ringfence_core::message::{Op, Wake};
use ringfence_core::name::Name;

use crate::rules::bench::{Bench, at_once, idle, ms, unreachable, waits};
use crate::rules::wrapper::delegate;

/// The number of tickets in the queue of `name`, node by node.
fn in_queue(bench: &Bench, name: &str) -> Vec<usize> {
    let name = Name::new("", name).unwrap();
    let length = |node: &MemoryNode| node.entry(&name).queue.entries.len();
    bench.nodes.iter().map(length).collect()
}

/// An acquisition that waits.
type Waiting = Pin<Box<dyn Future<Output = Result<Guard, AcquireError>>>>;

/// `x` is held, and another client waits in the queue of every node.
async fn held_and_waited_for(bench: &Bench) -> (Guard, Waiting) {
    let guard = bench.lock_x().await;
    let other = bench.client().await;
    let mut waiting: Waiting = Box::pin(async move { other.mutex("x").lock().await });
    assert!(waits(waiting.as_mut()).await);
    assert_eq!(in_queue(bench, "x"), [1; 3]);
    (guard, waiting)
}

#[tokio::test]
async fn after_a_grant_the_ticket_is_out_of_every_queue() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let (guard, waiting) = held_and_waited_for(&bench).await;
    at_once(guard.release()).await.unwrap();
    let guard = bench.drive(waiting).await.unwrap();
    assert_eq!(in_queue(&bench, "x"), [0; 3]);
    let found = at_once(locks.inspect("x")).await.unwrap();
    assert_eq!(found.waiting, 0);
    // Nor after the next refresh of the queue.
    bench.pass(ms(2_000)).await;
    assert_eq!(in_queue(&bench, "x"), [0; 3]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_writer_that_waited_and_downgrades_lets_readers_in_at_once() {
    let bench = Bench::new(3).await;
    let [one, two, three] = [
        bench.client().await,
        bench.client().await,
        bench.client().await,
    ];
    let guard = bench.lock_x().await;
    let (writing, reading) = (two.rw_lock("x"), three.rw_lock("x"));
    let mut writer = pin!(writing.write());
    assert!(waits(writer.as_mut()).await);
    bench.pass(ms(1)).await;
    let mut reader = pin!(reading.read());
    assert!(waits(reader.as_mut()).await);
    at_once(guard.release()).await.unwrap();
    let writer = bench.drive(writer).await.unwrap();
    let before = bench.time.now();
    let downgraded = at_once(writer.downgrade()).await.unwrap();
    let reader = bench.drive(reader).await.unwrap();
    let took = bench.time.now().since(before);
    assert!(took <= ms(20), "the reader waited {took:?}");
    // A later reader, too.
    let late = at_once(one.rw_lock("x").try_read()).await.unwrap();
    drop((downgraded, reader, late));
}

/// The next client waits for the TTL only, without an extra delay for the ticket of a dead client.
#[tokio::test]
async fn the_lock_of_a_dead_holder_that_had_waited_is_free_after_its_ttl() {
    let bench = Bench::new(3).await;
    let (two, three) = (bench.client().await, bench.client().await);
    let guard = bench.lock_x().await;
    let (short, next) = (two.mutex("x").ttl(ms(200)).renew(false), three.mutex("x"));
    let mut vanishing = pin!(short.lock());
    assert!(waits(vanishing.as_mut()).await);
    at_once(guard.release()).await.unwrap();
    let vanished = bench.drive(vanishing).await.unwrap();
    let before = bench.time.now();
    vanished.leave();
    let mut next = pin!(next.lock());
    assert!(waits(next.as_mut()).await);
    let guard = bench.drive(next).await.unwrap();
    let took = bench.time.now().since(before);
    assert!(took <= ms(250), "the next waited {took:?}");
    drop(guard);
}

#[tokio::test]
async fn a_node_that_failed_in_the_winning_attempt_removes_the_ticket_later() {
    let bench = Bench::new(3).await;
    let (guard, waiting) = held_and_waited_for(&bench).await;
    bench.nodes[2].fail_with(Some(unreachable()));
    drop(guard);
    let guard = bench.drive(waiting).await.unwrap();
    assert_eq!(in_queue(&bench, "x"), [0, 0, 1]);
    bench.mend();
    // Long before the ticket itself expires.
    bench.pass(ms(600)).await;
    assert_eq!(in_queue(&bench, "x"), [0; 3]);
    assert_eq!(guard.check(), Ok(()));
    assert_eq!(bench.held_by("x", &guard), 2);
    drop(guard);
}

/// Only the ticket is removed: where the acquire arrived but its reply was lost, the grant remains.
#[tokio::test]
async fn removing_a_ticket_keeps_the_grant_of_that_node() {
    let bench = Bench::new(3).await;
    let (guard, waiting) = held_and_waited_for(&bench).await;
    drop(guard);
    bench.nodes[2].lose_replies(true);
    let guard = bench.drive(waiting).await.unwrap();
    bench.mend();
    bench.log_operations();
    bench.pass(ms(600)).await;
    let releases = bench.count(|op| matches!(op, Op::Release { .. }));
    assert_eq!(releases, [0, 0, 1], "the third may have the ticket");
    assert_eq!(in_queue(&bench, "x"), [0; 3]);
    assert_eq!(bench.held_by("x", &guard), 3);
    drop(guard);
}

/// A hand-over costs one release and one acquire on each node.
#[tokio::test]
async fn a_hand_over_that_all_nodes_grant_needs_no_further_call() {
    let bench = Bench::new(3).await;
    let clients = [bench.client().await, bench.client().await];
    let mut guard = at_once(clients[0].mutex("x").lock()).await.unwrap();
    for turn in 1..10 {
        let lock = clients[turn % 2].mutex("x");
        let mut waiting = pin!(lock.lock());
        assert!(waits(waiting.as_mut()).await);
        bench.log_operations();
        at_once(guard.release()).await.unwrap();
        guard = bench.drive(waiting).await.unwrap();
        idle().await;
        assert_eq!(bench.count(|_| true), [2; 3], "turn {turn}");
    }
    drop(guard);
}

/// A caller that stops waiting is removed from every queue, also from that of a node that failed
/// last.
#[tokio::test]
async fn a_caller_that_stops_waiting_is_removed_from_every_queue() {
    let bench = Bench::new(3).await;
    let (_guard, waiting) = held_and_waited_for(&bench).await;
    bench.nodes[2].fail_with(Some(unreachable()));
    drop(waiting);
    idle().await;
    assert_eq!(in_queue(&bench, "x"), [0, 0, 1]);
    bench.mend();
    bench.pass(ms(600)).await;
    assert_eq!(in_queue(&bench, "x"), [0; 3]);
}

/// A node through which a test can send wakes of its own.
#[derive(Clone)]
struct Pushing {
    node: MemoryNode,
    listeners: Arc<Mutex<Vec<Arc<dyn Hear>>>>,
}

impl std::fmt::Debug for Pushing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pushing")
    }
}

impl Pushing {
    fn push(&self, ticket: &str) {
        let listeners = self.listeners.lock().unwrap().clone();
        for listener in listeners {
            listener.hear(Wake {
                ticket: ticket.to_owned(),
                after_ms: 0,
                slot: None,
            });
        }
    }
}

impl Node for Pushing {
    delegate!(node: name send probe join init);

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.listeners.lock().unwrap().push(Arc::clone(&to));
        self.node.listen(client, to);
    }
}

#[tokio::test]
async fn endless_wakes_from_one_node_cause_few_attempts() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    let hostile = Pushing {
        node: bench.nodes[2].clone(),
        listeners: Arc::default(),
    };
    let clock = ringfence::clock::Clock::Stepped(bench.time.clone());
    let locks = Locks::builder().clock(clock).label("waiter");
    let locks = locks.node(bench.nodes[0].clone());
    let locks = locks.node(bench.nodes[1].clone()).node(hostile.clone());
    let lock = locks.connect().await.unwrap().mutex("x");
    let mut waiting = pin!(lock.lock());
    assert!(waits(waiting.as_mut()).await);
    let line = bench.nodes[0].entry(&Name::new("", "x").unwrap()).queue;
    let ticket = line.entries[0].id.clone();
    bench.log_operations();
    for _ in 0..10_000 {
        hostile.push(&ticket);
        bench.time.step(ms(1));
        assert!(waits(waiting.as_mut()).await);
    }
    let scripts = bench.count(|_| true);
    assert!(
        scripts.iter().all(|count| (20..300).contains(count)),
        "{scripts:?} scripts in ten seconds"
    );
    // And when the lock is free, the waiter still gets it soon.
    let before = bench.time.now();
    at_once(guard.release()).await.unwrap();
    let guard = bench.drive(waiting).await.unwrap();
    let took = bench.time.now().since(before);
    assert!(took <= ms(110), "{took:?}");
    drop(guard);
}

/// Of four nodes one is excluded because of its clock, and one is in quarantine: no client gets
/// three votes, and every undo wakes the others. They must not retry as fast as the nodes answer,
/// and must get the lock when the quarantine is over.
#[tokio::test]
async fn callers_that_wake_each_other_in_vain_do_not_overload_the_nodes() {
    let bench = Bench::new(4).await;
    let clients = [
        bench.client().await,
        bench.client().await,
        bench.client().await,
    ];
    // Excluded for good: the clients detect it by its replies.
    bench.nodes[3].clock().step_us(-60_000_000);
    bench.nodes[2].forget();
    let locks = clients.map(|locks| locks.mutex("x").no_quorum_after(ms(60_000)));
    let [one, two, three] = &locks;
    let served = async |lock: &ringfence::Lock| {
        let guard = lock.lock().await.unwrap();
        guard.release().await.unwrap();
    };
    let mut all = pin!(async { tokio::join!(served(one), served(two), served(three)) });
    bench.log_operations();
    for second in 0..30 {
        for _ in 0..1_000 {
            assert!(waits(all.as_mut()).await, "after {second} s");
            bench.time.step(ms(1));
        }
        let acquires = bench.count(|op| matches!(op, Op::Acquire { .. }));
        let most = acquires.iter().max().unwrap();
        // Three callers, each about fifteen times a second with a few ballots.
        assert!(*most < 250, "{acquires:?} acquires in second {second}");
    }
    bench.drive(all).await;
}
