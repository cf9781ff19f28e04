//! Rule 7: extending, failed extensions, and restoring the lock on nodes that lost it.

use ringfence::{ExtendError, Lost};
use ringfence_core::message::Op;
use ringfence_core::protocol::Vote;

use crate::rules::bench::{Bench, assert_lost, at_once, foreign, idle, ms};

#[tokio::test]
async fn rule_7_a_failed_extend_never_releases() {
    for renewed in [false, true] {
        let bench = Bench::new(3).await;
        let guard = bench.lock_x_with(|lock| lock.renew(renewed)).await;
        let deadline = guard.exact_deadline();
        bench.log_operations();
        bench.break_first(2);
        let error = at_once(guard.extend(ms(10_000))).await.unwrap_err();
        assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error}");
        bench.pass(ms(5000)).await;
        assert_eq!((guard.check(), guard.exact_deadline()), (Ok(()), deadline));
        assert_eq!(bench.held_by("x", &guard), 3);
        assert_eq!(bench.count(|op| matches!(op, Op::Release { .. })), [0; 3]);
        bench.mend();
        at_once(guard.extend(ms(10_000))).await.unwrap();
        assert!(guard.exact_deadline() > deadline);
    }
}

#[tokio::test]
async fn rule_7_only_nodes_that_hold_our_token_count() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    let deadline = guard.exact_deadline();
    bench.time.step(ms(1000));
    // One node has the key, one lost it, one does not answer: that is one of three.
    bench.delete(0, "x", guard.token());
    bench.nodes[1].fail_with(Some(crate::rules::bench::unreachable()));
    let error = at_once(guard.extend(ms(10_000))).await.unwrap_err();
    let ExtendError::Unconfirmed { votes } = error else {
        panic!("{error}");
    };
    assert_eq!(
        (&votes[0].vote, &votes[2].vote),
        (&Vote::Gone, &Vote::Granted)
    );
    assert_eq!(guard.exact_deadline(), deadline);
    // A restored node counts from the next round on.
    at_once(guard.extend(ms(10_000))).await.unwrap();
    assert!(guard.exact_deadline() > deadline);
}

#[tokio::test]
async fn rule_7_a_key_that_another_client_holds_does_not_count() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    for node in [0, 1] {
        bench.delete(node, "x", guard.token());
        bench.occupy(node, "x", &foreign(1), 60_000);
    }
    let error = at_once(guard.extend(ms(10_000))).await.unwrap_err();
    assert_lost(&error, Lost::Gone);
    assert_eq!(guard.check(), Err(Lost::Gone));
    idle().await;
    let theirs = Some(foreign(1).expose().to_owned());
    assert_eq!(
        bench.keys("x")[..2],
        [theirs.clone(), theirs],
        "and is left unchanged"
    );
}

#[tokio::test]
async fn rule_7_nodes_that_lost_the_key_are_restored() {
    let bench = Bench::new(5).await;
    let guard = bench.lock_x_with(|lock| lock.ttl(ms(9000))).await;
    for node in [1, 4] {
        bench.delete(node, "x", guard.token());
    }
    bench.pass(ms(3000)).await;
    assert_eq!(bench.held_by("x", &guard), 5, "by the renewal");
    bench.delete(2, "x", guard.token());
    at_once(guard.extend(ms(9000))).await.unwrap();
    assert_eq!(bench.held_by("x", &guard), 5, "by the caller's own extend");
    at_once(guard.extend(ms(9000))).await.unwrap();
    assert!(guard.votes().iter().all(|node| node.vote == Vote::Granted));
    at_once(guard.release()).await.unwrap();
    assert_eq!(bench.holding("x"), 0, "what was restored is released");
}

#[tokio::test]
async fn rule_7_a_node_that_answers_late_is_restored_late() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.delete(2, "x", guard.token());
    bench.nodes[2].hang(true);
    at_once(guard.extend(ms(10_000))).await.unwrap();
    bench.nodes[2].hang(false);
    assert_eq!(bench.held_by("x", &guard), 3);
}

#[tokio::test]
async fn rule_7_nothing_is_restored_after_the_release() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.delete(2, "x", guard.token());
    bench.nodes[2].hang(true);
    at_once(guard.extend(ms(10_000))).await.unwrap();
    at_once(guard.release()).await.unwrap();
    bench.log_operations();
    bench.nodes[2].hang(false);
    idle().await;
    assert_eq!(bench.holding("x"), 0);
    let restores = bench.count(|op| matches!(op, Op::Restore { .. }));
    assert_eq!(restores, [0; 3], "and no restore is sent");
}

#[tokio::test]
async fn rule_7_an_extend_that_finds_no_key_on_any_node_proves_the_loss() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    for node in 0..3 {
        bench.delete(node, "x", guard.token());
    }
    let error = at_once(guard.extend(ms(10_000))).await.unwrap_err();
    assert_lost(&error, Lost::Gone);
    assert_eq!(
        bench.holding("x"),
        0,
        "a lost lock is not acquired again without the caller's knowledge"
    );
}

#[tokio::test]
async fn rule_9_an_expired_lock_is_not_revived_by_a_late_confirmation() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    let deadline = guard.exact_deadline();
    bench.time.step(ms(8000));
    for node in &bench.nodes {
        node.hold_replies(true);
    }
    let error = bench.drive(guard.extend(ms(10_000))).await.unwrap_err();
    assert!(matches!(error, ExtendError::Unconfirmed { .. }), "{error}");
    // The hold has not been polled since its deadline, and now all nodes confirm.
    bench.time.step(ms(2000));
    bench.mend();
    assert_eq!(
        (guard.check(), guard.exact_deadline()),
        (Err(Lost::Expired), deadline)
    );
}

#[tokio::test]
async fn rule_7_an_expired_lock_is_not_extended() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x_with(|lock| lock.renew(false)).await;
    bench.log_operations();
    // The deadline has passed, although the nodes still have the key.
    bench.time.step(ms(9950));
    assert_eq!(bench.held_by("x", &guard), 3);
    let error = at_once(guard.extend(ms(10_000))).await.unwrap_err();
    assert_lost(&error, Lost::Expired);
    assert_eq!(bench.count(|_| true), [0; 3], "nothing was sent");
}
