//! Group values: a client adopts those of a majority, and only if they are safe.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::memory::MemoryNode;
use ringfence::node::{CallError, Completion, Deliver, Facts, InitMode, Node};
use ringfence::{Builder, ConnectError, Locks};
use ringfence_core::group::Group;

use crate::rules::bench::{Bench, ms};
use crate::rules::wrapper::delegate;

struct ReplyChannel(Mutex<Sender<Result<Facts, CallError>>>);

impl Deliver<Facts> for ReplyChannel {
    fn deliver(&self, _tag: u64, outcome: Result<Facts, CallError>) {
        self.0.lock().unwrap().send(outcome).unwrap();
    }
}

/// The reply that a node gives without waiting.
fn reply_to(ask: impl FnOnce(Completion<Facts>)) -> Result<Facts, CallError> {
    let (sender, replies) = channel();
    ask(Completion::new(
        Arc::new(ReplyChannel(Mutex::new(sender))),
        0,
    ));
    replies.recv().unwrap()
}

fn set_group(node: &MemoryNode, group: Group) {
    reply_to(|done| node.init(group, InitMode::Force, done)).unwrap();
}

fn group_of(node: &MemoryNode) -> Option<Group> {
    reply_to(|done| node.probe(done)).unwrap().group
}

/// Safe values that differ from the default.
fn other() -> Group {
    Group {
        quarantine: Duration::from_secs(50),
        ..Group::new(3)
    }
}

/// Values with which a restarted node would vote while its locks are still held.
fn unsafe_values() -> Group {
    Group {
        quarantine: ms(1),
        ..Group::new(3)
    }
}

/// A node that takes 200 ms to answer a probe.
#[derive(Debug)]
struct SlowProbe(MemoryNode, SteppedClock);

impl Node for SlowProbe {
    delegate!(0: name send listen join init);

    fn probe(&self, done: Completion<Facts>) {
        let (node, clock) = (self.0.clone(), Clock::Stepped(self.1.clone()));
        tokio::spawn(async move {
            clock.sleep_until(clock.now() + ms(200)).await;
            node.probe(done);
        });
    }
}

/// A client of the bench's nodes, the last of which answers probes late.
fn builder(bench: &Bench) -> Builder {
    let clocked = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let (last, first) = bench.nodes.split_last().unwrap();
    let nodes = first.iter().cloned().fold(clocked, Builder::node);
    nodes.node(SlowProbe(last.clone(), bench.time.clone()))
}

#[tokio::test]
async fn one_node_with_other_values_does_not_stop_a_new_client() {
    for (odd, values, odd_values) in [
        (0, Group::new(3), other()),
        (1, Group::new(3), other()),
        (0, other(), Group::new(3)),
        (1, other(), Group::new(3)),
    ] {
        let bench = Bench::uninitialised(&[0; 3]);
        for (number, node) in bench.nodes.iter().enumerate() {
            set_group(node, if number == odd { odd_values } else { values });
        }
        let client = bench.drive(builder(&bench).connect()).await.unwrap();
        let guard = bench.drive(client.mutex("x").try_lock()).await.unwrap();
        assert!(bench.held_by("x", &guard) >= 2, "odd {odd}");
    }
}

/// Two of three nodes were restarted empty, and the third answers last.
#[tokio::test]
async fn nodes_that_forgot_the_values_get_those_of_the_node_that_knows_them() {
    let bench = Bench::uninitialised(&[0; 3]);
    set_group(&bench.nodes[2], other());
    bench.drive(builder(&bench).connect()).await.unwrap();
    for node in &bench.nodes {
        assert_eq!(group_of(node), Some(other()), "{}", node.name());
    }
}

/// A node that takes 200 ms to join.
#[derive(Debug)]
struct SlowJoin(MemoryNode, SteppedClock);

impl Node for SlowJoin {
    delegate!(0: name send listen probe init);

    fn join(&self, group: Group, done: Completion<Facts>) {
        let (node, clock) = (self.0.clone(), Clock::Stepped(self.1.clone()));
        tokio::spawn(async move {
            clock.sleep_until(clock.now() + ms(200)).await;
            node.join(group, done);
        });
    }
}

/// While no majority votes, a slow node is waited for: the first error names it as what it is.
#[tokio::test]
async fn the_first_error_of_a_new_cluster_calls_no_slow_node_silent() {
    let bench = Bench::uninitialised(&[0; 3]);
    let clocked = Locks::builder().clock(Clock::Stepped(bench.time.clone()));
    let first = bench.nodes[..2].iter().cloned();
    let nodes = first.fold(clocked, Builder::node);
    let nodes = nodes.node(SlowJoin(bench.nodes[2].clone(), bench.time.clone()));
    let client = bench.drive(nodes.connect()).await.unwrap();
    let error = bench.drive(client.mutex("x").try_lock()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("nodes a, b, c are new"), "{text}");
    assert!(text.contains("`Builder::init`"), "{text}");
}

#[tokio::test]
async fn a_client_does_not_wait_for_a_slow_node_once_a_majority_agrees() {
    let bench = Bench::uninitialised(&[0; 3]);
    bench.nodes.iter().for_each(|node| set_group(node, other()));
    let before = bench.time.now();
    bench.drive(builder(&bench).connect()).await.unwrap();
    assert!(bench.time.now().since(before) < ms(200));
}

#[tokio::test]
async fn without_a_majority_the_client_starts_with_defaults_after_five_seconds() {
    let bench = Bench::uninitialised(&[0; 3]);
    set_group(&bench.nodes[0], other());
    set_group(&bench.nodes[1], Group::new(3));
    bench.nodes[2].hang(true);
    let before = bench.time.now();
    let client = bench.drive(bench.builder().connect()).await.unwrap();
    assert!(bench.time.now().since(before) <= ms(5_000));
    bench.nodes[2].hang(false);
    // The third node was new, so it gets the values that the client decided on: the defaults.
    let _guard = bench.drive(client.mutex("x").lock()).await.unwrap();
    assert_eq!(group_of(&bench.nodes[2]), Some(Group::new(3)));
}

#[tokio::test]
async fn unsafe_values_of_one_node_are_not_adopted() {
    let bench = Bench::uninitialised(&[0; 3]);
    set_group(&bench.nodes[1], unsafe_values());
    bench.drive(bench.builder().connect()).await.unwrap();
    for normal in [0, 2] {
        assert_eq!(group_of(&bench.nodes[normal]), Some(Group::new(3)));
    }
}

#[tokio::test]
async fn unsafe_values_of_a_majority_are_refused_and_the_error_names_the_nodes() {
    let bench = Bench::uninitialised(&[0; 3]);
    for odd in [0, 2] {
        set_group(&bench.nodes[odd], unsafe_values());
    }
    let error = bench.drive(bench.builder().connect()).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Misconfigured { .. }),
        "{error}"
    );
    let text = format!("{:#}", error.votes().unwrap());
    for word in ["a: ", "c: ", "at least 15s, not 1ms", "ringfence init"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(group_of(&bench.nodes[1]), None, "nothing was written");
}

#[tokio::test]
async fn regrouping_takes_no_unsafe_value_from_the_old_group() {
    let bench = Bench::uninitialised(&[0; 3]);
    let one = Group {
        quarantine: ms(1),
        window: Duration::from_secs(7_200),
        ..Group::new(1)
    };
    set_group(&bench.nodes[0], one);
    bench.time.step(Duration::from_secs(100));
    let done = bench.drive(bench.builder().regroup()).await.unwrap();
    assert_eq!(done.group, Group::new(3).into());
}

#[tokio::test]
async fn a_single_node_needs_no_quarantine() {
    let bench = Bench::uninitialised(&[0]);
    let group = Group {
        quarantine: ms(1),
        ..Group::new(1)
    };
    set_group(&bench.nodes[0], group);
    let client = bench.drive(bench.builder().connect()).await.unwrap();
    let _guard = bench.drive(client.mutex("x").try_lock()).await.unwrap();
}
