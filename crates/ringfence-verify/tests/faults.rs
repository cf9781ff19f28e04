//! Short runs on real servers: of the faults, and of failovers of real Sentinels.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ringfence::Locks;
use ringfence_testkit::{DiskSync, Flavor, Persistence, Server};
use ringfence_verify::faults::failovers::{self, FailoverKind, FailoverSettings};
use ringfence_verify::faults::{self, FaultKind, Outcome, Settings};
use ringfence_verify::history::{History, Mode, What};

#[test]
fn half_a_minute_of_every_fault_breaks_nothing() {
    let settings = Settings {
        seed: 5,
        span: Duration::from_secs(27),
        nodes: 5,
        flavors: Flavor::ALL.to_vec(),
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults"),
        program: env!("CARGO_BIN_EXE_ringfence-verify").into(),
        soak: false,
    };
    let outcome = faults::run(&settings, |_, _| {}).unwrap();
    println!("{outcome}");
    assert!(outcome.violations.is_empty(), "{outcome}");
    check_that_enough_happened(&outcome);

    let read = |name: &str| fs::read_to_string(settings.out.join(name)).unwrap();
    assert!(read("picture.html").contains("<svg"));
    let history = History::from_json_lines(&read("history.jsonl")).unwrap();
    falsified_histories_are_rejected(&history);
}

/// A server whose sync fails ends before it answers. So it forgets nothing that it has granted,
/// although it votes again without a quarantine. If it forgets more, another client gets the lock.
#[test]
fn a_failing_sync_loses_no_lock_that_was_granted() {
    for flavor in Flavor::ALL {
        assert!(!is_lost_after_a_failing_sync(flavor, false), "{flavor:?}");
        assert!(is_lost_after_a_failing_sync(flavor, true), "{flavor:?}");
    }
}

/// Whether another client gets a held lock after its only node restarted because a sync failed.
/// `forgets`: the node also loses what was synced since the lock was taken.
fn is_lost_after_a_failing_sync(flavor: Flavor, forgets: bool) -> bool {
    let sync = DiskSync::new();
    let server = Server::builder(flavor).persistence(Persistence::AofAlways);
    let server = server.disk_sync(&sync).start();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(&server.url()).await.unwrap();
        let joined = sync.synced();
        let ttl = Duration::from_secs(20);
        let guard = locks.mutex("a").ttl(ttl).renew(false).lock().await.unwrap();
        assert_eq!(sync.synced(), server.written(), "synced before it answers");

        sync.fail(true);
        let refused = locks.mutex("b").ttl(ttl).try_lock().await;
        assert!(refused.is_err(), "granted although it was not synced");
        server.kill();
        sync.fail(false);
        server.lose_writes_after(if forgets { joined } else { sync.synced() });
        server.restart();

        let other = Locks::connect(&server.url()).await.unwrap();
        let unsynced = other.mutex("b").ttl(ttl).try_lock().await;
        unsynced
            .expect("nobody was granted it")
            .release()
            .await
            .unwrap();
        let taken = other.mutex("a").ttl(ttl).try_lock().await;
        assert!(
            guard.remaining() > Duration::ZERO,
            "the machine was too slow"
        );
        taken.is_ok()
    })
}

#[test]
fn three_failovers_break_nothing() {
    let wanted = [FailoverKind::Partition, FailoverKind::Twice];
    let seed = (1..).find(|seed| failovers::plan(*seed, 3) == wanted);
    let settings = FailoverSettings {
        seed: seed.expect("some seed has this order"),
        failovers: 3,
        clients: 8,
        flavor: Flavor::Valkey,
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("failovers"),
        program: env!("CARGO_BIN_EXE_ringfence-verify").into(),
    };
    let outcome = failovers::run(&settings, |_, _| {}).unwrap();
    println!("{outcome}");
    assert!(outcome.violations.is_empty(), "{outcome}");
    assert_eq!(outcome.failovers.promotions, 3, "{outcome}");
    assert!(outcome.figures.granted() >= 5, "{outcome}");
    assert!(outcome.figures.writes >= 1, "{outcome}");
    assert!(outcome.plain.grants >= 1, "{outcome}");
}

/// Checks that the run did enough to prove something. A busy machine gets far less done than an
/// idle one.
fn check_that_enough_happened(outcome: &Outcome) {
    let figures = &outcome.figures;
    for kind in FaultKind::ALL {
        let name = kind.name();
        assert!(figures.faults.contains_key(name), "no {name}: {outcome}");
    }
    // The numbers of late writers, breaks and grants through the blocking API are printed above, not
    // checked: a very slow machine may have none.
    assert!(figures.granted() >= 5, "{outcome}");
    assert!(figures.writes >= 1, "{outcome}");
    assert!(figures.lost >= 1, "{outcome}");
    assert!(figures.reports >= 1, "{outcome}");
    // The nodes with even numbers are Redis, which is reached by TLS only.
    assert!(figures.votes.contains_key(&0), "{outcome}");
}

/// The invariants reject the same history after it was falsified.
fn falsified_histories_are_rejected(history: &History) {
    let holds = history.holds();
    let alone: Vec<_> = holds
        .iter()
        .filter(|hold| hold.mode == Mode::Exclusive)
        .collect();
    let pairs = (1..alone.len()).flat_map(|at| alone[..at].iter().map(move |one| (one, at)));
    let (first, second) = pairs
        .map(|(one, at)| (*one, alone[at]))
        .find(|(one, other)| one.names == other.names && one.op != other.op)
        .expect("no name had two holders one after the other");
    let found = |history: &History| -> Vec<&'static str> {
        let (_, violations) = faults::judge(history);
        violations.iter().map(|found| found.invariant).collect()
    };

    let mut repeated = history.clone();
    let mut overlapping = history.clone();
    for event in &mut repeated.events {
        if let What::Granted { op, fence, .. } = &mut event.what
            && *op == second.op
        {
            *fence = first.fence;
        }
    }
    overlapping.events.retain(|event| {
        !matches!(event.what,
            What::Ended { op } | What::Deadline { op, .. } | What::Downgraded { op } if op == first.op)
    });
    for event in &mut overlapping.events {
        if let What::Granted { op, until_us, .. } = &mut event.what
            && *op == first.op
        {
            *until_us = second.granted_us + 1;
        }
    }
    for (falsified, invariant) in [(repeated, "fences"), (overlapping, "exclusion")] {
        let found = found(&falsified);
        assert!(found.contains(&invariant), "{found:?}");
        assert!(found.contains(&"linearizability"), "{found:?}");
    }
}
