//! Draining a hold, and what holds share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::clock::{Clock, SteppedClock};
use crate::group::Group;
use crate::message::{Answer, Ballot, Extend, Kind, Mode, Op, Standing};
use crate::name::Name;
use crate::node::{Call, Completion, Facts, Hear, InitMode, Node};
use crate::protocol::{Drift, Vote};
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

/// What all nodes of a test share: in which order they are asked for which TTL, and what happens
/// inside a send.
#[derive(Default)]
struct Stage {
    sent: Mutex<Vec<(usize, u64)>>,
    sending: AtomicBool,
    /// A send began before the one before it had ended. Only noted: a send may take place while a
    /// panic is on its way, and a second panic would end the whole program.
    overlapped: AtomicBool,
    hold: OnceLock<Arc<Hold>>,
    inside: Mutex<Option<Inside>>,
}

type Inside = Box<dyn FnOnce(&Arc<Hold>) + Send>;

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

fn hold_on(stage: &Arc<Stage>) -> Arc<Hold> {
    let node = |node| Arc::new(Staged(node, Arc::clone(stage))) as Arc<dyn Node>;
    let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
    let driver = Driver::of_group((0..3).map(node).collect(), clock);
    let claims: Arc<[Claim]> = Arc::from([Claim {
        name: Name::new("", "x").unwrap(),
        mode: Mode::Exclusive,
    }]);
    let token = Token::from_entropy([1; TOKEN_ENTROPY_BYTES]);
    let id = GrantId::of_receipt(claims, token, Ballot::new(1), Kind::Exclusive);
    let hold = Hold::resume(&driver, id, policy(""));
    let _ = stage.hold.set(Arc::clone(&hold));
    hold
}

fn to_all(ttl_ms: u64) -> [(usize, u64); 3] {
    [(0, ttl_ms), (1, ttl_ms), (2, ttl_ms)]
}

#[test]
fn what_is_wanted_inside_a_send_is_sent_after_what_was_wanted_before() {
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
fn of_many_threads_that_feed_one_hold_one_sends_at_a_time() {
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
    assert_eq!(sent.len(), 3 * 4 * 250, "nothing is left over");
    let (rounds, _) = sent.as_chunks::<3>();
    for round in rounds {
        assert_eq!(*round, to_all(round[0].1));
    }
    let idle = hold.look(|machine| machine.poll_timeout());
    assert_eq!(idle, None, "every round is over");
}

#[test]
fn a_node_that_panics_does_not_silence_the_hold() {
    let stage = Arc::default();
    let hold = hold_on(&stage);
    *lock(&stage.inside) = Some(Box::new(|_| panic!("a node of another's making")));
    let panicked = catch_unwind(AssertUnwindSafe(|| hold.extend(Duration::from_secs(7))));
    assert!(panicked.is_err());
    stage.sending.store(false, Ordering::SeqCst);
    drop(hold.extend(Duration::from_secs(5)));
    assert_eq!(lock(&stage.sent)[3..], to_all(5_000));
}

/// `bench` measures what a guard takes in all; this says which change made it more.
#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn a_hundred_thousand_of_them_are_small() {
    assert!(size_of::<Hold>() <= 216, "{}", size_of::<Hold>());
    assert!(size_of::<crate::Guard>() <= 56);
    // Every node's vote is kept, until all have granted.
    assert!(size_of::<Vote>() <= 32);
}

#[tokio::test]
async fn each_task_and_each_thread_outside_of_one_is_another() {
    let here = Taker::current();
    assert_eq!(here, Taker::current());
    assert_ne!(here, Taker::default());
    let task = tokio::spawn(async { Taker::current() });
    let other = tokio::spawn(async { Taker::current() });
    let (task, other) = (task.await.unwrap(), other.await.unwrap());
    let thread = std::thread::spawn(Taker::current).join().unwrap();
    let all = [here, task, other, thread];
    let same = all.iter().filter(|one| **one == here || **one == task);
    assert_eq!(same.count(), 2, "{all:?}");
}

/// A task keeps its identity on whichever thread it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_the_same_on_every_thread() {
    let task = tokio::spawn(async {
        let before = Taker::current();
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert_eq!(Taker::current(), before);
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
fn holds_that_are_looked_after_alike_share_their_policy() {
    let policies = Policies::default();
    let one = policies.share(policy("a"));
    assert!(Arc::ptr_eq(&one, &policies.share(policy("a"))));
    let other = policies.share(policy("b"));
    assert_eq!(*other.label, *"b");
    drop((one, other));
    assert_eq!(
        policies.last.lock().unwrap().strong_count(),
        0,
        "no hold has it any more"
    );
}
