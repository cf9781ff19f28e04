//! Servers that drop every script and every connection while locks are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ringfence::ReleaseError;
use ringfence_testkit::{Fleet, wait_until_async};
use tokio::task::JoinSet;

use crate::stage::*;

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
