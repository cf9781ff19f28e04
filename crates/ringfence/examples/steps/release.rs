//! Step 3: a holder whose lock has expired deletes the lock of the next one.

use std::time::Duration;

use ringfence_testkit::{Flavor, Server};

use crate::simple_client::{Client, until_expired};
use crate::{Outcome, show};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(30);

pub(crate) async fn run() -> Outcome {
    let server = Server::start(Flavor::Redis);
    let mut a = Client::connect(&server.url()).await?;
    let mut b = Client::connect(&server.url()).await?;
    let mut c = Client::connect(&server.url()).await?;

    show(
        a.lock("lock", "1", SHORT).await?,
        "A  SET lock 1 NX PX 50: A holds the lock, and works",
    )?;
    until_expired(&server, "lock");
    println!("   the lock expires; A does not notice");
    show(
        b.lock("lock", "1", LONG).await?,
        "B  SET lock 1 NX PX 30000: B holds the lock, and works",
    )?;
    show(a.delete("lock").await?, "A  DEL lock: deleted")?;
    show(
        c.lock("lock", "1", LONG).await?,
        "FAILS   it was B's lock: C gets it, and B and C work at the same time",
    )?;

    // The same again. The value says whose lock it is; in earnest it is random.
    server.command(&["DEL", "lock"]);
    a.lock("lock", "value-of-a", SHORT).await?;
    until_expired(&server, "lock");
    b.lock("lock", "value-of-b", LONG).await?;
    let deleted = a.unlock("lock", "value-of-a").await?;
    let second = c.lock("lock", "value-of-c", LONG).await?;
    show(
        !deleted && !second,
        "REPAIR  a script deletes the key only if it has A's value: A is told that it lost the lock, B keeps it",
    )
}
