//! TLS and users with no more rights than locks need.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence::Locks;
use ringfence::node::Found;
use ringfence::node::redis::acl_line;
use ringfence_testkit::{Certificates, Flavor, Fleet, Server, wait_until_async};

use crate::stage::*;

/// The least rights, as docs/operations.md gives them: copy it from there into an ACL file. Locks
/// are under `orders:` here.
fn user() -> String {
    acl_line("ringfence", "PASSWORD", "orders:*")
}

/// Three servers that know only this user, over TLS if there are certificates for it.
fn secured(flavor: Flavor, certificates: Option<&Certificates>) -> Fleet {
    Fleet::start_with(3, |_| {
        let users = format!("user default off\n{}", user());
        let server = Server::builder(flavor).acl_file(&users);
        match certificates {
            Some(certificates) => server.tls(certificates),
            None => server,
        }
    })
}

fn urls(fleet: &Fleet, certificates: Option<&Certificates>) -> String {
    let query = certificates.map_or_else(String::new, |certificates| {
        format!("?ca={}", certificates.authority_file().display())
    });
    let url = |server: &Server| format!("{}{query}", server.url_as("ringfence", "PASSWORD"));
    fleet.iter().map(url).collect::<Vec<_>>().join(",")
}

/// Everything that a client can do.
async fn everything(fleet: &Fleet, urls: &str) {
    builder(urls).init(false).await.unwrap();
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
    let examined = builder(urls).examine(Some("orders:1")).await.unwrap();
    for node in examined {
        let Ok(Found::Server(server)) = node.found else {
            panic!("{node:?}");
        };
        assert_eq!(server.rights.unwrap(), [], "{}", node.node);
        assert!(server.identity.is_ok() && server.clock.is_ok() && server.birth.is_ok());
        let keys = server.keys.unwrap();
        assert!(keys.complete && keys.lasting == 0, "{keys:?}");
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
    for server in fleet.iter() {
        server.command(&["CONFIG", "RESETSTAT"]);
        server.command(&["ACL", "LOG", "RESET"]);
    }
    everything(&fleet, &urls(&fleet, certificates)).await;

    let user = user();
    let granted: BTreeSet<&str> = user
        .split(' ')
        .filter_map(|w| w.strip_prefix('+'))
        .collect();
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
    // Needed where somebody in line is dead, or waits for several names: not played here, but in
    // the comparison of the scripts with the ledger.
    used.extend(["zlexcount", "zscore"].map(str::to_owned));
    let used: BTreeSet<&str> = used.iter().map(String::as_str).collect();
    assert_eq!(used, granted);
}

#[tokio::test]
async fn other_names_and_other_authorities_are_refused() {
    let certificates = Certificates::generate();
    let fleet = secured(Flavor::Redis, Some(&certificates));
    let urls = urls(&fleet, Some(&certificates));
    builder(&urls).init(false).await.unwrap();
    let locks = connect(&urls).await;
    let error = locks.mutex("invoices:1").lock().await.unwrap_err();
    says(&error, ["grant it with ACL SETUSER"]);
    round(&locks, "orders:1").await;

    let strangers = Certificates::generate();
    let distrusting = self::urls(&fleet, Some(&strangers));
    let locks = connect(&distrusting).await;
    let error = locks.mutex("orders:1").try_lock().await.unwrap_err();
    says(&error, fleet.iter().map(address));
    says(&error, ["certificate"]);
}

#[test]
fn the_operations_guide_has_the_line_that_is_tested() {
    let guide = include_str!("../../../../docs/operations.md");
    let user = user();
    assert!(guide.contains(&user), "docs/operations.md needs:\n{user}");
}
