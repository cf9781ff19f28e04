//! Helpers of the tests with Sentinels.

use std::time::Duration;

use ringfence::{Builder, Locks};

use ringfence::votes::Votes;
use ringfence_testkit::{SentinelGroup, Server};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The longest TTL with the default quarantine: a busy machine has ten seconds and more for a
/// failover, and for the renewal after it.
pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) fn builder(urls: &str) -> Builder {
    Locks::builder().nodes(urls).ttl(TTL)
}

/// Declares the nodes new and connects to them.
pub(crate) async fn new_client(urls: &str) -> Locks {
    builder(urls).init().await.unwrap();
    client(urls).await
}

pub(crate) async fn client(urls: &str) -> Locks {
    builder(urls).connect().await.unwrap()
}

/// The birth record of the group's master.
pub(crate) fn born(group: &SentinelGroup) -> String {
    group.master().command(&["GET", "ringfence:born"])
}

pub(crate) fn has_key(server: &Server, name: &str) -> bool {
    server.is_running() && server.try_command(&["EXISTS", name]).as_deref() == Ok("1")
}

/// What every node said, in one text.
pub(crate) fn said(votes: &Votes) -> String {
    votes
        .iter()
        .map(|vote| vote.said())
        .collect::<Vec<_>>()
        .join("; ")
}
