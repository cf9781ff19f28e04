//! Which nodes form a group, and the values on which they must agree.

use std::time::Duration;

use ringfence::ConnectError;

use ringfence::admin::InitError;
use ringfence_testkit::{Fleet, Server, wait_until_async};

use crate::fleet::stage::*;

#[tokio::test]
async fn another_number_of_nodes_is_an_error_that_names_both_numbers() {
    let fleet = Fleet::start(5);
    builder(&fleet.urls()).init().await.unwrap();
    let three: Vec<String> = fleet.iter().take(3).map(Server::url).collect();
    let error = builder(&three.join(",")).connect().await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Misconfigured { .. }),
        "{error}"
    );
    says(&error, fleet.iter().take(3).map(address));
    says(&error, ["5 nodes", "3 nodes"]);
}

#[tokio::test]
async fn another_quarantine_is_an_error_that_names_both_values() {
    let fleet = Fleet::start(3);
    builder(&fleet.urls()).init().await.unwrap();
    let other = builder(&fleet.urls()).quarantine(Duration::from_secs(77));
    let error = other.connect().await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Misconfigured { .. }),
        "{error}"
    );
    says(&error, ["quarantine 35s", "quarantine 77s"]);
}

#[tokio::test]
async fn values_that_are_not_set_are_adopted_from_the_group() {
    let fleet = Fleet::start(3);
    let long = builder(&fleet.urls()).quarantine(Duration::from_secs(77));
    let group = long.init().await.unwrap().group;
    assert_eq!(group.quarantine, Duration::from_secs(77));
    let locks = connect(&fleet.urls()).await;
    // The longest TTL follows from the quarantine.
    let error = locks.mutex("n").ttl(Duration::from_secs(73)).lock().await;
    says(&error.unwrap_err(), ["72s"]);
    let guard = locks.mutex("n").ttl(Duration::from_secs(72)).lock().await;
    guard.unwrap().release().await.unwrap();

    // A node that lost its data gets the values again.
    fleet[2].command(&["FLUSHALL"]);
    wait_until_async("the group's values to be written again", SOON, async || {
        round(&locks, "n").await;
        let born = fleet[2].command(&["GET", "ringfence:born"]);
        born.contains(" 3 5000000 77000 ") && born.ends_with(" 1500")
    })
    .await;
}

/// Makes the last use look long ago: it is inferred from the remaining time of a record.
fn let_age(server: &Server) {
    let records = server.command(&["KEYS", "ringfence:{*"]);
    for record in records.lines().filter(|record| !record.is_empty()) {
        server.command(&["PEXPIRE", record, "20000", "LT"]);
    }
}

#[tokio::test]
async fn an_unused_group_of_one_grows_to_three_and_then_to_five() {
    let fleet = Fleet::start(5);
    let first = |nodes: usize| {
        let urls: Vec<String> = fleet.iter().take(nodes).map(Server::url).collect();
        urls.join(",")
    };
    let mut last = 0;
    for (before, after) in [(1, 3), (3, 5)] {
        let old = connect(&first(before)).await;
        let lock = old.mutex("n").label("the old one");
        let guard = lock.lock().await.unwrap();
        assert!(guard.fence() > last);
        last = guard.fence();
        let error = builder(&first(after)).init().await.unwrap_err();
        says(&error, ["not new"]);
        let error = builder(&first(after)).regroup().await.unwrap_err();
        assert!(matches!(error, InitError::InUse { .. }), "{error}");
        says(&error, ["`n` by the old one", "stop all clients"]);
        guard.release().await.unwrap();
        no_key_remains(fleet.iter()).await;
        let error = builder(&first(after)).regroup().await.unwrap_err();
        says(&error, ["was in use less than 35s ago"]);
        // Nothing was written, not even on nodes that agreed.
        assert_eq!(fleet[after - 1].command(&["EXISTS", "ringfence:born"]), "0");

        fleet.iter().take(before).for_each(let_age);
        let done = builder(&first(after)).regroup().await.unwrap();
        assert_eq!(done.group.nodes, after);
        let locks = connect(&first(after)).await;
        until_granted_by(&locks, "m", &vec![true; after]).await;
        let fence = round(&locks, "n").await;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        // A client that was not stopped gets an error.
        wait_until_async("the old client to be refused", SOON, async || {
            let error = old.mutex("m").try_lock().await.unwrap_err().told();
            let both = [format!("{before} nodes"), format!("{after} nodes")];
            both.iter().all(|number| error.contains(number))
        })
        .await;
    }
}

#[tokio::test]
async fn a_database_that_the_server_does_not_have_is_refused_at_connect() {
    let fleet = Fleet::start(1);
    let error = builder(&format!("{}/99", fleet[0].url())).connect().await;
    let error = error.unwrap_err();
    let misconfigured = matches!(error, ConnectError::Misconfigured { .. });
    assert!(misconfigured, "{error}");
    says(
        &error,
        [&address(&fleet[0]), "has no database with the number"],
    );
}
