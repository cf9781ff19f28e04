//! One server at two addresses has one vote, from the start or since an address was re-pointed.

use ringfence::{AcquireError, ConnectError};

use ringfence::admin::LockState;
use ringfence_testkit::{Fault, Flavor, Fleet, Proxy, Server, wait_until_async};

use crate::fleet::stage::*;

#[tokio::test]
async fn duplicate_nodes_without_a_majority_are_refused_and_both_addresses_are_named() {
    let server = Server::start(Flavor::Redis);
    let alias = format!("localhost:{}", server.port());
    let urls = format!("{},redis://{alias}", server.url());
    let error = builder(&urls).connect().await.unwrap_err();
    let misconfigured = matches!(error, ConnectError::Misconfigured { .. });
    assert!(misconfigured, "{error}");
    says(&error, [&address(&server), &alias, "the same server"]);
    let error = builder(&urls).init().await.unwrap_err();
    says(&error, [&address(&server), &alias, "the same server"]);
}

#[tokio::test]
async fn the_second_address_of_a_server_has_no_vote() {
    let fleet = Fleet::start(2);
    let alias = Proxy::in_front_of(&fleet[0]);
    let [one, other] = [0, 1].map(|node| format!("{}?quarantine=off", fleet[node].url()));
    let locks = connect(&format!("{one},{}?quarantine=off,{other}", alias.url())).await;
    until_granted_by(&locks, "n", &[true, false, true]).await;
    let guard = locks.mutex("n").lock().await.unwrap();
    wait_until_async("the duplicate to be named", PATIENCE, async || {
        let vote = guard.votes()[1].said();
        vote.contains(&format!("is the same server as {}", address(&fleet[0])))
    })
    .await;
    guard.release().await.unwrap();
    fleet[1].kill();
    let error = locks.mutex("n").try_lock().await.unwrap_err();
    says(&error, ["no majority", "is the same server as"]);
}

#[tokio::test]
async fn an_earlier_address_that_answers_late_takes_over_the_vote() {
    let fleet = Fleet::start(2);
    let alias = Proxy::in_front_of(&fleet[0]);
    alias.requests(Fault::Hold);
    let urls = format!("{}?quarantine=off", alias.url());
    let locks = connect(&format!("{urls},{}", fleet.urls_without_quarantine())).await;
    until_granted_by(&locks, "n", &[false, true, true]).await;
    alias.pass();
    until_granted_by(&locks, "n", &[true, false, true]).await;
    alias.refuse();
    until_granted_by(&locks, "n", &[false, true, true]).await;
}

#[tokio::test]
async fn an_address_re_pointed_to_the_server_of_another_node_has_no_vote() {
    let fleet = Fleet::start(3);
    let moving = Proxy::in_front_of(&fleet[1]);
    let urls = [fleet[0].url(), moving.url(), fleet[2].url()].join(",");
    builder(&urls).init().await.unwrap();
    let locks = connect(&urls).await;
    until_granted_by(&locks, "n", &[true, true, true]).await;
    let held = locks.mutex("held").renew(false).lock().await.unwrap();

    fleet[2].kill();
    moving.lead_to(&fleet[0]);
    // Two of three nodes answer, but they are one server.
    let reason = format!(
        "is the same server as {0}, so only {0} votes; point each address to a server of its own",
        address(&fleet[0])
    );
    wait_until_async("the duplicate to be detected", PATIENCE, async || {
        let error = locks.mutex("n").try_lock().await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        let text = error.told();
        text.contains(&moving.addr().to_string()) && text.contains(&reason)
    })
    .await;
    held.extend(TTL).await.unwrap_err();
    let seen = locks.inspect("n").await.unwrap();
    assert_eq!(seen.state, LockState::Unknown, "{seen:?}");

    moving.lead_to(&fleet[1]);
    wait_until_async("the address to vote again", PATIENCE, async || {
        locks.mutex("n").try_lock().await.is_ok()
    })
    .await;
    until_granted_by(&locks, "n", &[true, true, false]).await;
}
