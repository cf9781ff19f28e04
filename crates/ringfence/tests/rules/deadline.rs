//! A hold ends at its deadline: no verdict that is read later moves it, even if no timer ran yet.
//!
//! Each test steps the clock and delivers the replies before the keeper can run.

use std::pin::pin;

use ringfence::Lost;
use ringfence_core::message::Op;

use crate::rules::bench::{Bench, assert_lost, at_once, idle, ms, waits};

#[tokio::test]
async fn an_extend_that_is_read_after_the_deadline_does_not_move_it() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").ttl(ms(2000)).renew(false);
    let guard = at_once(lock.lock()).await.unwrap();
    let deadline = guard.exact_deadline();
    bench.time.step(ms(1900));
    bench.delete(2, "x", guard.token());
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let mut extending = pin!(guard.extend(ms(2000)));
    assert!(waits(extending.as_mut()).await);
    bench.log_operations();
    bench.time.step(ms(100));
    bench.nodes.iter().for_each(|node| node.hold_replies(false));
    assert_eq!(guard.exact_deadline(), deadline);
    assert_eq!(guard.check(), Err(Lost::Expired));
    let error = at_once(extending).await.unwrap_err();
    assert_lost(&error, Lost::Expired);
    idle().await;
    assert_eq!(bench.count(|op| matches!(op, Op::Restore { .. })), [0; 3]);
}

#[tokio::test]
async fn a_renewal_that_is_read_after_the_deadline_does_not_move_it() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").ttl(ms(9000)).lock())
        .await
        .unwrap();
    let deadline = guard.exact_deadline();
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    bench.pass(ms(3000)).await;
    // The process was paused: the keeper's timer did not run either.
    bench.time.step(ms(6000));
    bench.nodes.iter().for_each(|node| node.hold_replies(false));
    assert_eq!(guard.exact_deadline(), deadline);
    assert_eq!(at_once(guard.lost()).await, Lost::Expired);
}

#[tokio::test]
async fn a_proof_of_loss_that_is_read_after_the_deadline_changes_nothing() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x").ttl(ms(2000)).renew(false);
    let guard = at_once(lock.lock()).await.unwrap();
    bench.time.step(ms(1900));
    (0..3).for_each(|node| bench.delete(node, "x", guard.token()));
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let mut extending = pin!(guard.extend(ms(2000)));
    assert!(waits(extending.as_mut()).await);
    bench.time.step(ms(100));
    bench.nodes.iter().for_each(|node| node.hold_replies(false));
    assert_eq!(guard.check(), Err(Lost::Expired));
}

#[tokio::test]
async fn a_downgrade_that_is_read_after_the_deadline_returns_no_read_guard() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lock = locks.rw_lock("x").ttl(ms(2000)).renew(false);
    let writer = at_once(lock.write()).await.unwrap();
    bench.time.step(ms(1900));
    bench.nodes.iter().for_each(|node| node.hold_replies(true));
    let mut downgrading = pin!(writer.downgrade());
    assert!(waits(downgrading.as_mut()).await);
    bench.time.step(ms(100));
    bench.nodes.iter().for_each(|node| node.hold_replies(false));
    assert_eq!(at_once(downgrading).await.unwrap_err(), Lost::Expired);
}
