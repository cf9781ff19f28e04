//! Latches: shut until enough parties have arrived, then open for every client.

use std::pin::pin;
use std::time::Duration;

use ringfence::{LatchError, Locks};
use ringfence_core::message::Op;

use crate::rules::bench::{Bench, at_once, idle, ms, poll_once, unreachable, waits};

/// Longer than the default quarantine.
const PAST_QUARANTINE: Duration = Duration::from_secs(37);

/// Waits at the latch without any patience: the error contains how many parties have arrived.
async fn look(bench: &Bench, locks: &Locks, count: u32) -> Result<(), LatchError> {
    bench
        .drive(locks.latch("x", count).wait(Duration::ZERO).opened())
        .await
}

async fn arrive(locks: &Locks, count: u32, party: &str) -> (u64, u64) {
    let latch = locks.latch("x", count).party(party);
    let arrival = at_once(latch.arrive()).await.unwrap();
    assert_eq!(arrival.is_open(), arrival.missing == 0);
    (arrival.arrived, arrival.missing)
}

fn arrived(outcome: Result<(), LatchError>) -> u64 {
    match outcome {
        Err(LatchError::Shut { arrived, .. }) => arrived,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn latch_opens_when_the_last_party_has_arrived_and_wakes_waiters() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    let latch = other.latch("x", 3);
    let mut waiting = pin!(latch.opened());
    assert!(waits(waiting.as_mut()).await);
    assert_eq!(arrive(&one, 3, "a").await, (1, 2));
    assert_eq!(arrive(&other, 3, "b").await, (2, 1));
    assert!(waits(waiting.as_mut()).await);
    assert_eq!(arrive(&one, 3, "c").await, (3, 0));
    at_once(waiting).await.unwrap();
    at_once(one.latch("x", 3).opened()).await.unwrap();
}

#[tokio::test]
async fn latch_that_is_shut_reports_how_many_parties_have_arrived() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    arrive(&locks, 2, "a").await;
    let error = look(&bench, &locks, 2).await.unwrap_err();
    assert_eq!(error.to_string(), "`x` is shut: 1 of 2 have arrived");
    let votes = format!("{:#}", error.votes().unwrap());
    assert_eq!(votes, "a: answers\nb: answers\nc: answers");
    assert!(error.is_retryable());
    let start = bench.time.now();
    let waiting = locks.latch("x", 2).wait(ms(700));
    assert_eq!(arrived(bench.drive(waiting.opened()).await), 1);
    let took = bench.time.now().since(start);
    assert!(took >= ms(700) && took < ms(720), "{took:?}");
}

#[tokio::test]
async fn latch_counts_an_arrival_whose_replies_were_lost_only_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    arrive(&locks, 3, "a").await;
    let latch = locks.latch("x", 3).no_quorum_after(ms(300));
    bench.nodes.iter().for_each(|node| node.lose_replies(true));
    let error = bench.drive(latch.arrive()).await.unwrap_err();
    assert!(matches!(error, LatchError::NoQuorum { .. }), "{error}");
    assert_eq!(error.votes().unwrap().len(), 3);
    bench.mend();
    let again = at_once(latch.arrive()).await.unwrap();
    assert_eq!((again.arrived, again.missing), (2, 1));
    // A clone is the same party; another handle of the same name is another party.
    at_once(latch.clone().arrive()).await.unwrap();
    assert_eq!(arrived(look(&bench, &locks, 3).await), 2);
    at_once(locks.latch("x", 3).arrive()).await.unwrap();
    look(&bench, &locks, 3).await.unwrap();
}

#[tokio::test]
async fn latch_arrives_only_with_a_majority() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    arrive(&locks, 2, "a").await;
    bench.break_first(2);
    let latch = locks.latch("x", 2).no_quorum_after(ms(100));
    let error = bench.drive(latch.arrive()).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(
        text,
        "no majority of the nodes can tell who has arrived at `x`"
    );
    let votes = format!("{:#}", error.votes().unwrap());
    let lines: Vec<&str> = votes.lines().collect();
    assert_eq!(lines.len(), 3, "{votes}");
    assert!(lines[0].starts_with("a: ") && lines[0].contains("connection refused"));
    assert_eq!(lines[2], "c: answers");
}

/// This holds whichever minority fails or loses its data afterwards.
#[tokio::test]
async fn latch_once_seen_open_is_open_for_every_client() {
    for lost in 0..3 {
        for seen_by in 0..3 {
            let bench = Bench::new(3).await;
            let locks = bench.client().await;
            // Each party arrives on a different majority.
            for (party, away) in [("a", 0), ("b", 1), ("c", 2)] {
                bench.nodes[away].fail_with(Some(unreachable()));
                let latch = locks.latch("x", 3).party(party);
                bench.drive(latch.arrive()).await.unwrap();
                bench.mend();
            }
            // The client that sees it open reaches two nodes only.
            bench.nodes[seen_by].fail_with(Some(unreachable()));
            look(&bench, &locks, 3).await.unwrap();
            bench.mend();
            bench.nodes[lost].forget();
            bench.pass_in(PAST_QUARANTINE, ms(500)).await;
            let new_client = bench.client().await;
            look(&bench, &new_client, 3).await.unwrap();
            look(&bench, &locks, 3).await.unwrap();
        }
    }
}

#[tokio::test]
async fn latch_gets_no_vote_from_a_node_that_restarted_after_it_was_made() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    arrive(&locks, 2, "a").await;
    bench.nodes[0].forget();
    assert_eq!(arrived(look(&bench, &locks, 2).await), 1);
    bench.pass_in(PAST_QUARANTINE, ms(500)).await;
    // The node votes on locks again.
    bench.nodes[1].fail_with(Some(unreachable()));
    drop(at_once(locks.mutex("x").lock()).await.unwrap());
    let error = look(&bench, &locks, 2).await.unwrap_err();
    let LatchError::NoQuorum { votes, .. } = &error else {
        panic!("{error}");
    };
    let text = votes[0].said();
    assert_eq!(
        text,
        "new or restarted since the latch was made, does not vote on it"
    );
    // It votes on a latch that was made after its restart.
    bench.mend();
    let younger = locks.latch("y", 1);
    at_once(younger.arrive()).await.unwrap();
    bench.nodes[1].fail_with(Some(unreachable()));
    bench.drive(younger.opened()).await.unwrap();
}

/// The two nodes that answer may have lost the latch; the third, which has it, is unreachable.
#[tokio::test]
async fn latch_is_not_made_again_by_nodes_that_may_have_lost_it() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes[2].fail_with(Some(unreachable()));
    let life = Duration::from_secs(600);
    let of = |party: &str| locks.latch("x", 2).party(party).ttl(life);
    bench.drive(of("a").arrive()).await.unwrap();
    bench.mend();
    bench.nodes[1].forget();
    bench.pass_in(PAST_QUARANTINE, ms(500)).await;
    bench.nodes[0].fail_with(Some(unreachable()));
    let error = bench
        .drive(of("b").no_quorum_after(ms(100)).arrive())
        .await
        .unwrap_err();
    assert!(matches!(error, LatchError::Quarantined { .. }), "{error}");
    bench.mend();
    let arrival = bench.drive(of("b").arrive()).await.unwrap();
    assert_eq!(arrival.arrived, 2, "{arrival:?}");
}

#[tokio::test]
async fn latch_of_nodes_that_may_have_forgotten_it_fails_at_once_and_a_shorter_ttl_is_suggested() {
    let bench = Bench::uninitialised(&[0, 0, 0]);
    let locks = bench.client().await;
    let life = Duration::from_secs(100);
    let latch = locks.latch("x", 1).ttl(life);
    let error = at_once(latch.arrive()).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(
        text,
        "`x`: nodes a, b, c were new or restarted less than the latch's ttl ago and may have \
         forgotten it; they may vote on it in 137 s; a latch with a shorter ttl waits for less"
    );
    let shorter = locks.latch("x", 1).ttl(Duration::from_secs(10));
    let error = at_once(shorter.arrive()).await.unwrap_err();
    assert!(error.to_string().contains("vote on it in 47 s"), "{error}");
    // A client that waits long enough succeeds without `init`.
    let latch = latch.wait(Duration::from_secs(200));
    let mut waiting = pin!(latch.opened());
    assert!(waits(waiting.as_mut()).await);
    bench.pass_in(Duration::from_secs(138), ms(500)).await;
    at_once(locks.latch("x", 1).ttl(life).arrive())
        .await
        .unwrap();
    bench.drive(waiting).await.unwrap();
}

#[tokio::test]
async fn latch_on_one_node_needs_no_quarantine() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    arrive(&locks, 2, "a").await;
    bench.nodes[0].forget();
    assert_eq!(arrive(&locks, 2, "b").await, (1, 1));
}

#[tokio::test]
async fn latch_ends_with_its_ttl_unless_a_client_waits() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let life = Duration::from_secs(10);
    let of = |party: &str| locks.latch("x", 2).party(party).ttl(life);
    at_once(of("a").arrive()).await.unwrap();
    {
        let latch = of("");
        let mut waiting = pin!(latch.opened());
        assert!(waits(waiting.as_mut()).await);
        bench.pass_in(life * 3, ms(100)).await;
        assert!(waits(waiting.as_mut()).await);
    }
    bench.pass_in(life - ms(1_000), ms(100)).await;
    let seen = bench.drive(of("").wait(Duration::ZERO).opened()).await;
    assert_eq!(arrived(seen), 1);
    bench.pass_in(life + ms(100), ms(100)).await;
    let seen = bench.drive(of("").wait(Duration::ZERO).opened()).await;
    assert_eq!(arrived(seen), 0);
}

#[tokio::test]
async fn latch_is_found_open_within_a_second_when_every_wake_is_lost() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    bench.nodes.iter().for_each(|node| node.lose_wakes(true));
    let latch = other.latch("x", 1);
    let mut waiting = pin!(latch.opened());
    assert!(waits(waiting.as_mut()).await);
    at_once(one.latch("x", 1).arrive()).await.unwrap();
    let start = bench.time.now();
    bench.drive(waiting).await.unwrap();
    let took = bench.time.now().since(start);
    assert!(took <= ms(1_000), "{took:?}");
}

/// The client that made the latch complete does not count it as open, so it writes nothing back.
#[tokio::test]
async fn latch_is_found_open_by_a_waiter_although_no_node_has_all_parties() {
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    at_once(one.latch("x", 4).party("first").arrive())
        .await
        .unwrap();
    let latch = other.latch("x", 4);
    let mut waiting = pin!(latch.opened());
    assert!(waits(waiting.as_mut()).await);
    for (party, away) in [("a", 0), ("b", 1), ("c", 2)] {
        bench.nodes[away].fail_with(Some(unreachable()));
        // With its own number the latch is not open yet, so the client writes nothing back.
        let latch = one.latch("x", 9).party(party);
        bench.drive(latch.arrive()).await.unwrap();
        bench.mend();
    }
    bench.drive(waiting).await.unwrap();
    look(&bench, &one, 4).await.unwrap();
}

#[tokio::test]
async fn latch_wait_that_is_dropped_sends_no_more_requests() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    {
        let latch = locks.latch("x", 2);
        let mut waiting = pin!(latch.opened());
        assert!(waits(waiting.as_mut()).await);
        bench.pass(ms(2_000)).await;
    }
    bench.pass(ms(1_000)).await;
    bench.log_operations();
    bench.pass(ms(5_000)).await;
    let sent = bench.count(|op| matches!(op, Op::Attend { .. }));
    assert_eq!(sent, [0, 0, 0]);
    // And other clients can still use the latch.
    arrive(&locks, 1, "a").await;
    look(&bench, &locks, 1).await.unwrap();
}

#[tokio::test]
async fn latch_arrival_that_is_dropped_and_repeated_counts_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    arrive(&locks, 3, "a").await;
    let latch = locks.latch("x", 3);
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    {
        let mut arriving = pin!(latch.arrive());
        assert!(poll_once(arriving.as_mut()).await.is_pending());
    }
    bench.mend();
    idle().await;
    assert_eq!(arrived(look(&bench, &locks, 3).await), 2, "it counts");
    at_once(latch.arrive()).await.unwrap();
    assert_eq!(arrived(look(&bench, &locks, 3).await), 2, "once");
}

#[tokio::test]
async fn latch_wait_is_cancelled_when_the_client_is_closed() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let latch = locks.latch("x", 2);
    let mut waiting = pin!(latch.opened());
    assert!(waits(waiting.as_mut()).await);
    at_once(locks.clone().close()).await;
    let error = at_once(waiting).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the client was closed while it waited at `x`"
    );
    let error = at_once(latch.arrive()).await.unwrap_err();
    assert!(matches!(error, LatchError::Closed { .. }), "{error}");
    assert!(!error.is_retryable() && error.votes().is_none());
}

/// A rolling deployment changes the number of parties.
#[tokio::test]
async fn latch_is_open_for_each_client_by_its_own_number_of_parties() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    assert_eq!(arrive(&locks, 2, "a").await, (1, 1));
    assert_eq!(arrive(&locks, 3, "b").await, (2, 1));
    look(&bench, &locks, 2).await.unwrap();
    assert_eq!(arrived(look(&bench, &locks, 3).await), 2);
    assert_eq!(arrive(&locks, 2, "c").await, (3, 0));
    look(&bench, &locks, 3).await.unwrap();
}

#[tokio::test]
async fn latch_waiters_of_one_client_are_refreshed_together() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let waiters: Vec<_> = (0..50)
        .map(|_| {
            let latch = locks.latch("x", 1);
            tokio::spawn(async move { latch.opened().await })
        })
        .collect();
    bench.pass(ms(2_000)).await;
    bench.log_operations();
    bench.pass(ms(10_000)).await;
    let sent = bench.count(|op| matches!(op, Op::Attend { .. }));
    assert!(sent.iter().all(|&sent| sent <= 12), "{sent:?}");
    at_once(locks.latch("x", 1).arrive()).await.unwrap();
    for waiter in waiters {
        at_once(waiter).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn latch_and_lock_of_one_name_are_independent() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let _guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let _permit = at_once(locks.semaphore("x", 1).acquire()).await.unwrap();
    assert_eq!(arrive(&locks, 1, "a").await, (1, 0));
}

#[tokio::test]
async fn latch_refuses_invalid_arguments() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let long = "p".repeat(257);
    for (latch, why) in [
        (locks.latch("x", 0), "1 to 1024 parties, this one for 0"),
        (
            locks.latch("x", 1025),
            "1 to 1024 parties, this one for 1025",
        ),
        (locks.latch("", 1), "must not be empty"),
        (locks.latch("ringfence:x", 1), "kept for ringfence"),
        (locks.latch("x", 1).ttl(ms(2_999)), "at least 3s"),
        (locks.latch("x", 1).ttl(Duration::MAX), "longest ttl"),
        (locks.latch("x", 1).party(""), "1 to 256 bytes"),
        (locks.latch("x", 1).party(&long), "this one has 257"),
    ] {
        let error = at_once(latch.arrive()).await.unwrap_err();
        assert!(matches!(error, LatchError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(bench.nodes[0].entries().is_empty());
}
