//! TLS and users with no more rights than locks need.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence::Locks;
use ringfence::node::{Found, Purpose, TroubleKind};
use ringfence_testkit::{Certificates, Flavor, Fleet, Server, wait_until_async};

use crate::rights::{line_of, users};
use crate::stage::*;

/// Three servers that know only the users of the guide, over TLS if there are certificates for it.
fn secured(flavor: Flavor, certificates: Option<&Certificates>) -> Fleet {
    Fleet::start_with(3, |_| {
        let server = Server::builder(flavor).acl_file(&users());
        match certificates {
            Some(certificates) => server.tls(certificates),
            None => server,
        }
    })
}

fn urls(fleet: &Fleet, user: &str, certificates: Option<&Certificates>) -> String {
    let query = certificates.map_or_else(String::new, |certificates| {
        format!("?ca={}", certificates.authority_file().display())
    });
    let url = |server: &Server| format!("{}{query}", server.url_as(user, "PASSWORD"));
    fleet.iter().map(url).collect::<Vec<_>>().join(",")
}

/// Everything that a client can do.
async fn everything(fleet: &Fleet, urls: &str) {
    let locks = connect(urls).await;
    let shared = locks.rw_lock("orders:2");
    let reader = shared.write().await.unwrap().downgrade().await.unwrap();
    shared.read().await.unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    let latch = locks.latch("orders:3", 1).wait_for(PATIENCE);
    let opened = {
        let latch = latch.clone();
        tokio::spawn(async move { latch.wait().await })
    };
    latch.arrive().await.unwrap();
    opened.await.unwrap().unwrap();
    let lock = locks.mutex("orders:1").ttl(Duration::from_secs(2));
    let guard = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.is_err());
    assert!(locks.inspect("orders:1").await.unwrap().held);
    guard.extend(Duration::from_secs(3)).await.unwrap();
    // One renewal and what a node forgot.
    fleet[0].command(&["DEL", "orders:1"]);
    wait_until_async("the token to come back", SOON, async || {
        has_key(&fleet[0], "orders:1")
    })
    .await;
    // Three in line: one gives up, the others come when it is their turn.
    let waiting = (0..3).map(|_| {
        let lock = lock.clone().wait(PATIENCE);
        tokio::spawn(async move { lock.lock().await.map(drop) })
    });
    let waiting: Vec<_> = waiting.collect();
    until_waiting(&locks, "orders:1", 3).await;
    assert!(lock.try_lock().await.is_err());
    waiting[1].abort();
    until_waiting(&locks, "orders:1", 2).await;
    guard.release().await.unwrap();
    for (number, one) in waiting.into_iter().enumerate() {
        assert_eq!(one.await.is_ok_and(|held| held.is_ok()), number != 1);
    }
    let several = locks.multi(["orders:1", "orders:2"]).lock().await;
    several.unwrap().release().await.unwrap();
    let plain = locks.plain_mutex("orders:1").lock().await.unwrap();
    plain.extend(TTL).await.unwrap();
    plain.release().await.unwrap();
    // Two permits for three.
    let semaphore = locks.semaphore("orders:3", 2).ttl(Duration::from_secs(2));
    let permit = semaphore.acquire().await.unwrap();
    let other = semaphore.acquire().await.unwrap();
    assert!(semaphore.try_acquire().await.is_err());
    let third = semaphore.clone().wait(PATIENCE);
    let third = tokio::spawn(async move { third.acquire().await.map(drop) });
    permit.extend(TTL).await.unwrap();
    permit.release().await.unwrap();
    third.await.unwrap().unwrap();
    other.release().await.unwrap();
    let leader = locks.election("orders:4").campaign().await.unwrap();
    leader.resign().await.unwrap();
    until_granted_by(&locks, "orders:1", &[true; 3]).await;
    locks.close().await;
    lacks_nothing(urls, Purpose::Lock).await;
}

/// Everything that a user can do who may only look, while somebody has what there is to look at.
async fn looks(urls: &str, holders: &Locks) {
    let locks = connect(urls).await;
    assert!(!locks.inspect("orders:1").await.unwrap().held);
    let guard = holders.mutex("orders:1").label("me").lock().await.unwrap();
    let waiting = holders.mutex("orders:1").wait(PATIENCE);
    let waiting = tokio::spawn(async move { waiting.lock().await.map(drop) });
    until_waiting(&locks, "orders:1", 1).await;
    let seen = locks.inspect("orders:1").await.unwrap();
    assert_eq!(seen.label.as_deref(), Some("me"));
    assert_eq!(seen.fence, Some(guard.fence()));
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    let reader = holders.rw_lock("orders:2").read().await.unwrap();
    assert!(locks.inspect("orders:2").await.unwrap().held);
    reader.release().await.unwrap();
    let permit = holders.semaphore("orders:3", 2).acquire().await.unwrap();
    let seen = locks.semaphore("orders:3", 2).inspect().await.unwrap();
    assert_eq!(seen.slots.iter().filter(|slot| slot.held).count(), 1);
    permit.release().await.unwrap();
    let nodes = locks.nodes().await;
    assert!(nodes.iter().all(|node| node.facts.is_ok()), "{nodes:?}");
    locks.close().await;
    lacks_nothing(urls, Purpose::Look).await;
}

/// Asserts that the doctor finds a user for `purpose` without fault on every node.
async fn lacks_nothing(urls: &str, purpose: Purpose) {
    let examined = builder(urls).examine(Some("orders:1")).await.unwrap();
    for node in examined {
        let Ok(Found::Server(server)) = node.found else {
            panic!("{node:?}");
        };
        let rights = server.rights.unwrap();
        assert_eq!(rights.purpose, purpose, "{}", node.node);
        assert_eq!(rights.lacking, [], "{}", node.node);
        assert!(server.identity.is_ok() && server.clock.is_ok() && server.birth.is_ok());
        match purpose {
            Purpose::Init => {
                let keys = server.keys.unwrap();
                assert!(keys.complete && keys.lasting == 0, "{keys:?}");
                assert!(keys.looked_at > 0 && keys.hidden == 0, "{keys:?}");
            }
            Purpose::Lock | Purpose::Look => {
                assert_eq!(server.keys.unwrap_err().kind, TroubleKind::Denied);
            }
        }
    }
}

/// Waits until `count` stand in line for `name` on every node.
async fn until_waiting(locks: &Locks, name: &str, count: u64) {
    wait_until_async("so many in line", SOON, async || {
        let inspection = locks.inspect(name).await.unwrap();
        let mut views = inspection
            .nodes
            .iter()
            .map(|node| node.view.as_ref().unwrap());
        views.all(|view| view.waiting == count)
    })
    .await;
}

#[tokio::test]
async fn a_quorum_over_tls_needs_the_rights_of_the_guide_and_no_others() {
    let certificates = Certificates::generate();
    needs_the_rights_of_the_guide_and_no_others(Flavor::Redis, Some(&certificates)).await;
}

/// Another server may log as denied what the first does not even know.
#[tokio::test]
async fn a_quorum_of_valkey_servers_needs_no_other_rights() {
    needs_the_rights_of_the_guide_and_no_others(Flavor::Valkey, None).await;
}

async fn needs_the_rights_of_the_guide_and_no_others(
    flavor: Flavor,
    certificates: Option<&Certificates>,
) {
    let fleet = secured(flavor, certificates);
    let urls = |user| urls(&fleet, user, certificates);
    begin(&fleet);
    builder(&urls("operator")).init(false).await.unwrap();
    let used_by_operator = used(&fleet);

    begin(&fleet);
    everything(&fleet, &urls("orders")).await;
    let mut used_by_orders = used(&fleet);
    // Needed where somebody in line is dead, or waits for several names: not played here, but in
    // the comparison of the scripts with the ledger.
    used_by_orders.extend(["zlexcount", "zscore"].map(str::to_owned));
    assert_eq!(used_by_orders, granted("orders"));

    // Where there are records, `init` looks at them.
    begin(&fleet);
    let refused = builder(&urls("operator")).init(false).await.unwrap_err();
    says(&refused, ["votes already"]);
    lacks_nothing(&urls("operator"), Purpose::Init).await;
    let used_by_operator = &used_by_operator | &used(&fleet);
    assert_eq!(used_by_operator, granted("operator"));

    let holders = connect(&urls("orders")).await;
    begin(&fleet);
    looks(&urls("watcher"), &holders).await;
    // The holders of what it looks at have used most of their rights.
    let own: BTreeSet<String> = &granted("watcher") - &granted("orders");
    assert!(used(&fleet).is_superset(&own), "{own:?}");
}

/// What is used, and denied, counts from now on.
fn begin(fleet: &Fleet) {
    for server in fleet.iter() {
        server.command(&["CONFIG", "RESETSTAT"]);
        server.command(&["ACL", "LOG", "RESET"]);
    }
}

/// The commands that were used; none may have been denied.
fn used(fleet: &Fleet) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for server in fleet.iter() {
        assert_eq!(server.command(&["ACL", "LOG"]), "", "something was denied");
        let stats = server.command(&["INFO", "commandstats"]);
        let names = stats
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_"));
        used.extend(names.map(|line| line.split(':').next().unwrap().to_owned()));
    }
    // What the test itself asks the servers, and logging in, which everybody may.
    for own in ["auth", "acl|log", "config|resetstat"] {
        used.remove(own);
    }
    used
}

/// The commands that the guide's line for `user` grants.
fn granted(user: &str) -> BTreeSet<String> {
    let rules = line_of(user).split(' ');
    let commands = rules.filter_map(|rule| rule.strip_prefix('+'));
    commands.map(str::to_owned).collect()
}

#[tokio::test]
async fn other_authorities_are_refused() {
    let certificates = Certificates::generate();
    let fleet = secured(Flavor::Redis, Some(&certificates));
    let operator = urls(&fleet, "operator", Some(&certificates));
    builder(&operator).init(false).await.unwrap();
    let urls = |certificates| urls(&fleet, "orders", Some(certificates));
    round(&connect(&urls(&certificates)).await, "orders:1").await;

    let strangers = Certificates::generate();
    let locks = connect(&urls(&strangers)).await;
    let error = locks.mutex("orders:1").try_lock().await.unwrap_err();
    says(&error, fleet.iter().map(address));
    says(&error, ["certificate"]);
}
