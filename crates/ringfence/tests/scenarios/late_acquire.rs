//! Requests that arrive after their sender has given up and undone them.

use std::time::Duration;

use ringfence::AcquireError;
use ringfence_core::protocol::Vote;
use ringfence_testkit::{Fault, Fleet, Proxy, wait_until_async};

use crate::fleet::stage::*;
use crate::scenarios::redlock::Redlock;

const NODE_TIMEOUT: Duration = Duration::from_millis(300);
/// Much longer than a client needs to close an unresponsive connection and to use another.
const LATE: Duration = Duration::from_secs(4);

#[tokio::test]
async fn an_acquire_that_arrives_after_its_undo_is_refused() {
    let fleet = Fleet::start(3);
    builder(&fleet.urls()).init().await.unwrap();
    let slow = [Proxy::in_front_of(&fleet[0]), Proxy::in_front_of(&fleet[1])];
    let urls = format!("{},{},{}", slow[0].url(), slow[1].url(), fleet[2].url());
    let plain = Redlock::with_timeout(&urls, NODE_TIMEOUT).await;
    let locks = builder(&urls).node_timeout(NODE_TIMEOUT);
    let locks = locks.connect().await.unwrap();
    until_granted_by(&locks, "another", &[true; 3]).await;
    assert!(slow.iter().all(|proxy| proxy.connections() == 2));

    for proxy in &slow {
        proxy.requests(Fault::Delay(LATE));
    }
    let (granted, undone) = plain.ask_for("theirs", TTL).await;
    assert_eq!(granted, 1);
    let error = locks.mutex("ours").try_lock().await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    for node in [0, 1] {
        let vote = &error.votes().unwrap()[node].vote;
        assert_eq!(*vote, Vote::TimedOut, "the acquire was not sent");
    }
    // From now on requests pass, but the earlier ones are still held back.
    for proxy in &slow {
        proxy.requests(Fault::None);
    }
    plain.unlock(&undone).await;
    for (server, proxy) in fleet.iter().zip(&slow) {
        wait_until_async("the undo to arrive", SOON, async || {
            has_key(server, "ringfence:{ours}:record:ours")
        })
        .await;
        assert_eq!(proxy.connections(), 4, "the acquires were not late");
        assert!(!has_key(server, "theirs"));
    }
    for proxy in &slow {
        wait_until_async("the acquires to arrive", PATIENCE, async || {
            proxy.connections() == 2
        })
        .await;
    }

    // A majority of the nodes has a Redlock lock that no client holds.
    assert!(has_key(&fleet[0], "theirs") && has_key(&fleet[1], "theirs"));
    let plain_other = Redlock::connect(&fleet.urls()).await;
    assert!(plain_other.lock("theirs", TTL).await.is_none());

    assert!(fleet.iter().all(|server| !has_key(server, "ours")));
    let other = connect(&fleet.urls()).await;
    let guard = other.mutex("ours").try_lock().await.unwrap();
    guard.release().await.unwrap();
    locks.close().await;
}
