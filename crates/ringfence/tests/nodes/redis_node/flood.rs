//! More calls than fit into a batch, or than a server can answer: releases are sent first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ringfence::node::{Call, CallError, Completion, Deliver, Node};
use ringfence_core::message::{Answer, Claim, Mode, Op, Reply, Request};
use ringfence_core::name::Name;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};
use ringfence_testkit::{Flavor, Server, wait_until_async};
use tokio::sync::oneshot;

use super::*;
use crate::nodes::support::*;

const FLOOD: usize = 4_000;

/// Counts the calls that were answered.
#[derive(Default)]
struct Answered(AtomicUsize);

impl Deliver<Reply> for Answered {
    fn deliver(&self, _: u64, outcome: Result<Reply, CallError>) {
        // The last calls may be dropped with the tokio runtime of the test.
        self.0
            .fetch_add(usize::from(outcome.is_ok()), Ordering::SeqCst);
    }
}

/// Reports the answer to a call, and how many calls of the flood were answered before it.
struct Behind {
    flood: Arc<Answered>,
    to: Mutex<Option<oneshot::Sender<(Answer, usize)>>>,
}

impl Deliver<Reply> for Behind {
    fn deliver(&self, _: u64, outcome: Result<Reply, CallError>) {
        let before = self.flood.0.load(Ordering::SeqCst);
        let to = self.to.lock().unwrap().take().unwrap();
        to.send((outcome.unwrap().answer, before)).unwrap();
    }
}

/// Sends an acquire for each of `FLOOD` names, all at once.
fn flood(node: &RedisNode, ballot: Ballot) -> Arc<Answered> {
    let answered = Arc::new(Answered::default());
    for number in 0..FLOOD {
        let mut entropy = [7; TOKEN_ENTROPY_BYTES];
        entropy[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let request = Request {
            claims: Arc::from([Claim {
                name: Name::new("", &format!("flood:{number}")).unwrap(),
                mode: Mode::Exclusive,
            }]),
            token: Token::from_entropy(entropy),
            op: acquire(ballot, TTL_MS),
        };
        node.send(Call {
            request: Arc::new(request),
            expires: NEVER,
            done: Completion::new(Arc::clone(&answered) as Arc<dyn Deliver<Reply>>, 0),
        });
    }
    answered
}

#[tokio::test]
async fn a_release_does_not_wait_behind_a_flood_of_acquires() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let held = call(&node, request(&["x"], ALICE, acquire(ballot, TTL_MS))).await;
    assert_eq!(held.unwrap().answer, Answer::Granted);
    let answered = flood(&node, ballot);
    let (to, released) = oneshot::channel();
    let behind = Behind {
        flood: answered,
        to: Mutex::new(Some(to)),
    };
    node.send(Call {
        request: Arc::new(request(&["x"], ALICE, release(ballot))),
        expires: NEVER,
        done: Completion::new(Arc::new(behind), 0),
    });
    let (answer, before) = released.await.unwrap();
    assert_eq!(answer, Answer::Released);
    assert!(
        before < FLOOD / 10,
        "{before} of {FLOOD} were answered first"
    );
}

/// Calls of one token keep their order inside the flood, too.
#[tokio::test]
async fn a_release_never_overtakes_the_acquire_of_its_own_token() {
    let server = Server::start(Flavor::Valkey);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let answered = flood(&node, ballot);
    let taken = call(&node, request(&["y"], BOB, acquire(ballot, TTL_MS)));
    let released = call(&node, request(&["y"], BOB, release(ballot)));
    assert_eq!(taken.await.unwrap().answer, Answer::Granted);
    assert_eq!(released.await.unwrap().answer, Answer::Released);
    let held = call(&node, request(&["y"], ALICE, Op::Inspect))
        .await
        .unwrap();
    assert!(matches!(held.answer, Answer::Views(views) if views[0].holder.is_none()));
    assert!(answered.0.load(Ordering::SeqCst) >= FLOOD - 512);
}

/// Counts the calls that were answered and withdrawn. The calls are wanted until it is told
/// otherwise.
#[derive(Default)]
struct GivenUp {
    answered: AtomicUsize,
    withdrawn: AtomicUsize,
    unwanted: AtomicBool,
}

impl Deliver<Reply> for GivenUp {
    fn deliver(&self, _: u64, _: Result<Reply, CallError>) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }

    fn is_wanted(&self, _: u64) -> bool {
        !self.unwanted.load(Ordering::SeqCst)
    }

    fn withdrawn(&self, _: u64) {
        self.withdrawn.fetch_add(1, Ordering::SeqCst);
    }
}

/// A server that does not answer gets only so many batches, however often the node is flushed. A
/// call behind them that is not wanted any more is never sent. The release of a holder is written.
#[tokio::test]
async fn a_flush_of_many_calls_keeps_the_limit_of_batches_but_writes_releases() {
    const CALLS: usize = 500;
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let ballot = ballot(&node).await;
    let held = call(&node, request(&["x"], ALICE, acquire(ballot, TTL_MS))).await;
    assert_eq!(held.unwrap().answer, Answer::Granted);
    server.pause();
    let to = Arc::new(GivenUp::default());
    for _ in 0..CALLS {
        node.send(Call {
            request: Arc::new(inspect(&["y"])),
            expires: NEVER,
            done: Completion::new(Arc::clone(&to) as Arc<dyn Deliver<Reply>>, 0),
        });
        node.flush();
    }
    let released = call(&node, request(&["x"], ALICE, release(ballot)));
    node.flush();
    // What was not written by now never is.
    to.unwanted.store(true, Ordering::SeqCst);
    server.resume();
    assert_eq!(released.await.unwrap().answer, Answer::Released);
    wait_until_async("the other calls", PATIENCE, async || {
        to.answered.load(Ordering::SeqCst) + to.withdrawn.load(Ordering::SeqCst) == CALLS
    })
    .await;
    let answered = to.answered.load(Ordering::SeqCst);
    assert!((1..=16).contains(&answered), "{answered} were written");
}
