//! A group whose quarantine is short enough to be waited for: the least that its TTL allows.

use std::time::Duration;

use ringfence::{Builder, Guard, Locks, Lost};
use ringfence_core::time::Timestamp;
use ringfence_testkit::Fleet;

use crate::stage;

/// How long a node that forgot does not vote.
const QUARANTINE: Duration = Duration::from_secs(9);
/// The longest TTL that goes with it.
pub(crate) const TTL: Duration = Duration::from_secs(4);
/// Servers on one machine have one clock.
const WINDOW: Duration = Duration::from_secs(1);

/// Declares the servers of `fleet` a new group.
pub(crate) async fn init(fleet: &Fleet) {
    let group = builder(&fleet.urls()).init(false).await.unwrap().group;
    assert_eq!((group.window, group.quarantine), (WINDOW, QUARANTINE));
}

/// A client of the group, patient with servers on a busy machine.
pub(crate) async fn connect(urls: &str) -> Locks {
    let builder = builder(urls).node_timeout(Duration::from_secs(1));
    builder.connect().await.unwrap()
}

/// Waits with `other` for the lock `ours`, which `first` holds on nodes that forgot it at `struck`. It is
/// granted after the deadline of `first` and the quarantine, and not before.
pub(crate) async fn granted_after_quarantine(
    other: &Locks,
    first: &Guard,
    struck: Timestamp,
) -> Guard {
    let waiting = async {
        let lock = other.mutex("ours").wait(stage::PATIENCE);
        let guard = lock.lock().await.unwrap();
        (stage::now(), guard)
    };
    let (lost, (granted, second)) = tokio::join!(first.lost(), waiting);
    assert_eq!(lost, Lost::Expired);
    assert!(granted > first.exact_deadline());
    let waited = granted.since(struck);
    assert!(waited >= QUARANTINE, "{waited:?}");
    assert!(second.fence() > first.fence());
    second
}

fn builder(urls: &str) -> Builder {
    stage::builder(urls)
        .ttl(TTL)
        .window(WINDOW)
        .quarantine(QUARANTINE)
}
