//! Servers that drop every script and every connection while locks are taken, and callers that give
//! up all the time.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use ringfence::ReleaseError;
use ringfence_testkit::{Fleet, Server, wait_until_async};
use tokio::task::JoinSet;

use crate::fleet::stage::*;

const TASKS: usize = 16;
const NAMES: usize = 4;
const STORMS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_and_killed_connections_stop_no_client_and_leave_no_key() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    let grants = Arc::new(AtomicUsize::new(0));
    let inside: Arc<[AtomicBool; NAMES]> = Arc::default();
    let storms = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (locks, grants, inside) = (locks.clone(), Arc::clone(&grants), Arc::clone(&inside));
        let storms = Arc::clone(&storms);
        tasks.spawn(async move {
            let name = task % NAMES;
            while storms.load(Ordering::SeqCst) < STORMS {
                let lock = locks.mutex(format!("n{name}")).wait(PATIENCE);
                let guard = lock.lock().await.unwrap();
                assert!(!inside[name].swap(true, Ordering::SeqCst), "two holders");
                tokio::task::yield_now().await;
                assert!(inside[name].swap(false, Ordering::SeqCst));
                grants.fetch_add(1, Ordering::SeqCst);
                // Perhaps no node is left to confirm the release; it is executed all the same.
                let released = guard.release().await;
                assert!(
                    matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
                    "{released:?}"
                );
            }
        });
    }
    while storms.load(Ordering::SeqCst) < STORMS {
        let seen = grants.load(Ordering::SeqCst);
        for server in fleet.iter() {
            server.command(&["SCRIPT", "FLUSH"]);
            // A connection for wakes is of type `pubsub`.
            for connections in ["normal", "pubsub"] {
                server.command(&["CLIENT", "KILL", "TYPE", connections]);
            }
        }
        wait_until_async("more grants", PATIENCE, async || {
            grants.load(Ordering::SeqCst) >= seen + 6
        })
        .await;
        storms.fetch_add(1, Ordering::SeqCst);
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    no_key_remains(fleet.iter()).await;
}

/// Callers that give up at once while the server does not answer: what they send stays within a
/// bound, nothing else of the client is disturbed, and nothing is left of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_send_little_and_disturb_nothing_else() {
    const CALLERS: usize = 1_000;
    let scripts = |server: &Server| {
        let stats = server.command(&["INFO", "commandstats"]);
        let calls = stats
            .lines()
            .filter(|line| line.starts_with("cmdstat_evalsha:"));
        let calls = calls.filter_map(|line| line.split_once("calls=")?.1.split_once(','));
        calls
            .map(|(calls, _)| calls.parse::<usize>().unwrap())
            .sum::<usize>()
    };
    for nodes in [1, 3] {
        let fleet = Fleet::start(nodes);
        let locks = client_of(&fleet).await;
        let bystander = locks.mutex("bystander").lock().await.unwrap();
        round(&locks, "wanted").await;
        let before: Vec<usize> = fleet.iter().map(scripts).collect();
        fleet.iter().for_each(Server::pause);
        for _ in 0..CALLERS {
            let lock = locks.mutex("wanted");
            let mut locking = Box::pin(lock.lock());
            assert!(poll_fn(|cx| Poll::Ready(locking.as_mut().poll(cx).is_pending())).await);
            tokio::task::yield_now().await;
        }
        fleet.iter().for_each(Server::resume);
        round(&locks, "free").await;
        round(&locks, "wanted").await;
        assert!(bystander.check().is_ok());
        bystander.release().await.unwrap();
        for (server, before) in fleet.iter().zip(before) {
            let sent = scripts(server) - before;
            // Retries and rounds of this test included.
            assert!(sent < CALLERS / 10, "{sent} scripts on one of {nodes}");
        }
        no_key_remains(fleet.iter()).await;
        locks.close().await;
    }
}
