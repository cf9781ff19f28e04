//! Those who die in line delay nobody for good.

use std::time::Duration;

use ringfence::Locks;
use ringfence::clock::Clock;
use ringfence::group::Group;
use ringfence::ledger::TICKET_MS;
use ringfence_testkit::{Fleet, wait_until_async};

use crate::crew::Crew;
use crate::order::one_at_a_time;

/// What a dead head of the line may cost at most: its ticket's lease, and the grace.
const WORST: Duration = Duration::from_millis(TICKET_MS + Group::DEFAULT_GRACE.as_millis() as u64);

#[test]
fn processes_killed_while_they_wait_delay_nobody_for_good() {
    let fleet = Fleet::start(3);
    let mut crew = Crew::start(&fleet.urls_without_quarantine(), 4, 4);
    crew.turns(200);
    for process in 0..3 {
        crew.kill(process);
        // It had four in line, one of them perhaps woken, perhaps holding (TTL 10 s).
        let mut turns = crew.turns(100);
        one_at_a_time(&mut turns);
    }
}

#[tokio::test]
async fn a_head_that_died_is_passed_within_its_lease_and_the_grace() {
    let fleet = Fleet::start(3);
    let urls = fleet.urls_without_quarantine();
    let locks = Locks::connect(&urls).await.unwrap();
    let holder = locks.mutex("x").lock().await.unwrap();
    // A client whose runtime is gone neither comes nor says goodbye: dead, as far as anybody knows.
    let doomed = std::thread::spawn({
        let urls = urls.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let locks = Locks::connect(&urls).await.unwrap();
                let waits = tokio::spawn(async move { locks.mutex("x").lock().await.map(drop) });
                let look = Locks::connect(&urls).await.unwrap();
                in_line(&look, 1).await;
                drop(waits);
            });
            runtime.shutdown_background();
        }
    });
    doomed.join().unwrap();
    let next = tokio::spawn({
        let locks = Locks::connect(&urls).await.unwrap();
        async move {
            let guard = locks.mutex("x").lock().await.unwrap();
            (Clock::System.now(), guard)
        }
    });
    in_line(&locks, 2).await;
    let freed = Clock::System.now();
    holder.release().await.unwrap();
    let (held, guard) = next.await.unwrap();
    let waited = held.since(freed);
    assert!(waited < WORST + Duration::from_secs(2), "{waited:?}");
    guard.release().await.unwrap();
}

/// Waits until `count` stand in line for `x` on every node.
async fn in_line(locks: &Locks, count: u64) {
    wait_until_async("so many in line", Duration::from_secs(10), async || {
        let inspection = locks.inspect("x").await.unwrap();
        let views = inspection.nodes.iter();
        views
            .filter_map(|node| node.view.as_ref().ok())
            .all(|v| v.waiting == count)
    })
    .await;
}
