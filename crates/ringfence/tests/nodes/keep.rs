//! A release that keeps the lock from other clients, on every kind of node.

use ringfence_core::message::{Answer, Op, PlainExtend, Release};

use crate::nodes::stages::{self, Stage};
use crate::nodes::support::*;

fn no_client_can_use_a_kept_lock_until_its_time_is_over(stage: &Stage) {
    const KEEP_MS: u64 = 1_000;
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    assert_eq!(
        ask(node, "x", ALICE, acquire(ballot, TTL_MS)),
        Answer::Granted
    );
    let mut keep = release(ballot);
    if let Op::Release(Release { keep_ms, .. }) = &mut keep {
        *keep_ms = Some(KEEP_MS);
    }
    assert_eq!(ask(node, "x", ALICE, keep), Answer::Released);
    for op in [
        acquire(next_ballot(node, "x"), TTL_MS),
        extend(ballot, TTL_MS),
        release(ballot),
        restore(ballot),
        Op::PlainExtend(PlainExtend { ttl_ms: TTL_MS }),
        Op::PlainRelease,
    ] {
        let plain = op.is_plain();
        let Answer::Held(holder) = ask(node, "x", ALICE, op) else {
            panic!("the lock is kept");
        };
        // A plain reply does not name the holder.
        if !plain {
            assert!(holder.is_kept(), "{holder:?}");
            assert_eq!(holder.label.as_deref(), Some("job"));
            assert!(holder.for_ms.is_some_and(|ms| ms <= KEEP_MS), "{holder:?}");
        }
    }
    stage.pass_ms(KEEP_MS + 10);
    assert_eq!(
        ask(node, "x", ALICE, restore(ballot)),
        Answer::Gone,
        "closed"
    );
    let next = next_ballot(node, "x");
    assert_eq!(ask(node, "x", BOB, acquire(next, TTL_MS)), Answer::Granted);
}

#[test]
fn a_kept_lock_on_memory() {
    no_client_can_use_a_kept_lock_until_its_time_is_over(&stages::memory());
}

#[cfg(feature = "sqlite")]
#[test]
fn a_kept_lock_on_sqlite() {
    no_client_can_use_a_kept_lock_until_its_time_is_over(&stages::sqlite());
}

#[cfg(feature = "redis")]
#[test]
fn a_kept_lock_on_redis() {
    no_client_can_use_a_kept_lock_until_its_time_is_over(&stages::redis());
}

#[cfg(feature = "redis")]
#[test]
fn a_kept_lock_on_valkey() {
    no_client_can_use_a_kept_lock_until_its_time_is_over(&stages::valkey());
}
