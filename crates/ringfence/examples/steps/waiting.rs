//! Step 4: a client that polls is overtaken; clients in a queue are served in order.

use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{Flavor, Server, wait_until_async};
use tokio::sync::mpsc;

use crate::simple_client::{Client, PATIENCE};
use crate::{Outcome, show};

const TTL: Duration = Duration::from_secs(30);

pub(crate) async fn run() -> Outcome {
    let server = Server::start(Flavor::Redis);
    polling(&server).await?;
    queueing(&server).await
}

async fn polling(server: &Server) -> Outcome {
    let mut holder = Client::connect(&server.url()).await?;
    let mut a = Client::connect(&server.url()).await?;
    let mut b = Client::connect(&server.url()).await?;

    holder.lock("lock", "holder", TTL).await?;
    show(
        !a.lock("lock", "a", TTL).await?,
        "A  SET lock NX: refused; A sleeps and will try again",
    )?;
    holder.unlock("lock", "holder").await?;
    println!("   the holder releases the lock while A sleeps: it is free, and A does not know");
    show(
        b.lock("lock", "b", TTL).await?,
        "B  has only just come, and gets it at the first try",
    )?;
    show(
        !a.lock("lock", "a", TTL).await?,
        "FAILS   A tries again and is refused: a client that polls has no place in a queue",
    )
}

async fn queueing(server: &Server) -> Outcome {
    let locks = Locks::connect(&server.url()).await?;
    let name = "queued";
    let holder = locks.mutex(name).lock().await?;
    let (served, mut order) = mpsc::unbounded_channel();
    for (place, caller) in ["A", "B"].into_iter().enumerate() {
        let (lock, served) = (locks.mutex(name), served.clone());
        tokio::spawn(async move {
            if let Ok(guard) = lock.lock().await {
                let _ = served.send(caller);
                drop(guard);
            }
        });
        let waiting = place as u64 + 1;
        wait_until_async("the caller to be in the queue", PATIENCE, async || {
            locks
                .inspect(name)
                .await
                .is_ok_and(|seen| seen.waiting == waiting)
        })
        .await;
    }
    holder.release().await?;
    let order = [order.recv().await, order.recv().await];
    show(
        order == [Some("A"), Some("B")],
        "REPAIR  ringfence keeps a queue on the nodes and wakes the next: A, then B",
    )?;
    locks.close().await;
    Ok(())
}
