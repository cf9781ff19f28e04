//! Tests of draining a hold, and of what holds share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::clock::{Clock, SteppedClock};
use crate::group::Group;
use crate::message::{Answer, Ballot, Claim, Extend, Kind, Mode, Op, Reply, Standing};
use crate::name::Name;
use crate::node::{Call, Completion, Facts, Hear, InitMode, Node};
use crate::protocol::{Drift, Vote};
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

/// The state that all nodes of a test share: the order and TTL of the requests, and what a node
/// does inside a send.
#[derive(Default)]
struct Stage {
    sent: Mutex<Vec<(usize, u64)>>,
    sending: AtomicBool,
    /// A send began before the previous one had ended. Only recorded here: a second panic during
    /// unwinding would abort the whole program.
    overlapped: AtomicBool,
    hold: OnceLock<Arc<HeldLock>>,
    inside: Mutex<Option<Inside>>,
}

type Inside = Box<dyn FnOnce(&Arc<HeldLock>) + Send>;

/// A node that answers inside the send.
struct Staged(usize, Arc<Stage>);

impl Node for Staged {
    fn name(&self) -> &str {
        "staged"
    }

    fn send(&self, call: Call) {
        let Self(node, stage) = self;
        if stage.sending.swap(true, Ordering::SeqCst) {
            stage.overlapped.store(true, Ordering::SeqCst);
        }
        let Op::Extend(Extend { ttl_ms, .. }) = call.request.op else {
            panic!("{:?}", call.request.op);
        };
        lock(&stage.sent).push((*node, ttl_ms));
        let inside = lock(&stage.inside).take_if(|_| *node == 1);
        if let (Some(inside), Some(hold)) = (inside, stage.hold.get()) {
            inside(hold);
        }
        call.done.complete(Ok(Reply {
            stamp: None,
            standing: Standing::default(),
            answer: Answer::Extended,
        }));
        thread::yield_now();
        stage.sending.store(false, Ordering::SeqCst);
    }

    fn listen(&self, _: &str, _: Arc<dyn Hear>) {}
    fn probe(&self, _: Completion<Facts>) {}
    fn join(&self, _: Group, _: Completion<Facts>) {}
    fn init(&self, _: Group, _: InitMode, _: Completion<Facts>) {}
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staged({})", self.0)
    }
}

fn hold_on(stage: &Arc<Stage>) -> Arc<HeldLock> {
    let node = |node| Arc::new(Staged(node, Arc::clone(stage))) as Arc<dyn Node>;
    let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
    let runtime = ClientRuntime::of_group((0..3).map(node).collect(), clock);
    let claims: Arc<[Claim]> = Arc::from([Claim {
        name: Name::new("", "x").unwrap(),
        mode: Mode::Exclusive,
    }]);
    let token = Token::from_entropy([1; TOKEN_ENTROPY_BYTES]);
    let id = GrantId::of_receipt(
        claims,
        token,
        Ballot::new(1),
        Kind::Exclusive,
        Duration::ZERO,
    );
    let hold = HeldLock::resume(&runtime, id, policy(""));
    let _ = stage.hold.set(Arc::clone(&hold));
    hold
}

fn to_all(ttl_ms: u64) -> [(usize, u64); 3] {
    [(0, ttl_ms), (1, ttl_ms), (2, ttl_ms)]
}

#[test]
fn outputs_produced_inside_a_send_are_sent_after_the_earlier_ones() {
    let stage: Arc<Stage> = Arc::default();
    let hold = hold_on(&stage);
    *lock(&stage.inside) = Some(Box::new(|hold| {
        let round = hold.extend(Duration::from_secs(5));
        assert_eq!(hold.look(|machine| machine.lost()), None);
        drop(round);
    }));
    drop(hold.extend(Duration::from_secs(7)));
    assert_eq!(*lock(&stage.sent), [to_all(7_000), to_all(5_000)].concat());
    assert!(!stage.overlapped.load(Ordering::SeqCst), "a send in a send");
}

#[test]
fn one_thread_at_a_time_sends_for_a_hold() {
    let stage: Arc<Stage> = Arc::default();
    let hold = hold_on(&stage);
    thread::scope(|scope| {
        for number in 0..4 {
            let hold = &hold;
            scope.spawn(move || {
                for round in 0..250 {
                    let ttl = Duration::from_millis(1_000 + number * 1_000 + round);
                    drop(hold.extend(ttl));
                }
            });
        }
    });
    let overlapped = stage.overlapped.load(Ordering::SeqCst);
    assert!(!overlapped, "two threads send for the same hold");
    let sent = lock(&stage.sent);
    assert_eq!(sent.len(), 3 * 4 * 250, "every request is sent");
    let (rounds, _) = sent.as_chunks::<3>();
    for round in rounds {
        assert_eq!(*round, to_all(round[0].1));
    }
    let idle = hold.look(|machine| machine.poll_timeout());
    assert_eq!(idle, None, "every round is over");
}

#[test]
fn a_hold_sends_again_after_a_panic_in_a_node() {
    let stage = Arc::default();
    let hold = hold_on(&stage);
    *lock(&stage.inside) = Some(Box::new(|_| panic!("a custom node")));
    let panicked = catch_unwind(AssertUnwindSafe(|| hold.extend(Duration::from_secs(7))));
    assert!(panicked.is_err());
    stage.sending.store(false, Ordering::SeqCst);
    drop(hold.extend(Duration::from_secs(5)));
    assert_eq!(lock(&stage.sent)[3..], to_all(5_000));
}

/// `bench` measures the whole memory of a guard; this test finds the change that increased it.
#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn a_hold_is_small() {
    assert!(size_of::<HeldLock>() <= 232, "{}", size_of::<HeldLock>());
    assert!(size_of::<crate::Guard>() <= 56);
    // A hold keeps every node's vote until all nodes have granted.
    assert!(size_of::<Vote>() <= 32);
}

#[tokio::test]
async fn every_task_and_every_thread_has_its_own_identity() {
    let here = HolderTask::current();
    assert_eq!(here, HolderTask::current());
    assert_ne!(here, HolderTask::default());
    let task = tokio::spawn(async { HolderTask::current() });
    let other = tokio::spawn(async { HolderTask::current() });
    let (task, other) = (task.await.unwrap(), other.await.unwrap());
    let thread = std::thread::spawn(HolderTask::current).join().unwrap();
    let all = [here, task, other, thread];
    let same = all.iter().filter(|id| **id == here || **id == task);
    assert_eq!(same.count(), 2, "{all:?}");
}

/// A task keeps its identity on whichever thread it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_the_same_on_every_thread() {
    let task = tokio::spawn(async {
        let before = HolderTask::current();
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert_eq!(HolderTask::current(), before);
        }
    });
    task.await.unwrap();
}

fn policy(label: &str) -> HoldPolicy {
    HoldPolicy {
        ttl: Duration::from_secs(10),
        lock_delay: Duration::ZERO,
        hold_at_least: Duration::ZERO,
        call_timeout: Duration::from_secs(1),
        drift: Drift::default(),
        renew: false,
        max_hold: None,
        label: Arc::from(label),
    }
}

#[test]
fn holds_with_equal_policies_share_one() {
    let policies = Policies::default();
    let first = policies.share(policy("a"));
    assert!(Arc::ptr_eq(&first, &policies.share(policy("a"))));
    let other = policies.share(policy("b"));
    assert_eq!(*other.label, *"b");
    drop((first, other));
    assert_eq!(
        policies.last.lock().unwrap().strong_count(),
        0,
        "no hold uses it"
    );
}
