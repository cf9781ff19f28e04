//! One endpoint with a failover behind it, with and without Sentinels: schedules with promotions,
//! failbacks and a former master that goes on serving. No invariant breaks, and holders keep their
//! locks through a promotion.

use std::time::Duration;

use ringfence_core::group::{Failover, Group};
use ringfence_verify::history::What;
use ringfence_verify::invariants;
use ringfence_verify::simulator::{
    Campaign, ClientPlan, Clocks, End, Fault, FaultAction, Layout, Moved, NodePlan, Plan, Report,
    Run, Step, Want, run,
};

fn campaign(layout: Layout, schedules: u64) -> Report {
    let campaign = Campaign {
        first: 1,
        schedules,
        clocks: Clocks::Usual,
        layout,
    };
    let report = campaign.run(|| true);
    println!("{layout:?}: {report}");
    assert!(report.failure.is_none(), "{report}");
    report
}

#[test]
fn failovers_behind_one_endpoint_break_nothing() {
    let report = campaign(Layout::OneEndpoint, 2_000);
    assert!(report.changes.promoted >= 1_000, "{report}");
}

#[test]
fn failovers_behind_sentinels_break_nothing() {
    let report = campaign(Layout::Sentinels, 1_000);
    let changes = report.changes;
    assert!(changes.promoted >= 1_000, "{report}");
    // Servers that were still masters, so that their replication id did not change.
    assert!(changes.promoted_masters > 0, "{report}");
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
        two_lines: false,
        sentinels: None,
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
