//! Which nodes make a group, and on what they must agree.

use std::time::Duration;

use ringfence::ConnectError;
use ringfence_testkit::{Fault, Flavor, Fleet, Proxy, Server, wait_until_async};

use crate::stage::*;

#[tokio::test]
async fn the_same_server_under_two_names_is_refused_naming_both() {
    let server = Server::start(Flavor::Redis);
    let alias = format!("localhost:{}", server.port());
    let urls = format!("{},redis://{alias}", server.url());
    let error = builder(&urls).connect().await.unwrap_err();
    assert!(matches!(error, ConnectError::Config(_)), "{error}");
    says(&error, [&address(&server), &alias, "the same server"]);
    let error = builder(&urls).init(false).await.unwrap_err();
    says(&error, [&address(&server), &alias, "the same server"]);
}

#[tokio::test]
async fn a_second_name_that_answers_late_gets_no_vote() {
    let fleet = Fleet::start(2);
    let alias = Proxy::in_front_of(&fleet[0]);
    alias.requests(Fault::Hold);
    let urls = format!("{}?quarantine=off", alias.url());
    let locks = connect(&format!("{urls},{}", fleet.urls_without_quarantine())).await;
    alias.pass();
    let alias = alias.addr().to_string();
    let words = [&address(&fleet[0]), &alias, "are the same server"];
    wait_until_async("the twin to be found out", PATIENCE, async || {
        let guard = locks.mutex("n").wait(PATIENCE).lock().await.unwrap();
        let vote = guard.votes()[0].vote.to_string();
        guard.release().await.unwrap();
        words.iter().all(|word| vote.contains(*word))
    })
    .await;
    // So that the server behind both names counts once.
    until_granted_by(&locks, "n", &[false, true, true]).await;
    fleet[0].kill();
    let error = locks.mutex("n").try_lock().await.unwrap_err();
    says(&error, ["no majority"]);
}

#[tokio::test]
async fn another_number_of_nodes_is_an_error_that_names_both() {
    let fleet = Fleet::start(5);
    builder(&fleet.urls()).init(false).await.unwrap();
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
async fn another_quarantine_is_an_error_that_names_both() {
    let fleet = Fleet::start(3);
    builder(&fleet.urls()).init(false).await.unwrap();
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
    let group = long.init(false).await.unwrap();
    assert_eq!(group.quarantine, Duration::from_secs(77));
    let locks = connect(&fleet.urls()).await;
    // The longest TTL follows from the quarantine.
    let error = locks.mutex("n").ttl(Duration::from_secs(73)).lock().await;
    says(&error.unwrap_err(), ["72s"]);
    let guard = locks.mutex("n").ttl(Duration::from_secs(72)).lock().await;
    guard.unwrap().release().await.unwrap();

    // So does a node that forgot it.
    fleet[2].command(&["FLUSHALL"]);
    wait_until_async("the group's values to come back", SOON, async || {
        round(&locks, "n").await;
        let born = fleet[2].command(&["GET", "ringfence:born"]);
        born.ends_with(" 3 5000000 77000 1500")
    })
    .await;
}
