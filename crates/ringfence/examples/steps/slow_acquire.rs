//! Step 5: the reply to an acquire arrives after the lock has expired.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence_testkit::{Fault, Flavor, Proxy, Server, wait_until};

use crate::simple_client::{Client, PATIENCE, until_expired};
use crate::{Outcome, show};

const TTL: Duration = Duration::from_millis(200);

pub(crate) async fn run() -> Outcome {
    let server = Server::start(Flavor::Redis);
    let network = Proxy::in_front_of(&server);
    let mut a = Client::connect(&network.url()).await?;
    let mut b = Client::connect(&server.url()).await?;

    println!("A  SET lock NX PX 200: the server sets the key; the reply is on its way");
    network.replies(Fault::Hold);
    let begun = Clock::System.now();
    let reply = tokio::spawn(async move { a.lock("lock", "a", TTL).await });
    wait_until("the reply to be held", PATIENCE, || {
        network.held_bytes() > 0
    });
    until_expired(&server, "lock");
    let second = b.lock("lock", "b", Duration::from_secs(30)).await?;
    show(
        second,
        "B  SET lock NX: the key has expired, B holds the lock",
    )?;
    network.pass();
    show(
        reply.await??,
        "FAILS   A gets its reply, OK, and works too: nothing in the reply is about time",
    )?;
    let taken = Clock::System.now().since(begun);
    show(
        taken >= TTL,
        "REPAIR  A reads a clock before it sends: the acquire took longer than the TTL, so A has nothing",
    )?;
    with_ringfence(&server, &network).await
}

/// The same network under a client that does this by itself.
async fn with_ringfence(server: &Server, network: &Proxy) -> Outcome {
    let locks = Locks::connect(&network.url()).await?;
    let other = Locks::connect(&server.url()).await?;
    let lock = locks.mutex("ours").ttl(TTL).attempts(1);
    network.replies(Fault::Hold);
    let refused = lock.lock().await.is_err();
    network.pass();
    let free = other.mutex("ours").wait(PATIENCE).lock().await.is_ok();
    show(
        refused && free,
        "        ringfence: no grant for A, and its late attempt is undone, so B gets the lock",
    )?;
    locks.close().await;
    other.close().await;
    Ok(())
}
