//! What the scenarios check on their servers and in the errors of clients.

use ringfence::Locks;
use ringfence_core::protocol::Vote;
use ringfence_testkit::{Fleet, wait_until_async};

use crate::fleet::stage::{PATIENCE, SOON, has_key};

/// Waits until the servers that have the lock `name` are those of `expected`: a round is won before
/// its last node has answered, and a node that missed it gets the lock with the next renewal.
#[track_caller]
pub(crate) fn until_held_by(
    fleet: &Fleet,
    name: &str,
    expected: &[bool],
) -> impl Future<Output = ()> {
    wait_until_async(
        "the right nodes to have the lock",
        PATIENCE,
        async move || {
            let held = fleet.iter().map(|server| has_key(server, name));
            held.eq(expected.iter().copied())
        },
    )
}

/// Tries to acquire `name` in vain until `nodes` answer that they are in quarantine. A node that is
/// only unreachable would prove nothing.
#[track_caller]
pub(crate) fn refused_by_quarantine_of(
    nodes: &[usize],
    locks: &Locks,
    name: &str,
) -> impl Future<Output = ()> {
    wait_until_async("the nodes to be in quarantine", SOON, async move || {
        let outcome = locks.mutex(name).try_lock().await;
        let error = outcome.expect_err("a second holder");
        let votes = error.votes().expect("an error about votes");
        let waits = |&node: &usize| matches!(votes[node].vote, Vote::Quarantined { .. });
        nodes.iter().all(waits)
    })
}
