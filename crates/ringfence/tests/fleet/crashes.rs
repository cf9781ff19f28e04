//! Servers that are killed and restarted.

use std::time::Duration;

use ringfence::{AcquireError, ConnectError};
use ringfence_testkit::{Flavor, Fleet, Server, wait_until_async};

use crate::fleet::stage::*;

#[tokio::test]
async fn with_two_of_five_killed_locks_are_granted_and_fences_rise() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(5, |_| Server::builder(flavor));
        let locks = client_of(&fleet).await;
        let mut last = round(&locks, "n").await;
        fleet[1].kill();
        fleet[4].kill();
        // A new client does not need them either.
        let new_client = client_of(&fleet).await;
        for locks in [&locks, &new_client].into_iter().cycle().take(10) {
            let guard = locks.mutex("n").wait(PATIENCE).lock().await.unwrap();
            assert!(guard.fence() > last, "{} after {last}", guard.fence());
            last = guard.fence();
            guard.extend(TTL).await.unwrap();
            guard.release().await.unwrap();
        }
        no_key_remains([&fleet[0], &fleet[2], &fleet[3]]).await;
    }
}

#[tokio::test]
async fn with_three_of_five_killed_the_error_is_in_time_and_names_every_node() {
    let fleet = Fleet::start(5);
    let locks = client_of(&fleet).await;
    round(&locks, "n").await;
    for dead in [0, 2, 3] {
        fleet[dead].kill();
    }
    let wait = Duration::from_millis(700);
    let (took, outcome) = timed(locks.mutex("n").wait(wait).lock()).await;
    assert!(took < wait + Duration::from_secs(1), "{took:?}");
    let error = outcome.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(error.is_retryable());
    let votes = format!("{:#}", error.votes().unwrap());
    let lines: Vec<String> = votes.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 5, "{votes}");
    for (number, line) in lines.iter().enumerate() {
        says(line, [address(&fleet[number])]);
        let is_dead = line.contains("cannot be reached");
        assert_eq!(is_dead, [0, 2, 3].contains(&number), "{error}");
    }

    // A call without a limit ends, too.
    let patience = Duration::from_millis(500);
    let lock = locks.mutex("n").no_quorum_after(patience);
    let (took, outcome) = timed(lock.lock()).await;
    assert!(
        matches!(outcome, Err(AcquireError::NoQuorum { .. })),
        "{outcome:?}"
    );
    assert!(took >= patience, "{took:?}");
    assert!(took < patience + Duration::from_secs(2), "{took:?}");
    // The grants of the other two were undone each time.
    no_key_remains([&fleet[1], &fleet[4]]).await;
}

#[tokio::test]
async fn a_client_starts_without_any_server_and_lock_reports_it() {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    fleet.iter().for_each(Server::kill);
    let locks = connect(&urls).await;
    let error = locks.mutex("n").try_lock().await.unwrap_err();
    says(&error, fleet.iter().map(address));
    says(&error, ["no majority", "cannot be reached"]);
    // The client reaches them once they are there.
    fleet.iter().for_each(Server::restart);
    until_granted_by(&locks, "n", &[true; 3]).await;
}

#[tokio::test]
async fn restarted_servers_are_used_again() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    let before = round(&locks, "n").await;
    fleet[0].kill();
    fleet[1].kill();
    let error = locks.mutex("n").try_lock().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    fleet[0].restart();
    fleet[1].restart();
    assert!(round(&locks, "n").await > before);
    until_granted_by(&locks, "n", &[true; 3]).await;
}

#[tokio::test]
async fn servers_restarted_without_data_are_quarantined_until_init_is_forced() {
    let fleet = Fleet::start(3);
    builder(&fleet.urls()).init().await.unwrap();
    let locks = connect(&fleet.urls()).await;
    let before = round(&locks, "n").await;
    fleet[0].restart();
    // One node that lost its data only loses its vote.
    until_granted_by(&locks, "n", &[false, true, true]).await;
    fleet[1].restart();
    // Until the client has reconnected to both, they are just unreachable.
    let restarted = format!("nodes {}, {}", address(&fleet[0]), address(&fleet[1]));
    wait_until_async("both to be reached again", PATIENCE, async || {
        let error = locks.mutex("n").try_lock().await.unwrap_err();
        matches!(error, AcquireError::Quarantined { .. }) && error.to_string().contains(&restarted)
    })
    .await;
    let error = locks.mutex("n").try_lock().await.unwrap_err();
    says(&error, ["new or restarted"]);
    builder(&fleet.urls()).init_by_force().await.unwrap();
    assert!(round(&locks, "n").await > before);
    until_granted_by(&locks, "n", &[true; 3]).await;
}

#[tokio::test]
async fn a_misconfigured_majority_fails_at_once_with_an_error_that_says_what_to_do() {
    let (primary, locked) = (
        Server::start(Flavor::Redis),
        Server::builder(Flavor::Redis).requirepass("secret").start(),
    );
    let replica = Server::builder(Flavor::Redis).replica_of(&primary).start();
    let wrong = format!("redis://:guess@{}", address(&locked));
    let urls = format!("{},{},{wrong}", primary.url(), replica.url());
    let (took, outcome) = timed(builder(&urls).connect()).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, ConnectError::Misconfigured { .. }),
        "{error}"
    );
    says(&error, [address(&replica), address(&locked)]);
    says(
        &error,
        ["name its master instead", "the password in the URL"],
    );
    assert!(!error.told().contains("guess"), "{error}");
}

#[tokio::test]
async fn a_majority_that_becomes_misconfigured_fails_at_once() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    round(&locks, "n").await;
    for changed in [0, 2] {
        fleet[changed].command(&["CONFIG", "SET", "requirepass", "secret"]);
        fleet[changed].command(&["CLIENT", "KILL", "TYPE", "normal"]);
    }
    let (took, outcome) = timed(locks.mutex("n").lock()).await;
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, AcquireError::Misconfigured { .. }),
        "{error}"
    );
    assert!(!error.is_retryable());
    assert!(took < Duration::from_secs(3), "{took:?}");
    says(&error, fleet.iter().map(address));
    says(&error, ["put it into the URL"]);
}
