//! Holders that lose their lock, or lose it on some nodes.

use std::time::Duration;

use ringfence::{Guard, Locks, Lost, ReleaseError};
use ringfence_testkit::{Fleet, wait_until_async};

use crate::fleet::stage::*;

/// A client that waits for every reply of a round. With less patience a slow reply leaves the round
/// unconfirmed; then deleted keys are restored and nothing is lost.
async fn patient_client_of(fleet: &Fleet) -> Locks {
    let urls = fleet.urls_without_quarantine();
    let patient = builder(&urls).node_timeout(SOON);
    patient.connect().await.unwrap()
}

async fn loss_of(guard: &Guard) -> Lost {
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await;
    lost.expect("a loss in time")
}

#[tokio::test]
async fn keys_deleted_on_a_majority_are_reported_before_the_deadline() {
    let fleet = Fleet::start(3);
    let locks = patient_client_of(&fleet).await;
    let lock = locks.mutex("n").ttl(Duration::from_secs(6));
    let guard = lock.lock().await.unwrap();
    // A key that a late grant sets after the deletion would hide the loss.
    wait_until_async("every node to vote", PATIENCE, async || {
        granted_by(&guard) == [true; 3]
    })
    .await;
    for server in [&fleet[0], &fleet[2]] {
        server.command(&["DEL", "n"]);
    }
    assert_eq!(loss_of(&guard).await, Lost::Gone);
    assert!(now() < guard.exact_deadline());
    assert_eq!(guard.check(), Err(Lost::Gone));
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.release().await, Err(ReleaseError::Expired));
    no_key_remains(fleet.iter()).await;
}

#[tokio::test]
async fn a_lock_that_another_program_overwrote_is_reported_as_gone() {
    let fleet = Fleet::start(3);
    let locks = patient_client_of(&fleet).await;
    let lock = locks.mutex("n").ttl(Duration::from_secs(2));
    let guard = lock.lock().await.unwrap();
    for server in fleet.iter() {
        server.command(&["SET", "n", "a stranger", "PX", "60000"]);
    }
    assert_eq!(loss_of(&guard).await, Lost::Gone);
    assert!(now() < guard.exact_deadline());
    assert_eq!(guard.release().await, Err(ReleaseError::Taken));
    assert_eq!(fleet[1].command(&["GET", "n"]), "a stranger");
}

#[tokio::test]
async fn with_a_majority_killed_a_lock_expires_at_its_deadline() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    let lock = locks.mutex("n").ttl(Duration::from_millis(1_500));
    let guard = lock.lock().await.unwrap();
    fleet[0].kill();
    fleet[1].kill();
    assert_eq!(loss_of(&guard).await, Lost::Expired);
    let late = now().since(guard.exact_deadline());
    assert!(now() >= guard.exact_deadline() && late < SOON, "{late:?}");
    assert_eq!(guard.check(), Err(Lost::Expired));
    assert_eq!(guard.release().await, Err(ReleaseError::Unconfirmed));
}

#[tokio::test]
async fn the_next_renewal_restores_the_lock_on_a_minority_that_lost_it() {
    let fleet = Fleet::start(3);
    builder(&fleet.urls()).init().await.unwrap();
    let locks = connect(&fleet.urls()).await;
    let lock = locks.mutex("n").ttl(Duration::from_secs(3));
    let guard = lock.lock().await.unwrap();
    fleet[2].command(&["FLUSHALL"]);
    wait_until_async("the token to be restored", PATIENCE, async || {
        fleet[2].command(&["GET", "n"]) == guard.token().expose()
    })
    .await;
    assert_eq!(guard.check(), Ok(()));
    guard.release().await.unwrap();
    no_key_remains(fleet.iter()).await;
}

#[tokio::test]
async fn work_inside_hold_is_stopped_when_the_lock_is_lost() {
    let fleet = Fleet::start(3);
    let locks = patient_client_of(&fleet).await;
    // So long that even a busy machine deletes the keys and reads the proof before the deadline.
    let lock = locks.mutex("n").ttl(Duration::from_secs(9));
    let work = lock.hold(async |_guard| {
        for server in fleet.iter() {
            server.command(&["DEL", "n"]);
        }
        std::future::pending::<()>().await;
    });
    let outcome = tokio::time::timeout(PATIENCE, work).await;
    says(
        &outcome.expect("a loss in time").unwrap_err(),
        ["before the work was done", "gone"],
    );
}
