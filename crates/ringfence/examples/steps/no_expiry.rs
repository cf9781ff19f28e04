//! Step 1: a lock without an expiry outlives its holder.

use std::time::Duration;

use ringfence_testkit::{Flavor, Server};

use crate::simple_client::{Client, until_expired};
use crate::{Outcome, show};

pub(crate) async fn run() -> Outcome {
    let server = Server::start(Flavor::Redis);
    let mut a = Client::connect(&server.url()).await?;
    let mut b = Client::connect(&server.url()).await?;

    show(
        a.setnx("lock", "1").await?,
        "A  SETNX lock 1: A holds the lock",
    )?;
    drop(a);
    println!("A  crashes; no client will ever send DEL");
    for _ in 0..3 {
        show(!b.setnx("lock", "1").await?, "B  SETNX lock 1: refused")?;
    }
    let expiry = server.command(&["TTL", "lock"]);
    show(
        expiry == "-1",
        "FAILS   the key has no expiry: the lock is taken for ever",
    )?;

    b.delete("lock").await?;
    let mut a = Client::connect(&server.url()).await?;
    a.setnx("lock", "1").await?;
    a.expire("lock", Duration::from_millis(50)).await?;
    drop(a);
    until_expired(&server, "lock");
    show(
        b.setnx("lock", "1").await?,
        "REPAIR  with PEXPIRE lock 50 after it, the key of a crashed A goes away, and B gets the lock",
    )
}
