//! `init` on a server with so many keys of other programs that one script cannot search them all.

use std::time::Duration;

use ringfence::clock::{Clock, SteppedClock};
use ringfence::node::redis::RedisNode;
use ringfence::node::{InitMode, TroubleKind};
use ringfence_testkit::{Fault, Flavor, Proxy, Server, wait_until_async};

use super::handshake::refused_as;
use super::*;
use crate::support::*;

/// More than one script looks at, and quickly made.
fn crowded() -> Server {
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
    let server = crowded();
    let node = member(&server).await;
    // Wherever the server keeps them: the search begins at one end.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let ballot = take(&node, name).await;
        let refused = init(&node, group(), InitMode::Write).await;
        let said = refused_as(refused, TroubleKind::Other);
        assert!(said.contains(&format!("`{name}` by job")), "{said}");
        call(&node, request(&[name], 7, release(ballot)))
            .await
            .unwrap();
    }
    init(&node, group(), InitMode::Write).await.unwrap();
}

#[tokio::test]
async fn a_client_that_joins_during_the_search_makes_it_start_again() {
    let server = crowded();
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
    wait_until_async("the search to be under way", PATIENCE, async || {
        steps() > before + 2
    })
    .await;
    proxy.replies(Fault::Hold);
    // Wherever these are kept: no search can be past all of them and before all of them.
    let other = member(&server).await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        take(&other, name).await;
    }
    proxy.pass();
    let said = refused_as(searching.await, TroubleKind::Other);
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert!(said.contains(&format!("`{name}` by job")), "{said}");
    }
}

#[tokio::test]
async fn a_search_that_takes_too_long_refuses() {
    let server = crowded();
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
        () = an_hour_each_time => unreachable!("it goes on for ever"),
    };
    let said = refused_as(outcome, TroubleKind::Other);
    assert!(said.contains("too many keys"), "{said}");
    assert_eq!(server.command(&["EXISTS", "ringfence:born"]), "0");
}
