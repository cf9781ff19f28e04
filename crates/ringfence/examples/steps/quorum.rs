//! Step 8: a majority of independent servers survives the loss of one; and one that comes back
//! empty makes two holders, unless it does not vote for a while.

use std::error::Error;
use std::time::Duration;

use ringfence::Locks;

use ringfence::votes::Vote;
use ringfence_testkit::{Fleet, Proxy, wait_until, wait_until_async};

use crate::simple_client::{Client, PATIENCE};
use crate::{Outcome, show};

const TTL: Duration = Duration::from_secs(30);

pub(crate) async fn run() -> Outcome {
    one_of_three_dies().await?;
    one_of_three_forgets().await
}

async fn one_of_three_dies() -> Outcome {
    let fleet = Fleet::start(3);
    let mut a = Redlock::connect(&fleet.urls()).await?;
    let mut b = Redlock::connect(&fleet.urls()).await?;
    a.lock("lock", "a").await;
    fleet[0].kill();
    show(
        b.lock("lock", "b").await < 2,
        "REPAIR  the lock is a majority of three independent servers: one dies, B is refused",
    )
}

async fn one_of_three_forgets() -> Outcome {
    let fleet = Fleet::start(3);
    Locks::builder().nodes(&fleet.urls()).init().await?;
    // A cannot reach the third server. Two of three are a majority.
    let far = Proxy::in_front_of(&fleet[2]);
    let near = format!("{},{},{}", fleet[0].url(), fleet[1].url(), far.url());
    let (mut a, mut b) = (
        Redlock::connect(&near).await?,
        Redlock::connect(&fleet.urls()).await?,
    );
    let (ours_a, ours_b) = (connect(&near).await?, connect(&fleet.urls()).await?);
    far.refuse();

    show(
        a.lock("theirs", "a").await == 2,
        "A  holds the lock on servers 1 and 2; it cannot reach 3",
    )?;
    let guard = ours_a.mutex("ours").lock().await?;
    // The grant needs two replies, and both of these servers have the key by then.
    wait_until("two servers to have the lock", PATIENCE, || {
        (0..2).all(|node| fleet[node].command(&["EXISTS", "ours"]) == "1")
    });
    fleet[1].restart();
    println!("   server 2 restarts without its data");
    b.reconnect(1).await?;
    show(
        b.lock("theirs", "b").await == 2,
        "FAILS   B gets the lock on servers 2 and 3: a majority too, and two holders",
    )?;
    wait_until_async(
        "the restarted server to be in quarantine",
        PATIENCE,
        async || {
            let error = ours_b
                .mutex("ours")
                .try_lock()
                .await
                .expect_err("a second holder");
            let votes = error.votes().expect("an error about votes");
            matches!(votes[1].vote, Vote::Quarantined { .. })
        },
    )
    .await;
    show(
        guard.check().is_ok(),
        "REPAIR  ringfence notices the restart: server 2 does not vote until all it forgot has ended; B is refused",
    )?;
    drop(guard);
    ours_a.close().await;
    ours_b.close().await;
    Ok(())
}

async fn connect(urls: &str) -> Result<Locks, ringfence::ConnectError> {
    Locks::builder().nodes(urls).ttl(TTL).connect().await
}

/// The acquire of the original Redlock, on servers that answer quickly. A complete one is in
/// `tests/scenarios/redlock.rs`.
struct Redlock {
    urls: Vec<String>,
    nodes: Vec<Client>,
}

impl Redlock {
    async fn connect(urls: &str) -> Result<Self, Box<dyn Error>> {
        let urls: Vec<String> = urls.split(',').map(str::to_owned).collect();
        let mut nodes = Vec::new();
        for url in &urls {
            nodes.push(Client::connect(url).await?);
        }
        Ok(Self { urls, nodes })
    }

    async fn reconnect(&mut self, node: usize) -> Outcome {
        self.nodes[node] = Client::connect(&self.urls[node]).await?;
        Ok(())
    }

    /// How many servers granted it.
    async fn lock(&mut self, key: &str, value: &str) -> usize {
        let mut granted = 0;
        for node in &mut self.nodes {
            granted += usize::from(node.lock(key, value, TTL).await.unwrap_or(false));
        }
        granted
    }
}
