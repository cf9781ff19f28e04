//! One endpoint with a failover behind it: schedules with promotions, failbacks and a former master
//! that goes on serving. No invariant breaks, and holders keep their locks through a promotion.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ringfence_core::group::{Failover, Group};
use ringfence_verify::history::What;
use ringfence_verify::invariants::{self, Violation};
use ringfence_verify::simulator::{
    ClientPlan, End, Fault, FaultAction, Moved, NodePlan, Plan, Run, Step, Want, one_endpoint, run,
};

const SCHEDULES: u64 = 4_000;

/// Runs the schedules of the first seeds. Returns the lowest seed that broke an invariant, and how
/// often a standby was promoted.
fn search(schedules: u64) -> (Option<(u64, Violation)>, u64) {
    let (next, promoted) = (AtomicU64::new(1), AtomicU64::new(0));
    let broken = Mutex::new(None::<(u64, Violation)>);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let mut found = broken.lock().unwrap();
                    if seed > schedules || found.is_some() {
                        return;
                    }
                    drop(found);
                    let plan = one_endpoint(seed);
                    let run = run(&plan, &plan.all(), false);
                    promoted.fetch_add(run.changes.promoted, Ordering::Relaxed);
                    if let Err(violation) = invariants::check(&run.history) {
                        found = broken.lock().unwrap();
                        found.get_or_insert((seed, violation));
                    }
                }
            });
        }
    });
    (broken.into_inner().unwrap(), promoted.into_inner())
}

#[test]
fn failovers_behind_one_endpoint_break_nothing() {
    let (broken, promoted) = search(SCHEDULES);
    if let Some((seed, violation)) = broken {
        let plan = one_endpoint(seed);
        panic!("seed {seed}: {violation}\n{}", plan.describe(&plan.all()));
    }
    assert!(promoted >= SCHEDULES / 2, "{promoted} promotions");
}

/// A client that takes the lock, renews it and holds it.
fn step(client: usize, after_ms: u64, hold_s: u64) -> Step {
    Step {
        op: client as u64 + 1,
        client,
        task: 0,
        after: Duration::from_millis(after_ms),
        want: Want::Mutex("a".to_owned()),
        ttl: Duration::from_secs(4),
        wait: None,
        renew: true,
        hold: Duration::from_secs(hold_s),
        updates: 0,
        ignores_loss: false,
        cancel: None,
        extend: None,
        owned: false,
        lock_delay: Duration::ZERO,
        at_least: Duration::ZERO,
        end: End::Release,
    }
}

/// One client takes the lock and renews it; the replica misses the lock and is promoted. A second
/// client asks for the lock all the time.
fn schedule(connections_last: Duration) -> Plan {
    let client = ClientPlan {
        rate: 1_000_000,
        start: Duration::ZERO,
        host: 0,
    };
    let at = |ms, what| Fault {
        at: Duration::from_millis(ms),
        what,
    };
    let attach = FaultAction::Attach {
        node: 0,
        lag: Duration::from_secs(1),
        ahead_us: 0,
    };
    let promote = FaultAction::Promote {
        node: 0,
        moved: Some(Moved { connections_last }),
    };
    Plan {
        seed: 1,
        group: Group {
            window: Duration::from_millis(500),
            quarantine: Duration::from_secs(8),
            failover: Failover::Auto,
            stale_master: Duration::from_secs(1),
            reply_within: Duration::from_millis(200),
            ..Group::new(1)
        },
        drift: (0.01, Duration::from_millis(2)),
        delay: (100_000, 200_000),
        nodes: vec![NodePlan {
            rate: 1_000_000,
            ahead_us: 0,
            durable: false,
        }],
        clients: vec![client; 2],
        steps: vec![step(0, 1_200, 20), step(1, 2_500, 1)],
        faults: vec![at(0, attach), at(1_500, promote)],
        healed: Duration::from_secs(4),
    }
}

fn granted(run: &Run) -> Vec<(u64, u64)> {
    let events = run.history.events.iter();
    let granted = events.filter_map(|event| match event.what {
        What::Granted { op, .. } => Some((op, event.at_us)),
        _ => None,
    });
    granted.collect()
}

/// The replica lags by a second, so it does not have the lock when it is promoted.
#[test]
fn a_holder_keeps_its_lock_through_a_promotion() {
    for connections_last in [Duration::ZERO, Duration::from_secs(1)] {
        let plan = schedule(connections_last);
        let run = run(&plan, &plan.all(), true);
        assert_eq!(invariants::check(&run.history), Ok(()), "{}", run.trace);
        let grants = granted(&run);
        let ops: Vec<u64> = grants.iter().map(|(op, _)| *op).collect();
        assert_eq!(ops, [1, 2], "{}", run.trace);
        // The first client held it for 20 s, which is five leases and more than the quarantine.
        let (first, second) = (grants[0].1, grants[1].1);
        assert!(second >= first + 20_000_000, "{grants:?}\n{}", run.trace);
    }
}
