//! Step 7: a master dies before its replica has the lock.

use std::time::Duration;

use ringfence_testkit::{Flavor, Proxy, Server};

use crate::simple_client::Client;
use crate::{Outcome, show};

pub(crate) async fn run() -> Outcome {
    let master = Server::start(Flavor::Redis);
    let link = Proxy::in_front_of(&master);
    let replica = Server::builder(Flavor::Redis)
        .replica_through(&link, &master)
        .start();
    let mut a = Client::connect(&master.url()).await?;
    let ttl = Duration::from_secs(30);

    // Replication is asynchronous: the master answers A before the replica has the key. A broken
    // link makes that moment as long as this program needs.
    link.refuse();
    show(
        a.lock("lock", "a", ttl).await?,
        "A  SET lock NX PX 30000 on the master: A holds the lock",
    )?;
    master.kill();
    replica.promote();
    println!("   the master dies before it has told its replica; the replica becomes the master");
    let mut b = Client::connect(&replica.url()).await?;
    show(
        b.lock("lock", "b", ttl).await?,
        "FAILS   B  SET lock NX on the new master: B holds the lock too, for as long as A's TTL lasts",
    )
}
