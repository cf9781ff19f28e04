//! Step 2: a lock and its expiry in two commands, and the second one gets lost.

use std::time::Duration;

use ringfence_testkit::{Fault, Flavor, Proxy, Server};

use crate::simple_client::Client;
use crate::{Outcome, show};

pub(crate) async fn run() -> Outcome {
    let server = Server::start(Flavor::Redis);
    let network = Proxy::in_front_of(&server);
    let mut a = Client::connect(&network.url()).await?;

    show(
        a.setnx("lock", "1").await?,
        "A  SETNX lock 1: A holds the lock",
    )?;
    network.requests(Fault::Reset);
    let expiry = a.expire("lock", Duration::from_millis(50)).await;
    show(
        expiry.is_err(),
        "A  PEXPIRE lock 50: the connection breaks, the command is lost",
    )?;
    let expiry = server.command(&["TTL", "lock"]);
    show(expiry == "-1", "FAILS   the key has no expiry again")?;

    server.command(&["DEL", "lock"]);
    let mut b = Client::connect(&server.url()).await?;
    let locked = b.lock("lock", "1", Duration::from_secs(30)).await?;
    let expiry: i64 = server.command(&["PTTL", "lock"]).parse()?;
    show(
        locked && expiry > 0,
        "REPAIR  SET lock 1 NX PX 30000: one command, so there is no key without an expiry",
    )
}
