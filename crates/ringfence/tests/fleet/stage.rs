//! Helpers of the tests with several servers: clients, timing, and the keys of the servers.

use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{Builder, Guard, Locks};
use ringfence_core::protocol::Vote;
use ringfence_core::time::Timestamp;
use ringfence_testkit::{Fleet, Server, wait_until_async};

/// Longer than anything takes on a busy machine, and shorter than a hung test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Far below the TTL of the locks in the tests: a key that is gone by then did not expire.
pub(crate) const SOON: Duration = Duration::from_secs(5);
/// A TTL that outlasts [`SOON`].
pub(crate) const TTL: Duration = Duration::from_secs(20);

/// A client with a TTL of [`TTL`] and the node timeout of one second that goes with it.
pub(crate) async fn connect(urls: &str) -> Locks {
    builder(urls).connect().await.unwrap()
}

pub(crate) fn builder(urls: &str) -> Builder {
    Locks::builder().nodes(urls).ttl(TTL)
}

/// A client of servers without quarantine.
pub(crate) async fn client_of(fleet: &Fleet) -> Locks {
    connect(&fleet.urls_without_quarantine()).await
}

/// Waits until every node has answered the handshake. Until then a client knows less of the nodes than
/// some tests assume.
pub(crate) async fn until_all_answer(locks: &Locks) {
    wait_until_async("all nodes to answer", PATIENCE, async || {
        locks.nodes().await.iter().all(|node| node.facts.is_ok())
    })
    .await;
}

pub(crate) fn now() -> Timestamp {
    Clock::System.now()
}

/// How long `work` took, and its output.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (Duration, T) {
    let begun = now();
    let output = work.await;
    (now().since(begun), output)
}

/// Locks and releases `name`; returns the fence.
pub(crate) async fn round(locks: &Locks, name: &str) -> u64 {
    let guard = locks.mutex(name).wait(PATIENCE).lock().await.unwrap();
    let fence = guard.fence();
    guard.release().await.unwrap();
    fence
}

pub(crate) fn has_key(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", name]) == "1"
}

/// Every key of a lock, without the records of the library.
pub(crate) fn lock_keys(server: &Server) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let keys = keys.lines().filter(|key| !key.starts_with("ringfence:"));
    keys.map(str::to_owned).collect()
}

/// Waits until no server has a lock any more, for much less than the TTL of a lock.
#[track_caller]
pub(crate) fn no_key_remains<'a>(
    servers: impl IntoIterator<Item = &'a Server>,
) -> impl Future<Output = ()> {
    let servers: Vec<&Server> = servers.into_iter().collect();
    wait_until_async("the last key to go", SOON, async move || {
        servers.iter().all(|server| lock_keys(server).is_empty())
    })
}

/// Whether each node granted `guard`, in node order; a node without a reply counts as `false`.
pub(crate) fn granted_by(guard: &Guard) -> Vec<bool> {
    let votes = guard.votes();
    votes
        .iter()
        .map(|node| node.vote == Vote::Granted)
        .collect()
}

/// Locks `name` again and again until the nodes that grant it are as in `expected`.
#[track_caller]
pub(crate) fn until_granted_by(
    locks: &Locks,
    name: &str,
    expected: &[bool],
) -> impl Future<Output = ()> {
    wait_until_async("the right nodes to vote", PATIENCE, async move || {
        let guard = locks.mutex(name).wait(PATIENCE).lock().await.unwrap();
        // Nodes that were too late for the verdict answer later, if at all.
        let settled = wait_for_votes(&guard).await;
        let granted = granted_by(&guard);
        guard.release().await.unwrap();
        settled && granted == expected
    })
}

async fn wait_for_votes(guard: &Guard) -> bool {
    let until = now() + Duration::from_millis(500);
    while guard.votes().iter().any(|node| node.vote == Vote::Pending) {
        if now() >= until {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

/// Asserts that `text` contains every one of `words`.
#[track_caller]
pub(crate) fn says<W: AsRef<str>>(text: &impl Told, words: impl IntoIterator<Item = W>) {
    let text = text.told();
    for word in words {
        let word = word.as_ref();
        assert!(text.contains(word), "no `{word}` in:\n{text}");
    }
}

/// The address of a server as errors show it.
pub(crate) fn address(server: &Server) -> String {
    server.addr().to_string()
}

/// A text, with the votes that an error carries.
pub(crate) trait Told {
    fn told(&self) -> String;
}

macro_rules! told_with_votes {
    ($($error:path),*) => {
        $(
            impl Told for $error {
                fn told(&self) -> String {
                    let votes = self.votes().map(ToString::to_string);
                    format!("{self}\n{}", votes.unwrap_or_default())
                }
            }
        )*
    };
}

told_with_votes!(
    ringfence::AcquireError,
    ringfence::ConnectError,
    ringfence::ExtendError,
    ringfence::HoldError,
    ringfence::LatchError,
    ringfence::admin::InitError,
    ringfence::admin::InspectError
);

impl Told for String {
    fn told(&self) -> String {
        self.clone()
    }
}

impl Told for ringfence::Lost {
    fn told(&self) -> String {
        self.to_string()
    }
}

impl Told for ringfence::ReleaseError {
    fn told(&self) -> String {
        self.to_string()
    }
}
