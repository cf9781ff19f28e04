//! Redis and Valkey nodes on real servers.

mod access;
mod birth_rule;
mod bundles;
mod connection;
mod excess;
mod flood;
mod garbage;
mod handshake;
mod queues;
mod replication;
mod search;
mod strangers;
mod wakes;

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::node::{CallError, TroubleKind};
use ringfence::url::{NodeUrl, RedisUrl, parse_nodes};
use ringfence_core::group::Group;
use ringfence_core::message::{Ballot, Op, Reply, Request};
use ringfence_testkit::Server;

use crate::nodes::support::{ALICE, NEVER, PATIENCE, Pending, join, request, send};

pub(crate) fn url(text: &str) -> RedisUrl {
    match parse_nodes(text).unwrap().remove(0) {
        NodeUrl::Redis(url) => url,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn node(text: &str) -> RedisNode {
    RedisNode::connect(url(text), Clock::System).unwrap()
}

/// A connection of the test itself, without the library.
pub(crate) fn client(server: &Server) -> redis::Connection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_connection().unwrap()
}

/// A connection of `user`, whose password is `pw`.
fn client_as(server: &Server, user: &str) -> redis::Connection {
    let client = redis::Client::open(server.url_as(user, "pw")).unwrap();
    client.get_connection().unwrap()
}

pub(crate) fn group() -> Group {
    Group::new(3)
}

/// A node that has joined [`group`].
async fn member(server: &Server) -> RedisNode {
    let node = node(&server.url());
    join(&node, group()).await.unwrap();
    node
}

/// The kind of trouble of a failed call.
fn kind<T: std::fmt::Debug>(outcome: Result<T, CallError>) -> TroubleKind {
    outcome.unwrap_err().trouble().kind
}

pub(crate) fn call(node: &RedisNode, request: Request) -> Pending<Reply> {
    send(node, request, NEVER)
}

pub(crate) fn inspect(names: &[&str]) -> Request {
    request(names, ALICE, Op::Inspect)
}

/// Calls until the node answers.
pub(crate) async fn call_until_answered(node: &RedisNode, request: Request) -> Reply {
    let until = Clock::System.now() + PATIENCE;
    loop {
        match call(node, request.clone()).await {
            Ok(reply) => return reply,
            Err(error) => assert!(Clock::System.now() < until, "still no answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A ballot that the node will accept: its own clock.
async fn ballot(node: &RedisNode) -> Ballot {
    let reply = call_until_answered(node, inspect(&["ballot"])).await;
    Ballot::new(reply.standing.clock_us)
}
