//! Locks that nodes keep from other clients after the release, on real servers; and the script that
//! keeps them, compared with its specification.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ringfence::AcquireError;
use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::node::{Call, CallError, Completion, Deliver, Node};
use ringfence::url::{NodeUrl, parse_nodes};
use ringfence_core::group::Group;
use ringfence_core::ledger::{self, Entry, Moment, Rules};
use ringfence_core::message::{
    Acquire, Answer, Ballot, Claim, Extend, Holder, Mode, Op, Release, ReleaseKind, Reply, Request,
    Restore, Ticket,
};
use ringfence_core::name::Name;
use ringfence_core::time::Timestamp;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};
use ringfence_testkit::{Flavor, Fleet, Server, wait_until};
use tokio::sync::oneshot;

use super::stage::{PATIENCE, SOON, client_of, has_key, now, timed};

#[tokio::test]
async fn a_lock_released_early_is_kept_on_every_server_and_then_free() {
    let fleet = Fleet::start(3);
    let (locks, other) = (client_of(&fleet).await, client_of(&fleet).await);
    let lock = locks
        .mutex("x")
        .label("short")
        .hold_at_least(Duration::from_secs(2));
    let begun = now();
    let guard = lock.lock().await.unwrap();
    let kept = format!("kept.{}", guard.token().id());
    guard.release().await.unwrap();
    locks.close().await;
    for server in fleet.iter() {
        assert_eq!(server.command(&["GET", "x"]), kept);
        let left: u64 = server.command(&["PTTL", "x"]).parse().unwrap();
        assert!(left <= 2000, "{left}");
    }
    let error = other.mutex("x").try_lock().await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    assert!(
        error.to_string().contains("after short released it"),
        "{error}"
    );
    let next = other.mutex("x").wait(PATIENCE).lock().await.unwrap();
    assert!(now().since(begun) >= Duration::from_secs(2));
    next.release().await.unwrap();
}

#[tokio::test]
async fn with_one_server_down_the_others_keep_the_lock() {
    let fleet = Fleet::start(3);
    let (locks, other) = (client_of(&fleet).await, client_of(&fleet).await);
    let lock = locks.mutex("x").hold_at_least(Duration::from_secs(60));
    let guard = lock.lock().await.unwrap();
    fleet[0].kill();
    guard.release().await.unwrap();
    fleet[0].restart();
    let wait = Duration::from_millis(300);
    let (took, refused) = timed(other.mutex("x").wait(wait).lock()).await;
    assert!(refused.is_err() && took >= wait);
}

#[tokio::test]
async fn every_server_keeps_the_lock_for_the_lock_delay() {
    let fleet = Fleet::start(3);
    let (locks, other) = (client_of(&fleet).await, client_of(&fleet).await);
    let lock = locks
        .mutex("x")
        .ttl(Duration::from_millis(500))
        .renew(false);
    let begun = now();
    let guard = lock
        .lock_delay(Duration::from_secs(1))
        .lock()
        .await
        .unwrap();
    guard.lost().await;
    drop(guard);
    let next = other.mutex("x").wait(PATIENCE).lock().await.unwrap();
    assert!(now().since(begun) >= Duration::from_millis(1500));
    next.release().await.unwrap();
}

/// So long that nothing ends during a history, and so short that a sleep lasts longer.
const LONG_MS: u64 = 600_000;
const SHORT_MS: u64 = 15;
const NAMES: [&str; 2] = ["a", "{a}:b"];
/// The reply of `PEXPIRETIME` for a key that does not exist.
const NO_KEY: i64 = -2;

#[derive(Debug, Clone)]
struct Step {
    client: u8,
    names: Vec<usize>,
    op: Kind,
    /// Which of the ballots so far, counted from the last; 0 is a new one.
    back: usize,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Acquire { waits: bool },
    Extend,
    Release(ReleaseKind, Option<u64>, bool),
    Restore,
    Inspect,
}

fn any_step() -> impl Strategy<Value = Step> {
    let names = prop_oneof![3 => Just(vec![0]), 1 => Just(vec![1]), 2 => Just(vec![1, 0])];
    let keep = prop_oneof![
        1 => Just(None),
        1 => Just(Some(0)),
        6 => Just(Some(SHORT_MS)),
        1 => Just(Some(LONG_MS)),
    ];
    let kind = prop_oneof![4 => Just(ReleaseKind::Final), 1 => Just(ReleaseKind::Undo)];
    let op = prop_oneof![
        5 => any::<bool>().prop_map(|waits| Kind::Acquire { waits }),
        1 => Just(Kind::Extend),
        5 => (kind, keep, any::<bool>()).prop_map(|(kind, keep, unknown)| Kind::Release(kind, keep, unknown)),
        2 => Just(Kind::Restore),
        2 => Just(Kind::Inspect),
    ];
    let back = prop_oneof![4 => Just(0), 4 => Just(1), 1 => Just(2)];
    let client = prop_oneof![3 => Just(0u8), 1 => Just(1)];
    (client, names, op, back).prop_map(|(client, names, op, back)| Step {
        client,
        names,
        op,
        back,
    })
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    server: Server,
    node: RedisNode,
    rules: Rules,
}

impl Bench {
    fn new(flavor: Flavor) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = Server::start(flavor);
        let NodeUrl::Redis(url) = parse_nodes(&server.url()).unwrap().remove(0) else {
            panic!("a Redis URL");
        };
        let group = Group::new(3);
        let node = runtime.block_on(async {
            let node = RedisNode::connect(url, Clock::System).unwrap();
            ask(|done| node.join(group, done)).await.unwrap();
            node
        });
        Self {
            rules: Rules::of_group(&group),
            runtime,
            server,
            node,
        }
    }

    /// Executes `steps` on the server, and in the ledger with the server's clock. Returns how often
    /// a lock was kept.
    fn run(&self, steps: &[Step]) -> Result<usize, TestCaseError> {
        for key in self
            .server
            .command(&["KEYS", "*"])
            .lines()
            .filter(|key| *key != "ringfence:born")
        {
            self.server.command(&["DEL", key]);
        }
        let mut entries = NAMES.map(|_| Entry::default());
        let mut ballots: Vec<Ballot> = Vec::new();
        let mut kept = 0;
        for step in steps {
            let clock = self.clock_us();
            if step.back == 0 || ballots.len() < step.back {
                ballots.push(Ballot::new(clock));
            }
            let back = step.back.clamp(1, ballots.len());
            let op = step.op(ballots[ballots.len() - back]);
            let reply = self.call(&step.names, step.client, op.clone());
            let stamp = reply.stamp.unwrap();
            let mut touched: Vec<Entry> = step.names.iter().map(|&i| entries[i].clone()).collect();
            let expected = ledger::apply(
                &self.rules,
                Moment::of_clock(stamp.clock_us),
                &mut touched,
                &request(&step.names, step.client, op),
            );
            prop_assert_eq!(
                untimed(&reply.answer),
                untimed(&expected.answer),
                "{:?}",
                step
            );
            prop_assert_eq!(stamp, expected.stamp, "{:?}", step);
            for (&name, entry) in step.names.iter().zip(touched) {
                self.compare(NAMES[name], &entry, stamp.clock_us / 1000)?;
                self.outlast(NAMES[name], &entry, stamp.clock_us / 1000);
                entries[name] = entry;
            }
            if let (Kind::Release(ReleaseKind::Final, Some(1..), _), Answer::Released) =
                (step.op, &reply.answer)
            {
                kept += 1;
            }
        }
        Ok(kept)
    }

    /// Waits until a key that ends soon has ended. Otherwise the test could not know whether it
    /// ends before or after the next step.
    fn outlast(&self, name: &str, entry: &Entry, now_ms: u64) {
        let end_ms = entry.key.as_ref().and_then(|key| key.until_ms);
        if let Some(end_ms) = end_ms.filter(|end_ms| *end_ms <= now_ms + SHORT_MS) {
            // A key still exists in its last millisecond, and on the server a little longer.
            wait_until("the tombstone to end", SOON, || {
                self.clock_us() / 1000 > end_ms && !has_key(&self.server, name)
            });
        }
    }

    /// The server's clock.
    fn clock_us(&self) -> u64 {
        let stamp = self.call(&[0], 0, Op::Inspect).stamp;
        stamp.unwrap().clock_us
    }

    /// Compares the lock's own key and its expiry.
    fn compare(&self, name: &str, entry: &Entry, now_ms: u64) -> Result<(), TestCaseError> {
        let Some(key) = &entry.key else {
            prop_assert_eq!(self.server.command(&["EXISTS", name]), "0");
            return Ok(());
        };
        let expected = key.until_ms.unwrap();
        let until: i64 = self.server.command(&["PEXPIRETIME", name]).parse().unwrap();
        if until == NO_KEY && expected <= now_ms + SHORT_MS {
            return Ok(());
        }
        // A busy machine may stop the server in the middle of a script.
        let until = u64::try_from(until).unwrap();
        prop_assert!(
            until >= expected && until <= expected + 50,
            "{until} {expected}"
        );
        if expected > now_ms + SHORT_MS {
            prop_assert_eq!(self.server.command(&["GET", name]), key.value.as_str());
        }
        Ok(())
    }

    fn call(&self, names: &[usize], client: u8, op: Op) -> Reply {
        let call = |done| {
            self.node.send(Call {
                request: Arc::new(request(names, client, op)),
                expires: Timestamp::from_nanos(u64::MAX),
                done,
            });
        };
        self.runtime.block_on(async { ask(call).await.unwrap() })
    }
}

impl Step {
    fn op(&self, ballot: Ballot) -> Op {
        let label = Arc::from("job: ü");
        // One of the two clients has a ticket, so that wakes and passing are tested, too.
        let ticket = (self.client == 0).then(|| Ticket {
            since_us: 1,
            id: Arc::from("c.1"),
            first: false,
            label: "waiter".into(),
        });
        let ttl_ms = LONG_MS;
        match self.op {
            Kind::Acquire { waits } => Op::Acquire(Acquire {
                ballot,
                ttl_ms,
                label,
                ticket: ticket.filter(|_| waits),
                not_after_us: None,
            }),
            Kind::Extend => Op::Extend(Extend {
                ballot,
                ttl_ms,
                delay_ms: 0,
            }),
            Kind::Release(kind, keep_ms, fate_unknown) => Op::Release(Release {
                ballot,
                kind,
                fate_unknown,
                ticket,
                stays: false,
                keep_ms,
                delay_ms: 0,
            }),
            Kind::Restore => Op::Restore(Restore {
                ballot,
                ttl_ms,
                label,
            }),
            Kind::Inspect => Op::Inspect,
        }
    }
}

fn request(names: &[usize], client: u8, op: Op) -> Request {
    let claims = names.iter().map(|&name| Claim {
        name: Name::new("", NAMES[name]).unwrap(),
        mode: Mode::Exclusive,
    });
    Request {
        claims: claims.collect(),
        token: Token::from_entropy([client; TOKEN_ENTROPY_BYTES]),
        op,
    }
}

/// The answer without durations, which may differ by a few milliseconds on a server.
fn untimed(answer: &Answer) -> Answer {
    let without = |holder: &Holder| Holder {
        for_ms: None,
        ..holder.clone()
    };
    match answer {
        Answer::Held(holder) => Answer::Held(without(holder)),
        Answer::Behind { ahead, .. } => Answer::Behind {
            ahead: *ahead,
            for_ms: None,
        },
        Answer::Views(views) => {
            let mut views = views.clone();
            for view in &mut views {
                view.holder = view.holder.as_ref().map(without);
            }
            Answer::Views(views)
        }
        other => other.clone(),
    }
}

struct Once<T>(Mutex<Option<oneshot::Sender<Result<T, CallError>>>>);

impl<T: Send> Deliver<T> for Once<T> {
    fn deliver(&self, _tag: u64, outcome: Result<T, CallError>) {
        let sender = self.0.lock().unwrap().take().expect("one answer");
        let _ = sender.send(outcome);
    }
}

async fn ask<T: Send + 'static>(call: impl FnOnce(Completion<T>)) -> Result<T, CallError> {
    let (sender, receiver) = oneshot::channel();
    call(Completion::new(Arc::new(Once(Mutex::new(Some(sender)))), 0));
    receiver.await.expect("an answer")
}

fn the_script_agrees_with_the_ledger(flavor: Flavor) {
    let bench = Bench::new(flavor);
    let kept = Mutex::new(0);
    let config = Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&proptest::collection::vec(any_step(), 10..30), |steps| {
            *kept.lock().unwrap() += bench.run(&steps)?;
            Ok(())
        })
        .unwrap();
    let kept = kept.into_inner().unwrap();
    assert!(kept > 50, "kept only {kept} times: the test covers nothing");
}

#[test]
fn redis_keeps_locks_as_the_ledger_does() {
    the_script_agrees_with_the_ledger(Flavor::Redis);
}

#[test]
fn valkey_keeps_locks_as_the_ledger_does() {
    the_script_agrees_with_the_ledger(Flavor::Valkey);
}
