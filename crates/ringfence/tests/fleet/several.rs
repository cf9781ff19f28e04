//! Several names at once on real servers: no deadlock, and never a part of a set on any node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::node::{Call, CallError, Completion, Deliver, Node};
use ringfence::url::{NodeUrl, parse_nodes};
use ringfence::{Locks, ReleaseError};
use ringfence_core::group::Group;
use ringfence_core::message::{Answer, Claim, Mode, Op, Reply, Request};
use ringfence_core::name::Name;
use ringfence_core::token::{TOKEN_ENTROPY_BYTES, Token};
use ringfence_testkit::{Fleet, Server};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::fleet::stage::*;

const CLIENTS: u64 = 20;
const ROUNDS: usize = 15;
const NAMES: usize = 6;

fn name(number: usize) -> String {
    format!("n{number}")
}

/// A random, non-empty set of the names in a random order, decided by `dice`.
fn some_names(dice: &mut u64) -> Vec<String> {
    loop {
        *dice = dice.wrapping_mul(6_364_136_223_846_793_005);
        *dice = dice.wrapping_add(1_442_695_040_888_963_407);
        let (which, turned) = (*dice >> 40, *dice >> 39 & 1 == 1);
        let names = (0..NAMES).filter(|number| which >> number & 1 == 1);
        let mut names: Vec<String> = names.map(name).collect();
        if turned {
            names.reverse();
        }
        if !names.is_empty() {
            return names;
        }
    }
}

/// Takes sets of names again and again. The label lists the names, for the observer of the nodes.
async fn take_sets(locks: Locks, client: u64, inside: Arc<Mutex<BTreeSet<String>>>) {
    let mut dice = client;
    for _ in 0..ROUNDS {
        let names = some_names(&mut dice);
        let lock = locks.multi(&names).label(&names.join(" "));
        let guard = lock.wait(2 * PATIENCE).lock().await.unwrap();
        for name in &names {
            assert!(
                inside.lock().unwrap().insert(name.clone()),
                "two holders of {name}"
            );
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        for name in &names {
            inside.lock().unwrap().remove(name);
        }
        // On a busy machine too few nodes may answer in time; the set is released all the same.
        let released = guard.release().await;
        assert!(
            matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
            "{released:?}"
        );
    }
    locks.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_sets_of_20_clients_never_deadlock_and_are_never_held_in_part() {
    let fleet = Fleet::start(5);
    let inside = Arc::default();
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        tasks.spawn(take_sets(
            client_of(&fleet).await,
            client,
            Arc::clone(&inside),
        ));
    }
    let mut observers = Vec::new();
    for server in fleet.iter() {
        observers.push(NodeObserver::at(server).await);
    }
    let mut seen = 0;
    while !tasks.is_empty() {
        for observer in &observers {
            seen += observer.assert_whole_sets().await;
        }
        while let Some(done) = tasks.try_join_next() {
            done.unwrap();
        }
    }
    assert!(seen > 20, "only {seen} sets were seen held");
    no_key_remains(fleet.iter()).await;
}

/// Inspects all names of one node at one instant.
struct NodeObserver {
    node: RedisNode,
    everything: Arc<Request>,
}

impl NodeObserver {
    async fn at(server: &Server) -> Self {
        let url = parse_nodes(&server.url_without_quarantine())
            .unwrap()
            .remove(0);
        let NodeUrl::Redis(url) = url else {
            panic!("not a server: {url:?}");
        };
        let node = RedisNode::connect(url, Clock::System).unwrap();
        answer(|done| node.join(Group::new(5), done)).await.unwrap();
        let claims = (0..NAMES).map(|number| Claim {
            name: Name::new("", &name(number)).unwrap(),
            mode: Mode::Exclusive,
        });
        let everything = Arc::new(Request {
            claims: claims.collect(),
            token: Token::from_entropy([0; TOKEN_ENTROPY_BYTES]),
            op: Op::Inspect,
        });
        Self { node, everything }
    }

    /// Asserts that a holder of one name of a set has the whole set and nothing else. Returns the
    /// number of sets that are held.
    async fn assert_whole_sets(&self) -> usize {
        let reply: Reply = answer(|done| {
            self.node.send(Call {
                request: Arc::clone(&self.everything),
                expires: now() + PATIENCE,
                done,
            });
        })
        .await
        .unwrap();
        let Answer::Views(views) = reply.answer else {
            panic!("{:?}", reply.answer);
        };
        let mut sets: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
        for (number, view) in views.into_iter().enumerate() {
            if let Some(holder) = view.holder {
                let (id, label) = (holder.id.unwrap(), holder.label.unwrap());
                let set = sets.entry(id).or_insert((label, Vec::new()));
                set.1.push(name(number));
            }
        }
        for (label, held) in sets.values() {
            let mut wanted: Vec<&str> = label.split(' ').collect();
            wanted.sort_unstable();
            assert_eq!(held, &wanted, "a part of a set is held");
        }
        sets.len()
    }
}

/// The reply of a node.
async fn answer<T: Send + 'static>(ask: impl FnOnce(Completion<T>)) -> Result<T, CallError> {
    let (sender, answered) = oneshot::channel();
    ask(Completion::new(
        Arc::new(Inbox(Mutex::new(Some(sender)))),
        0,
    ));
    answered.await.unwrap()
}

struct Inbox<T>(Mutex<Option<oneshot::Sender<Result<T, CallError>>>>);

impl<T: Send> Deliver<T> for Inbox<T> {
    fn deliver(&self, _tag: u64, outcome: Result<T, CallError>) {
        let sender = self.0.lock().unwrap().take().expect("answered once");
        // The test may have stopped waiting for the reply.
        let _ = sender.send(outcome);
    }
}
