//! `init` on a server with so many keys of other programs that one script cannot search them all.

use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::redis::RedisNode;
use ringfence::node::{InitMode, TroubleKind};
use ringfence_testkit::{Fault, Flavor, Proxy, Server, wait_until_async};

use super::handshake::refused_as;
use super::*;
use crate::nodes::support::*;

/// A server with more keys than one script searches, and quickly filled.
fn server_with_many_keys() -> Server {
    let server = Server::start(Flavor::Redis);
    let fill = "for i = 1, 50000 do redis.call('SET', 'other:' .. ARGV[1] .. ':' .. i, '') end";
    for part in ["1", "2", "3"] {
        server.command(&["EVAL", fill, "0", part]);
    }
    server
}

async fn take(node: &RedisNode, name: &str) -> Ballot {
    let ballot = ballot(node).await;
    let taken = call(node, request(&[name], 7, acquire(ballot, 60_000))).await;
    assert_eq!(
        taken.unwrap().answer,
        ringfence_core::message::Answer::Granted
    );
    ballot
}

#[tokio::test]
async fn init_finds_every_holder_among_many_other_keys() {
    let server = server_with_many_keys();
    let node = member(&server).await;
    // Several names, so that their keys are at different positions of the search.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let ballot = take(&node, name).await;
        let refused = init(&node, group(), InitMode::Write).await;
        let message = refused_as(refused, TroubleKind::Other);
        assert!(message.contains(&format!("`{name}` by job")), "{message}");
        call(&node, request(&[name], 7, release(ballot)))
            .await
            .unwrap();
    }
    init(&node, group(), InitMode::Write).await.unwrap();
}

#[tokio::test]
async fn a_join_during_the_search_restarts_the_search() {
    let server = server_with_many_keys();
    let proxy = Proxy::in_front_of(&server);
    proxy.replies(Fault::Delay(Duration::from_millis(20)));
    let slow = node(&proxy.url());
    let searching = init(&slow, group(), InitMode::Write);
    let steps = || {
        let stats = server.command(&["INFO", "commandstats"]);
        let eval = stats.lines().find(|line| line.starts_with("cmdstat_eval:"));
        let calls = eval.and_then(|line| line.split(['=', ',']).nth(1)).unwrap();
        calls.parse::<u64>().unwrap()
    };
    let before = steps();
    wait_until_async("the search to be in progress", PATIENCE, async || {
        steps() > before + 2
    })
    .await;
    proxy.replies(Fault::Hold);
    // Several names: the search cannot find all of them unless it starts again.
    let other = member(&server).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        take(&other, name).await;
    }
    proxy.pass();
    let message = refused_as(searching.await, TroubleKind::Other);
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert!(message.contains(&format!("`{name}` by job")), "{message}");
    }
}

#[tokio::test]
async fn init_is_refused_if_the_search_takes_too_long() {
    let server = server_with_many_keys();
    let time = SteppedClock::starting_at(Duration::from_secs(1));
    let clock = Clock::Stepped(time.clone());
    let node = RedisNode::connect(url(&server.url()), clock).unwrap();
    let an_hour_each_time = async {
        loop {
            time.step(Duration::from_secs(3600));
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::select! {
        outcome = init(&node, group(), InitMode::Write) => outcome,
        () = an_hour_each_time => unreachable!("the search does not end"),
    };
    let message = refused_as(outcome, TroubleKind::Other);
    assert!(message.contains("too many keys"), "{message}");
    assert_eq!(server.command(&["EXISTS", "ringfence:born"]), "0");
}
