//! Step 6: the work takes longer than the TTL; and a renewal that cannot reach the server.

use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Flavor, Server, wait_until_async};

use crate::simple_client::{Client, PATIENCE, until_expired};
use crate::{Outcome, show};

pub(crate) async fn run() -> Outcome {
    let server = Server::start(Flavor::Redis);
    let mut a = Client::connect(&server.url()).await?;
    let mut b = Client::connect(&server.url()).await?;
    let ttl = Duration::from_millis(50);
    show(
        a.lock("lock", "a", ttl).await?,
        "A  SET lock NX PX 50: A holds the lock, and works for longer than that",
    )?;
    until_expired(&server, "lock");
    show(
        b.lock("lock", "b", Duration::from_secs(30)).await?,
        "FAILS   the lock expires under A's work: B gets it, and both work",
    )?;
    renewed(&server).await?;
    told_of_the_loss(&server).await
}

async fn renewed(server: &Server) -> Outcome {
    let locks = Locks::connect(&server.url()).await?;
    let guard = locks
        .mutex("long")
        .ttl(Duration::from_secs(9))
        .lock()
        .await?;
    let left = || -> i64 { server.command(&["PTTL", "long"]).parse().unwrap_or(0) };
    // The time left falls, until a renewal lifts it.
    let mut before = left();
    wait_until_async("the lock to be renewed", PATIENCE, async || {
        let now = left();
        let renewed = now > before;
        before = now;
        renewed
    })
    .await;
    let refused = locks.mutex("long").try_lock().await.is_err();
    show(
        refused && guard.check().is_ok(),
        "REPAIR  ringfence renews the lock at a third of its TTL while the guard lives: B is refused",
    )?;
    guard.release().await?;
    locks.close().await;
    Ok(())
}

/// No renewal helps while the server is away. What helps is to know when to stop.
async fn told_of_the_loss(server: &Server) -> Outcome {
    let locks = Locks::connect(&server.url()).await?;
    let lock = locks.mutex("long").ttl(Duration::from_millis(500));
    let guard = lock.lock().await?;
    println!("A  holds the lock again, and the server stops answering: no renewal arrives");
    server.pause();
    let work = std::future::pending::<()>();
    let outcome = guard.run(work).await;
    server.resume();
    show(
        outcome.is_err(),
        "REPAIR  ringfence stops A's work at A's own deadline, without a word from the server",
    )?;
    drop(guard);
    locks.close().await;
    Ok(())
}
