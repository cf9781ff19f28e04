//! What a client reports without an exporter: its stats, and the events of its listener.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence::{Locks, Lost};

use ringfence::observe::{Event, Listener, LockKind, NodeState, RenewalOutcome};
use ringfence_testkit::wait_until;

use crate::rules::bench::{Bench, at_once, ms, poll_once, waits};

const PATIENCE: Duration = Duration::from_secs(30);

/// Keeps every event.
#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Listener for Heard {
    fn on_event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Heard {
    /// The first event for which `select` returns a value. Waits for it: events arrive on a thread
    /// of their own.
    #[track_caller]
    fn first<T>(&self, what: &str, select: impl Fn(&Event) -> Option<T>) -> T {
        let mut found = None;
        wait_until(what, PATIENCE, || {
            found = self.0.lock().unwrap().iter().find_map(&select);
            found.is_some()
        });
        found.expect("it was found")
    }
}

async fn observed(bench: &Bench, listener: Arc<dyn Listener>) -> Locks {
    let builder = bench.builder().listener(listener);
    builder.connect().await.expect("a client")
}

#[tokio::test]
async fn a_listener_hears_of_a_grant_and_its_release() {
    let bench = Bench::new(3).await;
    let heard = Arc::new(Heard::default());
    let locks = observed(&bench, heard.clone()).await;
    let guard = at_once(locks.mutex("orders:42").lock()).await.unwrap();
    let fence = guard.fence();
    let votes = heard.first("the grant", |event| match event {
        Event::Granted {
            name,
            kind: LockKind::Mutex,
            fence: granted,
            votes,
            ..
        } if &**name == "orders:42" && *granted == fence => Some(votes.len()),
        _ => None,
    });
    assert_eq!(votes, 3);
    bench.pass(ms(2_000)).await;
    at_once(guard.release()).await.unwrap();
    let held = heard.first("the release", |event| match event {
        Event::Released {
            name,
            fence: f,
            held,
            ..
        } if &**name == "orders:42" && *f == fence => Some(*held),
        _ => None,
    });
    assert_eq!(held, ms(2_000));
}

#[tokio::test]
async fn a_listener_hears_how_long_a_caller_waited() {
    let bench = Bench::new(3).await;
    let heard = Arc::new(Heard::default());
    let locks = observed(&bench, heard.clone()).await;
    let first = at_once(locks.mutex("x").lock()).await.unwrap();
    let lock = locks.mutex("x").wait(ms(700));
    let refused = bench.drive(lock.lock()).await;
    assert!(refused.is_err());
    let waited = heard.first("the refusal", |event| match event {
        Event::Refused { waited, error, .. } if error.is_held() => Some(*waited),
        _ => None,
    });
    assert!(waited >= ms(700) && waited < ms(900), "{waited:?}");
    drop(first);
}

#[tokio::test]
async fn a_listener_hears_of_renewals_and_of_a_loss() {
    let bench = Bench::new(3).await;
    let heard = Arc::new(Heard::default());
    let locks = observed(&bench, heard.clone()).await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    bench.pass(ms(4_000)).await;
    let renewed = |wanted| {
        move |event: &Event| match event {
            Event::Renewed { outcome, .. } => (*outcome == wanted).then_some(()),
            _ => None,
        }
    };
    heard.first("a renewal", renewed(RenewalOutcome::Renewed));
    bench.break_first(3);
    bench.pass(ms(11_000)).await;
    assert_eq!(guard.check(), Err(Lost::Expired));
    heard.first("a failed renewal", renewed(RenewalOutcome::NoMajority));
    let (why, held) = heard.first("the loss", |event| match event {
        Event::Lost { why, held, .. } => Some((*why, *held)),
        _ => None,
    });
    assert_eq!(why, Lost::Expired);
    assert!(held >= ms(10_000), "{held:?}");
    let stats = locks.stats();
    assert_eq!((stats.lost, stats.released, stats.held), (1, 0, 0));
    assert!(
        stats.renewed >= 1 && stats.renewals_failed >= 1,
        "{stats:?}"
    );
    drop(guard);
    assert_eq!(locks.stats().released, 0, "a lost lock is not released");
}

#[tokio::test]
async fn a_listener_hears_when_a_node_stops_answering_and_when_it_is_back() {
    let bench = Bench::new(3).await;
    let heard = Arc::new(Heard::default());
    let locks = observed(&bench, heard.clone()).await;
    let changed = |wanted: [NodeState; 2]| {
        move |event: &Event| match event {
            Event::NodeChanged { node, from, to, .. } if &**node == "a" => {
                ([*from, *to] == wanted).then_some(())
            }
            _ => None,
        }
    };
    bench.break_first(1);
    drop(at_once(locks.mutex("x").lock()).await.unwrap());
    heard.first("the fault", changed([NodeState::Voting, NodeState::Silent]));
    assert_eq!(locks.stats().nodes[0].state, NodeState::Silent);
    assert!(locks.stats().nodes[0].failed >= 1);
    bench.mend();
    bench.pass(ms(1_000)).await;
    drop(at_once(locks.mutex("x").lock()).await.unwrap());
    heard.first(
        "the return",
        changed([NodeState::Silent, NodeState::Voting]),
    );
}

#[tokio::test]
async fn a_downgraded_lock_is_held_as_a_share() {
    let bench = Bench::new(3).await;
    let heard = Arc::new(Heard::default());
    let locks = observed(&bench, heard.clone()).await;
    let writer = at_once(locks.rw_lock("x").write()).await.unwrap();
    let reader = bench.drive(writer.downgrade()).await.unwrap();
    heard.first("the downgrade", |event| {
        matches!(event, Event::Downgraded { .. }).then_some(())
    });
    assert_eq!(locks.stats().held, 1);
    at_once(reader.release()).await.unwrap();
    let kind = heard.first("the release", |event| match event {
        Event::Released { kind, .. } => Some(*kind),
        _ => None,
    });
    assert_eq!(kind, LockKind::Read);
    assert_eq!((locks.stats().held, locks.stats().released), (0, 1));
}

#[tokio::test]
async fn a_lock_that_is_left_behind_is_not_held_and_not_released() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    let receipt = guard.leave();
    let stats = locks.stats();
    assert_eq!((stats.held, stats.released, stats.lost), (0, 0, 0));
    let lock = locks.mutex("x");
    at_once(lock.release_receipt(&receipt)).await.unwrap();
    assert_eq!(locks.stats().held, 0);
}

#[tokio::test]
async fn a_caller_counts_as_waiting_until_it_has_the_lock_or_gives_up() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let first = at_once(locks.mutex("x").lock()).await.unwrap();
    assert_eq!(locks.stats().waiting, 0);
    let lock = locks.mutex("x");
    {
        let mut waiting = pin!(lock.lock());
        assert!(waits(waiting.as_mut()).await);
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        assert_eq!(locks.stats().waiting, 1);
    }
    let stats = locks.stats();
    assert_eq!((stats.waiting, stats.dropped), (0, 1), "the future is gone");
    {
        let mut waiting = pin!(lock.lock());
        assert!(waits(waiting.as_mut()).await);
        assert_eq!(locks.stats().waiting, 1);
        drop(first);
        let second = bench.drive(waiting.as_mut()).await.unwrap();
        let stats = locks.stats();
        assert_eq!((stats.waiting, stats.held, stats.granted), (0, 1, 2));
        drop(second);
    }
}

#[tokio::test]
async fn the_leads_of_a_client_are_counted() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let lead = at_once(locks.election("x").campaign()).await.unwrap();
    assert_eq!((locks.stats().leading, locks.stats().held), (1, 1));
    at_once(lead.resign()).await.unwrap();
    assert_eq!(locks.stats().leading, 0);
}

/// Panics at every second event.
#[derive(Default)]
struct Panics {
    heard: Heard,
    next: AtomicBool,
}

impl Listener for Panics {
    fn on_event(&self, event: &Event) {
        self.heard.on_event(event);
        assert!(!self.next.fetch_xor(true, Ordering::SeqCst), "as wanted");
    }
}

#[tokio::test]
async fn a_listener_that_panics_harms_no_lock_and_hears_the_next_event() {
    let bench = Bench::new(3).await;
    let listener = Arc::new(Panics::default());
    let locks = observed(&bench, listener.clone()).await;
    for _ in 0..10 {
        let guard = at_once(locks.mutex("x").lock()).await.unwrap();
        guard.check().unwrap();
        at_once(guard.release()).await.unwrap();
    }
    wait_until("all events", PATIENCE, || {
        let events = listener.heard.0.lock().unwrap();
        let releases = events
            .iter()
            .filter(|e| matches!(e, Event::Released { .. }));
        releases.count() == 10
    });
    wait_until("the panics to be counted", PATIENCE, || {
        locks.stats().listener_panics >= 10
    });
    assert_eq!(locks.stats().events_dropped, 0);
}

/// Does not return from its first event before the other end of its channel is dropped.
struct Slow(Mutex<Receiver<()>>);

impl Listener for Slow {
    fn on_event(&self, _: &Event) {
        let _ = self.0.lock().unwrap().recv();
    }
}

#[tokio::test]
async fn a_listener_that_hangs_harms_no_lock_and_what_it_misses_is_counted() {
    let bench = Bench::new(3).await;
    let (hangs, goes_on) = channel();
    let listener = Arc::new(Slow(Mutex::new(goes_on)));
    let locks = observed(&bench, listener).await;
    // Two events each: more than fit into the queue.
    for _ in 0..2_000 {
        let guard = at_once(locks.mutex("x").lock()).await.unwrap();
        at_once(guard.release()).await.unwrap();
    }
    let stats = locks.stats();
    assert_eq!(
        (stats.granted, stats.released, stats.held),
        (2_000, 2_000, 0)
    );
    assert!(stats.events_dropped >= 4_000 - 1_026, "{stats:?}");
    drop::<std::sync::mpsc::Sender<()>>(hangs);
}
