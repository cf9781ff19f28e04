//! Servers that drop every script and every connection while locks are taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ringfence::ReleaseError;
use ringfence_testkit::{Fleet, wait_until_async};
use tokio::task::JoinSet;

use crate::stage::*;

const TASKS: usize = 16;
const NAMES: usize = 4;
const ROUNDS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_and_killed_connections_stop_nobody_and_leave_nothing() {
    let fleet = Fleet::start(3);
    let locks = client_of(&fleet).await;
    let grants = Arc::new(AtomicUsize::new(0));
    let inside: Arc<[AtomicBool; NAMES]> = Arc::default();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (locks, grants, inside) = (locks.clone(), Arc::clone(&grants), Arc::clone(&inside));
        tasks.spawn(async move {
            let name = task % NAMES;
            for _ in 0..ROUNDS {
                let lock = locks.mutex(format!("n{name}")).wait(PATIENCE);
                let guard = lock.lock().await.unwrap();
                assert!(!inside[name].swap(true, Ordering::SeqCst), "two holders");
                tokio::task::yield_now().await;
                assert!(inside[name].swap(false, Ordering::SeqCst));
                grants.fetch_add(1, Ordering::SeqCst);
                // Nobody may be left to confirm it; it is released all the same.
                let released = guard.release().await;
                assert!(
                    matches!(released, Ok(()) | Err(ReleaseError::Unconfirmed)),
                    "{released:?}"
                );
            }
        });
    }
    let all = TASKS * ROUNDS;
    let mut storms = 0;
    while grants.load(Ordering::SeqCst) < all {
        let seen = grants.load(Ordering::SeqCst);
        for server in fleet.iter() {
            server.command(&["SCRIPT", "FLUSH"]);
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        storms += 1;
        wait_until_async("locks to go on", PATIENCE, async || {
            let made = grants.load(Ordering::SeqCst);
            made >= (seen + 6).min(all) || tasks.is_empty()
        })
        .await;
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    // How many fit in is the machine's matter.
    assert!(storms >= 3, "{storms}");
    no_key_remains(fleet.iter()).await;
}
