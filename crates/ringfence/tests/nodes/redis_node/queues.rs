//! What a server stores of a wait queue, and how other programs' changes to it are handled.

use redis::Commands;
use ringfence_core::message::{Answer, Holder, Ticket};
use ringfence_testkit::{Flavor, Server};

use super::*;
use crate::nodes::redis_ledger::line_keys;
use crate::nodes::support::*;

const CAROL: u8 = 0xcc;

/// Alice holds `n`; Bob (`b.1`) and Carol (`c.1`) wait for it.
async fn two_wait(node: &RedisNode) -> (Ticket, Ticket) {
    let ballot = ballot(node).await;
    let held = call(node, request(&["n"], ALICE, acquire(ballot, TTL_MS))).await;
    assert_eq!(held.unwrap().answer, Answer::Granted);
    let (bob, carol) = (ticket(ballot.get(), "b.1"), ticket(ballot.get() + 1, "c.1"));
    assert_eq!(holder_seen_by(node, BOB, &bob).await.ahead, 0);
    assert_eq!(holder_seen_by(node, CAROL, &carol).await.ahead, 1);
    (bob, carol)
}

/// The holder of `n`, as reported to `client`, which acquires with the ticket `place`.
async fn holder_seen_by(node: &RedisNode, client: u8, ticket: &Ticket) -> Holder {
    let op = acquire_with_ticket(ballot(node).await, TTL_MS, ticket);
    match call(node, request(&["n"], client, op))
        .await
        .unwrap()
        .answer
    {
        Answer::Held(holder) => holder,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_expired_ticket_is_not_counted_as_ahead() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let (bob, carol) = two_wait(&node).await;
    let [_, _, lease] = line_keys("n");
    let member = format!("{:020}{}\n{}", bob.since_us, bob.id, bob.label);
    let _: () = client(&server).zadd(lease, member, 1).unwrap();
    assert_eq!(holder_seen_by(&node, CAROL, &carol).await.ahead, 0);
}

#[tokio::test]
async fn a_holder_that_is_not_in_the_record_has_no_label() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let (_, carol) = two_wait(&node).await;
    assert_eq!(
        holder_seen_by(&node, CAROL, &carol).await.label.as_deref(),
        Some("job")
    );
    let stranger = token(9).expose().to_owned();
    let _: () = client(&server).set("n", stranger).unwrap();
    let holder = holder_seen_by(&node, CAROL, &carol).await;
    assert_eq!((holder.label, holder.for_ms), (None, None));
}

#[tokio::test]
async fn an_acquire_with_a_ticket_extends_the_expiry_of_the_queue() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let (_, carol) = two_wait(&node).await;
    let mut client = client(&server);
    let soon_ms = ballot(&node).await.get() / 1000 + 1_000;
    let [mark, ..] = line_keys("n");
    let _: () = client.set(mark, soon_ms).unwrap();
    for key in line_keys("n") {
        let _: () = client.pexpire_at(key, soon_ms as i64).unwrap();
    }
    holder_seen_by(&node, CAROL, &carol).await;
    for key in line_keys("n") {
        let left: u64 = client.pttl(&key).unwrap();
        assert!(left > 3_000, "{key} for {left} ms");
    }
}
