//! Waiters are woken although connections break and servers restart, and whatever else is published
//! on the channel.

use std::collections::BTreeMap;

use redis::Commands;
use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence_core::message::{Answer, Ballot, Op, Release, ReleaseKind, Request, Ticket, Wake};

use ringfence_testkit::{Flavor, Server, wait_until_async};

use super::*;
use crate::nodes::support::*;

/// Waits for `wake` and no other wake, without blocking the tokio runtime of the node.
async fn receives(listener: &WakeListener, wake: Wake) {
    let mut received = Vec::new();
    wait_until_async("a wake", PATIENCE, async || {
        received = listener.received();
        !received.is_empty()
    })
    .await;
    assert_eq!(received, [wake]);
}

/// A ticket with the time of `ballot`.
fn since(ballot: Ballot, id: &str) -> Ticket {
    ticket(ballot.get(), id)
}

/// One client holds, another waits, and the first releases: all through `other`.
async fn hold_wait_and_release(other: &RedisNode, ticket: &str) {
    let ballot = ballot(other).await;
    let ticket = since(ballot, ticket);
    let hold = request(&["n"], 1, acquire(ballot, TTL_MS));
    let held = call_until_answered(other, hold).await;
    assert_eq!(held.answer, Answer::Granted);
    let waits = request(&["n"], 2, acquire_with_ticket(ballot, TTL_MS, &ticket));
    let waits = call(other, waits).await.unwrap();
    assert!(matches!(waits.answer, Answer::Held(_)), "{waits:?}");
    let released = call(other, request(&["n"], 1, release(ballot))).await;
    assert_eq!(released.unwrap().answer, Answer::Released);
    // The waiter leaves the queue, which wakes no client, since there is no other waiter.
    let cancel = leave(ballot, ReleaseKind::Undo, Some(&ticket), false);
    call(other, request(&["n"], 2, cancel)).await.unwrap();
}

async fn wakes_arrive_after_breaks_and_restarts(flavor: Flavor) {
    let server = Server::start(flavor);
    let (node, other) = (member(&server).await, member(&server).await);
    let listener = WakeListener::at(&node, "me");
    let other_listener = WakeListener::at(&node, "her.self");
    ballot(&node).await;
    hold_wait_and_release(&other, "me.1").await;
    receives(&listener, wake("me.1", 0)).await;
    hold_wait_and_release(&other, "her.self.2").await;
    receives(&other_listener, wake("her.self.2", 0)).await;

    // The connection is cut: the next one subscribes by itself.
    let killed = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(killed, "1");
    call_until_answered(&node, inspect(&["n"])).await;
    hold_wait_and_release(&other, "me.3").await;
    receives(&listener, wake("me.3", 0)).await;

    // A restarted server has no subscriptions any more.
    server.restart();
    call_until_answered(&node, inspect(&["n"])).await;
    hold_wait_and_release(&other, "her.self.4").await;
    receives(&other_listener, wake("her.self.4", 0)).await;
    assert_eq!(
        (listener.received(), other_listener.received()),
        (vec![], vec![])
    );
}

#[tokio::test]
async fn wakes_arrive_after_breaks_and_restarts_on_redis() {
    wakes_arrive_after_breaks_and_restarts(Flavor::Redis).await;
}

#[tokio::test]
async fn wakes_arrive_after_breaks_and_restarts_on_valkey() {
    wakes_arrive_after_breaks_and_restarts(Flavor::Valkey).await;
}

#[tokio::test]
async fn a_listener_added_before_the_connection_receives_wakes() {
    let server = Server::start(Flavor::Redis);
    let node = node(&server.url());
    let listener = WakeListener::at(&node, "me");
    join(&node, group()).await.unwrap();
    hold_wait_and_release(&node, "me.1").await;
    receives(&listener, wake("me.1", 0)).await;
}

#[tokio::test]
async fn a_node_with_a_client_of_the_user_receives_wakes() {
    let server = Server::start(Flavor::Redis);
    let client = redis::Client::open(server.url()).unwrap();
    let node = RedisNode::from_client(client, "mine", Clock::System).unwrap();
    join(&node, group()).await.unwrap();
    let listener = WakeListener::at(&node, "me");
    hold_wait_and_release(&node, "me.1").await;
    receives(&listener, wake("me.1", 0)).await;
}

#[tokio::test]
async fn a_node_without_listeners_does_not_subscribe() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    hold_wait_and_release(&node, "me.1").await;
    assert_eq!(server.command(&["PUBSUB", "CHANNELS"]), "");
}

#[tokio::test]
async fn noise_on_the_channel_is_ignored() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let listener = WakeListener::at(&node, "me");
    ballot(&node).await;
    let mut client = client(&server);
    let long = "9".repeat(1 << 20);
    for noise in [
        "",
        "0",
        "0 you.1",
        "soon me.1",
        "0 me.x",
        "\0\u{feff}",
        &long,
    ] {
        let _: u32 = client.publish("ringfence:wake:me", noise).unwrap();
    }
    let _: u32 = client
        .publish("ringfence:wake:me", b"0 me.\xff".as_slice())
        .unwrap();
    hold_wait_and_release(&node, "me.1").await;
    receives(&listener, wake("me.1", 0)).await;
    assert_eq!(listener.received(), []);
}

#[tokio::test]
async fn locks_work_without_wakes_if_channels_are_forbidden() {
    let server = Server::start(Flavor::Redis);
    let user = "ACL SETUSER lock on >pw ~* +@all resetchannels";
    server.command(&user.split_whitespace().collect::<Vec<_>>());
    let node = node(&server.url_as("lock", "pw"));
    join(&node, group()).await.unwrap();
    let listener = WakeListener::at(&node, "me");
    hold_wait_and_release(&node, "me.1").await;
    assert_eq!(listener.received(), []);
}

#[tokio::test]
async fn a_waiter_needs_these_rights_only() {
    let server = Server::start(Flavor::Redis);
    let user = "ACL SETUSER lock on >pw ~* \
        +info +eval +evalsha +time +get +set +mget +pttl +pexpire +del +exists +zadd \
        +zrem +zrank +zcard +zrange +zrangebyscore +zscore +zlexcount +zcount +publish +subscribe \
        &ringfence:wake:*";
    server.command(&user.split_whitespace().collect::<Vec<_>>());
    let node = node(&server.url_as("lock", "pw"));
    join(&node, group()).await.unwrap();
    let listener = WakeListener::at(&node, "me");
    hold_wait_and_release(&node, "me.1").await;
    receives(&listener, wake("me.1", 0)).await;
}

#[tokio::test]
async fn locks_work_on_a_server_that_cannot_push() {
    let server = Server::builder(Flavor::Redis)
        .arg("--rename-command HELLO", "")
        .start();
    let node = member(&server).await;
    let _listener = WakeListener::at(&node, "me");
    hold_wait_and_release(&node, "me.1").await;
}

#[tokio::test]
async fn a_new_ticket_may_be_at_most_one_second_old() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let now = ballot(&node).await;
    // Another client holds: a grant would remove the ticket from the queue.
    let held = call(&node, request(&["n"], 2, acquire(now, TTL_MS))).await;
    assert_eq!(held.unwrap().answer, Answer::Granted);
    for (age_us, first, too_old) in [
        (500_000, true, false),
        (1_000_001, true, true),
        (9_000_000, false, false),
        // Now the ticket is in the queue, and its age does not matter.
        (9_000_000, true, false),
    ] {
        let shown = Ticket {
            first,
            ..ticket(now.get() - age_us, "me.1")
        };
        let acquire_request = request(&["n"], 1, acquire_with_ticket(now, TTL_MS, &shown));
        let answer = call(&node, acquire_request).await.unwrap().answer;
        assert_eq!(answer == Answer::TicketOld, too_old, "{age_us}: {answer:?}");
    }
}

/// How often each command was called, also by scripts.
fn calls(client: &mut redis::Connection) -> BTreeMap<String, u64> {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(client)
        .unwrap();
    let stats = stats.lines().filter_map(|line| {
        let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = numbers.split(',').next()?.parse().ok()?;
        Some((name.to_owned(), calls))
    });
    stats.filter(|(name, _)| name != "info").collect()
}

/// The commands that `request` makes the server execute.
async fn cost(node: &RedisNode, client: &mut redis::Connection, request: Request) -> Vec<String> {
    let before = calls(client);
    call(node, request).await.unwrap();
    let after = calls(client).into_iter().flat_map(|(name, calls)| {
        let more = calls - before.get(&name).copied().unwrap_or(0);
        std::iter::repeat_n(name, more as usize)
    });
    after.filter(|name| name != "evalsha").collect()
}

#[tokio::test]
async fn an_uncontended_acquire_executes_four_commands_and_its_release_three() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        for _ in 0..2 {
            let ballot = ballot(&node).await;
            let acquire = request(&["n"], 1, acquire(ballot, TTL_MS));
            let cost_of_it = cost(&node, &mut client, acquire).await;
            assert_eq!(cost_of_it, ["mget", "set", "set", "time"]);
            let release = request(&["n"], 1, release(ballot));
            let cost_of_it = cost(&node, &mut client, release).await;
            assert_eq!(cost_of_it, ["del", "mget", "time"]);
            // The same after a queue has been used and is empty again.
            hold_wait_and_release(&node, "me.1").await;
        }
    }
}

#[tokio::test]
async fn a_queue_of_a_thousand_needs_no_more_commands_than_a_queue_of_two() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let ballot = ballot(&node).await;
    let granted = call(&node, request(&["n"], 1, acquire(ballot, TTL_MS))).await;
    assert_eq!(granted.unwrap().answer, Answer::Granted);
    let mut costs = Vec::new();
    for many in [2, 1_000] {
        let tickets = (0..many).map(|n| since(ballot, &format!("me.{n}")));
        let tickets: Vec<Ticket> = tickets.collect();
        let all: Vec<&Ticket> = tickets.iter().collect();
        let turns = call(&node, request(&["n"], 2, refresh(&all)))
            .await
            .unwrap()
            .answer;
        let Answer::Turns(turns) = turns else {
            panic!("{turns:?}");
        };
        let last = turns.iter().map(|turn| turn.ahead).max();
        assert_eq!((turns.len(), last), (many, Some(many as u64 - 1)));
        let again = request(&["n"], 2, acquire_with_ticket(ballot, TTL_MS, &tickets[1]));
        let undo = Op::Release(Release {
            ballot,
            kind: ReleaseKind::Undo,
            fate_unknown: true,
            ticket: Some(tickets[1].clone()),
            stays: true,
            keep_ms: None,
            delay_ms: 0,
        });
        let undo = request(&["n"], 2, undo);
        costs.push((
            cost(&node, &mut client, again).await,
            cost(&node, &mut client, undo).await,
        ));
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0].0.len() <= 8, "{costs:?}");
}

#[tokio::test]
async fn every_key_of_a_queue_expires() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let ballot = ballot(&node).await;
    call(&node, request(&["b"], 1, acquire(ballot, TTL_MS)))
        .await
        .unwrap();
    let waits = acquire_with_ticket(ballot, TTL_MS, &since(ballot, "me.1"));
    call(&node, request(&["a", "b"], 2, waits)).await.unwrap();
    let keys: Vec<String> = client.keys("*").unwrap();
    assert_eq!(keys.len(), 9, "{keys:?}");
    for key in keys.iter().filter(|key| *key != "ringfence:born") {
        let left_ms: i64 = client.pttl(key).unwrap();
        assert!(left_ms > 3_000, "{key}: {left_ms}");
    }
}
