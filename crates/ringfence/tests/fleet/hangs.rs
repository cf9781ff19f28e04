//! Servers that hang.

use std::time::Duration;

use ringfence::AcquireError;
use ringfence_testkit::Fleet;

use crate::fleet::stage::*;

/// Less than the second after which a connection is closed, so that a wait would last this long.
const NODE_TIMEOUT: Duration = Duration::from_millis(800);

#[tokio::test]
async fn a_hung_server_does_not_delay_a_grant() {
    let fleet = Fleet::start(5);
    let urls = fleet.urls_without_quarantine();
    let patient = builder(&urls).node_timeout(Duration::from_secs(5));
    let locks = patient.connect().await.unwrap();
    round(&locks, "n").await;
    fleet[2].pause();
    for _ in 0..5 {
        let (took, fence) = timed(round(&locks, "n")).await;
        assert!(fence > 0 && took < Duration::from_secs(5), "{took:?}");
    }
    let (took, _) = timed(connect(&urls)).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    fleet[2].resume();
    until_granted_by(&locks, "n", &[true; 5]).await;
    locks.close().await;
    no_key_remains(fleet.iter()).await;
}

/// One node grants, one is held by another program, one hangs: the hung node decides the attempt,
/// so the client waits for it once.
#[tokio::test]
async fn a_hung_server_delays_a_contended_attempt_only_the_first_time() {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let builder = builder(&urls).node_timeout(NODE_TIMEOUT);
    let locks = builder.connect().await.unwrap();
    until_granted_by(&locks, "other", &[true; 3]).await;
    fleet[2].command(&["SET", "n", "a stranger", "PX", "60000"]);
    fleet[1].pause();
    let held = |outcome: Result<_, AcquireError>| {
        let error = outcome.map(|_: ringfence::Guard| ()).unwrap_err();
        assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    };
    held(locks.mutex("n").try_lock().await);
    for _ in 0..5 {
        let (took, outcome) = timed(locks.mutex("n").try_lock()).await;
        held(outcome);
        assert!(took < NODE_TIMEOUT, "{took:?}");
    }

    // The node now executes what it did not read before it hung: nothing of it may remain.
    fleet[1].resume();
    until_granted_by(&locks, "other", &[true; 3]).await;
    locks.close().await;
    assert!(!has_key(&fleet[1], "n"));
    assert!(!has_key(&fleet[0], "n"));
}
