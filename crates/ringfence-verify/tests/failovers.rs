//! Two hand-written schedules in which two clients once held the same lock: a failover and back
//! without a restart, and one server that answers under two addresses.

use std::time::Duration;

use ringfence_core::group::Group;
use ringfence_verify::history::What;
use ringfence_verify::invariants;
use ringfence_verify::simulator::{
    ClientPlan, End, Fault, FaultAction, Moved, NodePlan, Plan, Run, Step, Want, Ways, run,
};

const FIRST: usize = 0;
const SECOND: usize = 1;

/// Three nodes. The first client takes the lock after 100 ms and holds it for two seconds. The
/// second client makes one attempt, 1.3 s after the start of the run.
fn schedule(second_starts: Duration, faults: Vec<Fault>) -> Plan {
    let node = NodePlan {
        rate: 1_000_000,
        ahead_us: 0,
        durable: false,
    };
    let client = |start| ClientPlan {
        rate: 1_000_000,
        start,
        host: 0,
    };
    let step = |client: usize, after| Step {
        op: client as u64 + 1,
        client,
        task: 0,
        after,
        want: Want::Mutex("a".to_owned()),
        ttl: Duration::from_secs(4),
        wait: Some(Duration::ZERO),
        renew: false,
        hold: Duration::from_millis(3_500),
        updates: 0,
        ignores_loss: false,
        cancel: None,
        extend: None,
        owned: false,
        lock_delay: Duration::ZERO,
        at_least: Duration::ZERO,
        end: End::Release,
    };
    let asks = Duration::from_millis(1_300).saturating_sub(second_starts);
    Plan {
        seed: 1,
        group: Group {
            window: Duration::from_secs(2),
            quarantine: Duration::from_secs(9),
            ..Group::new(3)
        },
        drift: (0.01, Duration::from_millis(2)),
        delay: (100_000, 200_000),
        nodes: vec![node; 3],
        clients: vec![client(Duration::ZERO), client(second_starts)],
        steps: vec![step(FIRST, Duration::from_millis(100)), step(SECOND, asks)],
        faults,
        sentinels: None,
        two_lines: false,
        healed: Duration::from_secs(7),
    }
}

fn at(ms: u64, what: FaultAction) -> Fault {
    let at = Duration::from_millis(ms);
    Fault { at, what }
}

/// Cuts a client off from one node, after it has heard the values of the group from all of them.
fn cut(client: usize, node: usize) -> Fault {
    let trouble = FaultAction::Partition {
        clients: vec![client],
        nodes: vec![node],
        ways: Ways::Both,
        lasts: Duration::from_secs(6),
    };
    at(20, trouble)
}

/// The calls that were granted. Panics if an invariant is broken.
fn granted(plan: &Plan) -> (Vec<u64>, Run) {
    let run = run(plan, &plan.all(), true);
    let judged = invariants::check(&run.history);
    assert_eq!(judged, Ok(()), "{}", run.trace);
    let events = run.history.events.iter();
    let granted = events.filter_map(|event| match event.what {
        What::Granted { op, .. } => Some(op),
        _ => None,
    });
    (granted.collect(), run)
}

/// The first client locks on nodes 0 and 1. Node 0 is demoted and promoted again without a restart:
/// it has the old birth record, but not the lock. The second client reaches nodes 0 and 2.
#[test]
fn a_failover_and_back_makes_no_second_holder() {
    let lag = Duration::ZERO;
    let moved = Moved {
        connections_last: Duration::ZERO,
    };
    // The second client connects more than a second before the failover, or less than a second
    // before, so that its last check of the server is recent, or after the failover.
    for second_starts in [0, 600, 1_200].map(Duration::from_millis) {
        let (node, ahead_us) = (0, 0);
        let faults = vec![
            cut(FIRST, 2),
            cut(SECOND, 1),
            at(
                0,
                FaultAction::Attach {
                    node,
                    lag,
                    ahead_us,
                },
            ),
            at(50, FaultAction::Promote { node, moved: None }),
            at(1_000, FaultAction::Demote { node, lag }),
            at(1_100, FaultAction::FailBack { node, moved }),
        ];
        let (granted, run) = granted(&schedule(second_starts, faults));
        assert_eq!(granted, [1], "{}", run.trace);
        let changes = run.changes;
        assert_eq!((changes.attached, changes.promoted), (1, 1), "{changes}");
        assert_eq!((changes.demoted, changes.failed_back), (1, 1), "{changes}");
    }
}

/// The first client locks while the address of node 1 leads to the server of node 0, and does not
/// reach node 2: that one server would be a majority. The second client reaches nodes 1 and 2.
#[test]
fn one_server_under_two_addresses_has_one_vote() {
    for connections_stay in [true, false] {
        let faults = vec![
            cut(FIRST, 2),
            cut(SECOND, 0),
            at(
                0,
                FaultAction::Repoint {
                    node: 1,
                    to: 0,
                    lasts: Duration::from_millis(1_000),
                    connections_stay,
                },
            ),
        ];
        let plan = schedule(Duration::from_millis(1_200), faults);
        let (granted, run) = granted(&plan);
        assert_eq!(granted, [2], "{}", run.trace);
        assert_eq!(run.changes.repointed, 1);
    }
}
