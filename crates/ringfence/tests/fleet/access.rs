//! TLS, and users that have only the rights that locks need.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence::Locks;
use ringfence::admin::{Found, Purpose};
use ringfence::node::TroubleKind;
use ringfence_testkit::{Certificates, Flavor, Fleet, Server, wait_until_async};

use crate::fleet::rights::{line_of, users};
use crate::fleet::stage::*;

/// Three servers with the users of the guide only, over TLS if `certificates` are given.
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

/// Uses every operation of a client.
async fn use_every_operation(fleet: &Fleet, urls: &str) {
    let locks = connect(urls).await;
    let shared = locks.rw_lock("orders:2");
    let reader = shared.write().await.unwrap().downgrade().await.unwrap();
    shared.read().await.unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    let latch = locks.latch("orders:3", 1).wait(PATIENCE);
    let opened = {
        let latch = latch.clone();
        tokio::spawn(async move { latch.opened().await })
    };
    latch.arrive().await.unwrap();
    opened.await.unwrap().unwrap();
    let lock = locks.mutex("orders:1").ttl(Duration::from_secs(2));
    let guard = lock.lock().await.unwrap();
    assert!(lock.try_lock().await.is_err());
    assert!(locks.inspect("orders:1").await.unwrap().is_held());
    guard.extend(Duration::from_secs(3)).await.unwrap();
    // One renewal restores the key that the node lost.
    fleet[0].command(&["DEL", "orders:1"]);
    wait_until_async("the key to be restored", PATIENCE, async || {
        has_key(&fleet[0], "orders:1")
    })
    .await;
    // Three wait: one gives up, the others get the lock in turn.
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
    // Two permits for three callers.
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

/// Uses every operation of a user that may only inspect, while `holders` hold locks.
async fn use_every_inspection(urls: &str, holders: &Locks) {
    let locks = connect(urls).await;
    assert!(!locks.inspect("orders:1").await.unwrap().is_held());
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
    assert!(locks.inspect("orders:2").await.unwrap().is_held());
    reader.release().await.unwrap();
    let permit = holders.semaphore("orders:3", 2).acquire().await.unwrap();
    let seen = locks.semaphore("orders:3", 2).inspect().await.unwrap();
    assert_eq!(seen.slots.iter().filter(|slot| slot.is_held()).count(), 1);
    permit.release().await.unwrap();
    let nodes = locks.nodes().await;
    assert!(nodes.iter().all(|node| node.facts.is_ok()), "{nodes:?}");
    locks.close().await;
    lacks_nothing(urls, Purpose::Look).await;
}

/// Asserts that the doctor finds that a user for `purpose` lacks no right on any node.
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
            // It lists the locks, so it may see which keys there are.
            Purpose::Look => assert!(server.keys.unwrap().looked_at > 0),
            Purpose::Lock => {
                assert_eq!(server.keys.unwrap_err().kind, TroubleKind::Denied);
            }
        }
    }
}

/// Waits until `count` tickets are in the queue of `name` on every node.
async fn until_waiting(locks: &Locks, name: &str, count: u64) {
    wait_until_async("the expected number of waiters", SOON, async || {
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
async fn a_quorum_over_tls_needs_exactly_the_rights_of_the_guide() {
    let certificates = Certificates::generate();
    needs_exactly_the_rights_of_the_guide(Flavor::Redis, Some(&certificates)).await;
}

/// One kind of server may deny and log a command that the other does not know.
#[tokio::test]
async fn a_quorum_of_valkey_servers_needs_exactly_the_rights_of_the_guide() {
    needs_exactly_the_rights_of_the_guide(Flavor::Valkey, None).await;
}

async fn needs_exactly_the_rights_of_the_guide(
    flavor: Flavor,
    certificates: Option<&Certificates>,
) {
    let fleet = secured(flavor, certificates);
    let urls = |user| urls(&fleet, user, certificates);
    reset_counters(&fleet);
    builder(&urls("operator")).init().await.unwrap();
    let used_by_operator = used(&fleet);

    reset_counters(&fleet);
    use_every_operation(&fleet, &urls("orders")).await;
    let mut used_by_orders = used(&fleet);
    // Needed if a waiter is dead or waits for several names. That does not happen here, but in the
    // comparison of the scripts with the ledger.
    used_by_orders.extend(["zlexcount", "zscore"].map(str::to_owned));
    assert_eq!(used_by_orders, granted("orders"));

    // If there are records, `init` use_every_inspection at them.
    reset_counters(&fleet);
    let refused = builder(&urls("operator")).init().await.unwrap_err();
    says(&refused, ["votes already"]);
    lacks_nothing(&urls("operator"), Purpose::Init).await;
    let used_by_operator = &used_by_operator | &used(&fleet);
    assert_eq!(used_by_operator, granted("operator"));

    let holders = connect(&urls("orders")).await;
    reset_counters(&fleet);
    use_every_inspection(&urls("watcher"), &holders).await;
    // The holders have used most of their own rights meanwhile.
    let own: BTreeSet<String> = &granted("watcher") - &granted("orders");
    assert!(used(&fleet).is_superset(&own), "{own:?}");
}

/// Starts counting used and denied commands.
fn reset_counters(fleet: &Fleet) {
    for server in fleet.iter() {
        server.command(&["CONFIG", "RESETSTAT"]);
        server.command(&["ACL", "LOG", "RESET"]);
    }
}

/// The commands that were used. Asserts that none was denied.
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
    // The commands of the test itself, and the login, which needs no right.
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
async fn certificates_of_another_authority_are_refused() {
    let certificates = Certificates::generate();
    let fleet = secured(Flavor::Redis, Some(&certificates));
    let operator = urls(&fleet, "operator", Some(&certificates));
    builder(&operator).init().await.unwrap();
    let urls = |certificates| urls(&fleet, "orders", Some(certificates));
    round(&connect(&urls(&certificates)).await, "orders:1").await;

    let strangers = Certificates::generate();
    let error = builder(&urls(&strangers)).connect().await.unwrap_err();
    assert!(
        matches!(error, ringfence::ConnectError::Misconfigured { .. }),
        "{error}"
    );
    says(&error, fleet.iter().map(address));
    says(&error, ["certificate"]);
}
