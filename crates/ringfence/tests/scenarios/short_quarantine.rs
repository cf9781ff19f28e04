//! A group whose quarantine is short enough for a test to wait: the minimum that its TTL allows.

use std::time::Duration;

use ringfence::{Builder, Guard, Locks, Lost};
use ringfence_core::time::Timestamp;
use ringfence_testkit::Fleet;

use crate::fleet::stage;

/// How long a node that lost its data does not vote.
const QUARANTINE: Duration = Duration::from_secs(9);
/// The longest TTL that this quarantine allows.
pub(crate) const TTL: Duration = Duration::from_secs(4);
/// Servers on one machine share one clock, so a short window is enough.
const WINDOW: Duration = Duration::from_secs(1);

/// Initialises the servers of `fleet` as a new group.
pub(crate) async fn init(fleet: &Fleet) {
    let group = builder(&fleet.urls()).init().await.unwrap().group;
    assert_eq!((group.window, group.quarantine), (WINDOW, QUARANTINE));
}

/// A client of the group, patient with servers on a busy machine.
pub(crate) async fn connect(urls: &str) -> Locks {
    let builder = builder(urls).node_timeout(Duration::from_secs(1));
    builder.connect().await.unwrap()
}

/// Waits with `other` for the lock `ours`, which `first` holds on nodes that lost it at `lost_at`.
/// It is granted after the deadline of `first` and after the quarantine.
pub(crate) async fn granted_after_quarantine(
    other: &Locks,
    first: &Guard,
    lost_at: Timestamp,
) -> Guard {
    let waiting = async {
        let lock = other.mutex("ours").wait(stage::PATIENCE);
        let guard = lock.lock().await.unwrap();
        (stage::now(), guard)
    };
    let (lost, (granted, second)) = tokio::join!(first.lost(), waiting);
    assert_eq!(lost, Lost::Expired);
    assert!(granted > first.exact_deadline());
    let waited = granted.since(lost_at);
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
