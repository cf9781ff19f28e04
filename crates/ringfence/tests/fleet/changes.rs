//! What a client learns of names that others write, on real servers.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence::Locks;

use ringfence::admin::ChangedNames;
use ringfence_testkit::{Flavor, Fleet, Server, wait_until_async};

use super::rights;
use crate::fleet::stage::*;

/// How many connections are told of the changes of `server`.
fn watchers(server: &Server) -> u32 {
    let clients = server.command(&["INFO", "clients"]);
    let mut lines = clients.lines();
    let count = lines.find_map(|line| line.trim().strip_prefix("tracking_clients:"));
    count.expect("a count").parse().expect("a number")
}

/// Waits until changes of all locks are told of, or not any more.
#[track_caller]
fn until_covered(changed: &ChangedNames, covered: bool) -> impl Future<Output = ()> {
    wait_until_async("the nodes to tell of changes", PATIENCE, async move || {
        changed.covers_all() == covered
    })
}

/// Waits until the change of `name` was told of.
async fn told(changed: &ChangedNames, name: &str) {
    let told = async { while !changed.next().await.contains(name) {} };
    let told = tokio::time::timeout(PATIENCE, told).await;
    told.unwrap_or_else(|_| panic!("no change of {name} was told of"));
}

#[tokio::test]
async fn a_client_is_told_of_the_names_that_others_write() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor));
        let others = client_of(&fleet).await;
        let watching = builder(&fleet.urls()).prefix("of:");
        let watching = watching.connect().await.unwrap();
        let changed = watching.changed_names();
        assert!(!changed.covers_all(), "before the servers were asked");
        until_covered(&changed, true).await;
        let _mutex = others.mutex("of:mutex").lock().await.unwrap();
        let _foreign = others.mutex("other").lock().await.unwrap();
        let _reader = others.rw_lock("of:{readers}").read().await.unwrap();
        let _permit = others.semaphore("of:permits", 2).acquire().await.unwrap();
        others.latch("of:latch", 2).arrive().await.unwrap();
        let expected = ["latch", "mutex", "permits", "{readers}"].map(str::to_owned);
        let mut seen = BTreeSet::new();
        let all = async {
            while seen.len() < expected.len() {
                seen.extend(changed.next().await);
            }
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .expect("all names");
        assert_eq!(seen, BTreeSet::from(expected));
    }
}

#[tokio::test]
async fn changes_are_told_of_again_after_servers_were_restarted() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    let changed = locks.changed_names();
    until_covered(&changed, true).await;
    // With two of three, a lock on the other two may be told of by one of them only.
    fleet[0].kill();
    told_of_a_lock(&locks, &changed, "with two").await;
    fleet[1].kill();
    until_covered(&changed, false).await;
    fleet[0].restart();
    fleet[1].restart();
    until_covered(&changed, true).await;
}

/// Takes a lock, and waits until it was told of.
async fn told_of_a_lock(locks: &Locks, changed: &ChangedNames, name: &str) {
    let guard = locks.mutex(name).wait(PATIENCE).lock().await.unwrap();
    told(changed, name).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_server_with_too_many_changes_is_left_alone() {
    let fleet = Fleet::start(1);
    let locks = client_of(&fleet).await;
    let changed = locks.changed_names();
    until_covered(&changed, true).await;
    assert_eq!(watchers(&fleet[0]), 1);
    let script = "for i = 1, 3000 do redis.call('SET', 'ringfence:{x}:record:x' .. i, 1) end";
    for _ in 0..4 {
        fleet[0].command(&["EVAL", script, "0"]);
    }
    until_covered(&changed, false).await;
    wait_until_async("the connection to end", PATIENCE, async || {
        watchers(&fleet[0]) == 0
    })
    .await;
    // Locks are not affected.
    round(&locks, "a").await;
    assert!(!changed.covers_all());
}

/// The ACL line of the guide for a user who may only look, with the right of a dashboard.
fn with_tracking(users: &str) -> String {
    let line = rights::line_of("watcher");
    users.replace(line, &format!("{line} +client|tracking"))
}

/// No ACL rule forbids `REDIRECT`: a user with the right sends reports of all writes to a client that
/// did not ask for them. A burst ends its connection; the lock is kept over the next one.
#[tokio::test]
async fn reports_that_another_user_sends_to_a_client_cost_it_no_lock() {
    for flavor in Flavor::ALL {
        let users = with_tracking(&rights::users());
        let server = Server::builder(flavor).acl_file(&users).start();
        let orders = connect(&server.url_as("orders", "PASSWORD")).await;
        let lock = orders.mutex("orders:x").ttl(Duration::from_secs(10));
        let guard = lock.lock().await.unwrap();
        let clients = server.command(&["CLIENT", "LIST"]);
        let holder = clients.lines().find(|line| line.contains("user=orders"));
        let holder = holder.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
        let holder = holder.expect("the connection of the holder");
        let watcher = redis::Client::open(server.url_as("watcher", "PASSWORD")).unwrap();
        let mut watcher = watcher.get_connection().unwrap();
        let mut tracking = redis::cmd("CLIENT");
        tracking.arg(&["TRACKING", "ON", "REDIRECT", holder, "BCAST"]);
        tracking.exec(&mut watcher).unwrap();
        let fill = "for i = 1, 30000 do redis.call('SET', 'other:' .. i, '') end";
        server.command(&["EVAL", fill, "0"]);
        let renewed = || {
            server
                .command(&["PTTL", "orders:x"])
                .parse::<i64>()
                .unwrap()
                > 9_500
        };
        wait_until_async("a renewal", PATIENCE, async || !renewed()).await;
        wait_until_async("a renewal", PATIENCE, async || renewed()).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_user_who_may_only_look_is_told_of_changes() {
    let users = with_tracking(&rights::users());
    let server = Server::builder(Flavor::Redis).acl_file(&users).start();
    let orders = connect(&server.url_as("orders", "PASSWORD")).await;
    let looking = builder(&server.url_as("watcher", "PASSWORD"));
    let looking = looking.look_only().connect().await.unwrap();
    let changed = looking.changed_names();
    until_covered(&changed, true).await;
    told_of_a_lock(&orders, &changed, "orders:1").await;
}

/// Every refused command would be an entry in the server's ACL LOG.
#[tokio::test]
async fn a_user_without_the_right_is_not_told_of_changes_and_tries_nothing() {
    let server = Server::builder(Flavor::Redis)
        .acl_file(&rights::users())
        .start();
    let _orders = connect(&server.url_as("orders", "PASSWORD")).await;
    let looking = builder(&server.url_as("watcher", "PASSWORD"));
    let looking = looking.look_only().connect().await.unwrap();
    // The question for the right is a script that runs nothing.
    let questions = || {
        let stats = server.command(&["INFO", "commandstats"]);
        let calls = stats.split_once("cmdstat_evalsha_ro:calls=");
        let calls = calls.and_then(|(_, rest)| rest.split_once(','));
        calls.map_or(0, |(calls, _)| calls.parse::<u32>().unwrap())
    };
    let before = questions();
    let changed = looking.changed_names();
    wait_until_async("the question for the right", PATIENCE, async || {
        questions() > before
    })
    .await;
    // Beside the client's own connection there is none any more.
    wait_until_async("the end of the second connection", PATIENCE, async || {
        let clients = server.command(&["CLIENT", "LIST"]);
        clients.matches("user=watcher").count() == 1
    })
    .await;
    assert!(!changed.covers_all());
    let stats = server.command(&["INFO", "commandstats"]);
    assert!(!stats.contains("client|tracking"), "{stats}");
}

#[tokio::test]
async fn nothing_is_told_of_after_the_names_were_dropped() {
    let fleet = Fleet::start(1);
    let locks = client_of(&fleet).await;
    let changed = locks.changed_names();
    until_covered(&changed, true).await;
    drop(changed);
    wait_until_async("the connection to end", PATIENCE, async || {
        watchers(&fleet[0]) == 0
    })
    .await;
    round(&locks, "a").await;
}
