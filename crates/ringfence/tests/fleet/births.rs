//! New clusters and `init`.

use std::time::Duration;

use ringfence::{AcquireError, ReleaseError};

use ringfence::admin::InitError;
use ringfence_testkit::{Flavor, Fleet, Server, wait_until_async};

use crate::fleet::stage::*;

/// Long enough to reach the nodes, far too short for a quarantine.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_new_cluster_fails_at_once_with_an_error_that_names_init_the_nodes_and_the_time() {
    let fleet = Fleet::start(3);
    let locks = connect(&fleet.urls()).await;
    until_all_answer(&locks).await;
    let (took, outcome) = timed(locks.mutex("n").wait(SHORT).lock()).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    let error = outcome.unwrap_err();
    let AcquireError::Quarantined { left, .. } = &error else {
        panic!("{error}");
    };
    assert!(*left > Duration::from_secs(20), "{left:?}");
    assert!(*left < Duration::from_secs(40), "{left:?}");
    says(&error, fleet.iter().map(address));
    let seconds = left.as_millis().div_ceil(1000);
    says(
        &error,
        [&format!("may vote in {seconds} s"), "`ringfence init`"],
    );
    no_key_remains(fleet.iter()).await;
}

#[tokio::test]
async fn init_makes_a_new_cluster_usable_and_is_refused_the_second_time() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor));
        // A client that connected before `init` works after it.
        let early = connect(&fleet.urls()).await;
        let error = early.mutex("n").wait(SHORT).lock().await.unwrap_err();
        assert!(matches!(error, AcquireError::Quarantined { .. }), "{error}");
        // And a caller that waits for the end of the quarantine continues at once.
        let waits = early.mutex("waits");
        let waiting = tokio::spawn(async move { waits.lock().await });

        let done = builder(&fleet.urls()).init().await.unwrap();
        assert_eq!(done.group.nodes, 3);
        let late = connect(&fleet.urls()).await;
        let first = round(&late, "n").await;
        assert!(round(&early, "n").await > first);
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        drop(
            waited
                .expect("long before the quarantine ends")
                .unwrap()
                .unwrap(),
        );

        let error = builder(&fleet.urls()).init().await.unwrap_err();
        assert!(matches!(error, InitError::Refused { .. }), "{error}");
        says(&error, ["not new", "votes already"]);
        assert!(round(&late, "n").await > first);
    }
}

#[tokio::test]
async fn init_without_every_node_fails_and_writes_nothing() {
    let fleet = Fleet::start(3);
    fleet[1].kill();
    let error = builder(&fleet.urls()).init().await.unwrap_err();
    assert!(matches!(error, InitError::Unreachable { .. }), "{error}");
    let votes = error.votes().expect("the nodes were asked");
    assert_eq!(votes[0].said(), "answers", "{votes}");
    says(&error, [&address(&fleet[1]), "cannot be reached"]);
    for server in [&fleet[0], &fleet[2]] {
        assert_eq!(server.command(&["DBSIZE"]), "0");
    }
    fleet[1].restart();
    builder(&fleet.urls()).init().await.unwrap();
    round(&connect(&fleet.urls()).await, "n").await;
}

#[tokio::test]
async fn init_refuses_nodes_with_locks_unless_it_is_forced() {
    let fleet = Fleet::start(3);
    let careless = client_of(&fleet).await;
    let lock = careless.mutex("n").label("the careless one");
    let guard = lock.lock().await.unwrap();
    // A majority granted it: the third node may get it with the next renewal only.
    wait_until_async("every node to have the key", PATIENCE, async || {
        fleet.iter().all(|server| has_key(server, "n"))
    })
    .await;
    let error = builder(&fleet.urls()).init().await.unwrap_err();
    assert!(matches!(error, InitError::Refused { .. }), "{error}");
    says(
        &error,
        ["`n` by the careless one", "two clients may then hold"],
    );
    let error = connect(&fleet.urls()).await;
    let error = error.mutex("m").wait(SHORT).lock().await;
    let error = error.unwrap_err();
    assert!(matches!(error, AcquireError::Quarantined { .. }), "{error}");

    let done = builder(&fleet.urls()).init_by_force().await.unwrap();
    assert_eq!(done.overridden.len(), 3);
    says(
        &done.overridden[0].said(),
        ["`n` by the careless one", "two clients may then hold"],
    );
    let locks = connect(&fleet.urls()).await;
    round(&locks, "m").await;
    // `init --force` deletes nothing: the lock is still held.
    let error = locks.mutex("n").try_lock().await.unwrap_err();
    says(&error, ["the careless one"]);
    // The client has to reconnect to each node first, so the release may be unconfirmed.
    let released = guard.release().await;
    assert!(
        matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
        "{released:?}"
    );
    no_key_remains(fleet.iter()).await;
    round(&locks, "n").await;
}

/// Two applications have a database each on the same servers. After `SWAPDB` each of them finds the
/// birth record of the other, which has the same run ids, and none of its own locks.
#[tokio::test]
async fn swapped_databases_are_a_birth_and_no_lock_has_two_holders() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor));
        let urls = |database: u32| {
            let urls = fleet
                .iter()
                .map(|server| format!("{}/{database}", server.url()));
            urls.collect::<Vec<_>>().join(",")
        };
        for database in [0, 1] {
            builder(&urls(database)).init().await.unwrap();
        }
        let locks = [connect(&urls(0)).await, connect(&urls(1)).await];
        for locks in &locks {
            round(locks, "other").await;
        }
        let held = locks[0].mutex("n").renew(false).lock().await.unwrap();
        for server in fleet.iter() {
            assert_eq!(server.command(&["SWAPDB", "0", "1"]), "OK");
        }
        // A client that is connected, a new one, and a client of the other application.
        let new = connect(&urls(0)).await;
        for locks in [&locks[0], &new, &locks[1]] {
            let error = locks.mutex("n").wait(SHORT).lock().await.unwrap_err();
            assert!(matches!(error, AcquireError::Quarantined { .. }), "{error}");
        }
        assert!(held.check().is_ok(), "the lock is still held");
        for (database, server) in [(0, &fleet[0]), (1, &fleet[1])] {
            let client = redis::Client::open(format!("{}/{database}", server.url())).unwrap();
            let born = redis::cmd("GET").arg("ringfence:born").to_owned();
            let born: String = born.query(&mut client.get_connection().unwrap()).unwrap();
            let fields: Vec<&str> = born.split(' ').collect();
            assert_eq!(fields[9], database.to_string(), "{born}");
            assert_ne!(fields[7], "0", "it has a birth: {born}");
        }
    }
}

#[tokio::test]
async fn nodes_with_a_record_of_another_version_are_refused_until_init_is_forced() {
    let fleet = Fleet::start(3);
    let old = "1 ab12 1700000000000001 0 1 3 5000000 35000 1500";
    for server in fleet.iter() {
        server.command(&["SET", "ringfence:born", old]);
    }
    let error = builder(&fleet.urls()).connect().await.unwrap_err();
    let words = ["of version 1", "only knows version 5", "delete the key"];
    says(&error, words);
    let error = builder(&fleet.urls()).init().await.unwrap_err();
    says(&error, words);
    assert_eq!(fleet[0].command(&["GET", "ringfence:born"]), old);
    let done = builder(&fleet.urls()).init_by_force().await.unwrap();
    assert_eq!(done.overridden.len(), 3);
    round(&connect(&fleet.urls()).await, "n").await;
}
