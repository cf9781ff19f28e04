//! A short run of the simulator: ten thousand schedules of the product under every fault. And proof
//! that such a run means something: a seed decides everything, a violation is found, shrunk and
//! printed, and everything that the invariants are about happens often enough.

use std::collections::BTreeMap;

use ringfence_verify::history::{History, Mode, What};
use ringfence_verify::invariants;
use ringfence_verify::simulator::{Campaign, Clocks, Layout, Report, plan, run};

fn campaign(first: u64, schedules: u64, clocks: Clocks) -> Report {
    let campaign = Campaign {
        first,
        schedules,
        clocks,
        layout: Layout::Nodes,
    };
    let report = campaign.run(|| true);
    println!("{clocks:?} clocks, {report}");
    report
}

#[test]
fn ten_thousand_schedules_break_nothing() {
    let report = campaign(1, 10_000, Clocks::Usual);
    assert!(report.failure.is_none(), "{report}");
    assert_eq!(report.schedules, 10_000);
    let changes = report.changes;
    for times in [changes.attached, changes.promoted, changes.demoted] {
        assert!(times >= 1_000, "{report}");
    }
    assert!(changes.failed_back >= 1_000, "{report}");
    assert!(changes.repointed >= 1_000, "{report}");
}

#[test]
fn the_same_seed_gives_the_same_run_byte_for_byte() {
    let record = |seed| {
        let plan = plan(seed, Clocks::Usual);
        let run = run(&plan, &plan.all(), true);
        run.trace + &run.history.to_json_lines()
    };
    for seed in 1..=25 {
        let elsewhere = std::thread::spawn(move || record(seed));
        let here = record(seed);
        assert!(here.lines().count() > 20, "seed {seed} does something");
        assert_eq!(here, elsewhere.join().unwrap(), "seed {seed}");
        assert_ne!(here, record(seed + 1), "another seed, another world");
    }
}

#[test]
fn the_clocks_of_the_debate_are_safe_with_the_drift_set_for_them() {
    let report = campaign(1, 500, Clocks::Debate);
    assert!(report.failure.is_none(), "{report}");
}

/// With the default drift they are not safe, and the report shows a command that repeats the run.
#[test]
fn the_clocks_of_the_debate_are_caught_with_the_default_drift() {
    let mut seed = 1;
    let failure = loop {
        let report = campaign(seed, 5_000, Clocks::DebateUnprepared);
        let failure = report
            .failure
            .expect("leases end early where five seconds last 4.5 s");
        // Nodes whose clocks drift apart by more than the window serve no client. Such a schedule
        // says nothing about leases.
        if failure.violation.invariant != "liveness" {
            break failure;
        }
        seed = failure.plan.seed + 1;
    };
    let timed = ["exclusion", "readers", "permits"];
    assert!(timed.contains(&failure.violation.invariant), "{failure}");
    let text = failure.to_string();
    let command = format!(
        "ringfence-verify -- simulate --seed {} --clocks debate-unprepared --steps",
        failure.plan.seed
    );
    assert!(text.contains(&command), "{text}");
    let (least, all) = (failure.parts.steps.len(), failure.plan.steps.len());
    assert!(least <= 6 && least < all, "shrunk: {text}");
    let again = run(&failure.plan, &failure.parts, false);
    assert_eq!(invariants::check(&again.history), Err(failure.shrunk));
}

/// An invariant about something that never happens proves nothing. So everything that the
/// invariants are about must happen often enough.
#[test]
fn everything_that_the_invariants_check_happens() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 1..=300 {
        let plan = plan(seed, Clocks::Usual);
        let run = run(&plan, &plan.all(), false);
        for name in happened(&run.history) {
            *seen.entry(name).or_default() += 1;
        }
    }
    println!("in 300 schedules: {seen:?}");
    for name in [
        "a wait in the queue",
        "a renewal",
        "a downgrade",
        "a refusal",
        "a cancelled call",
        "a client that ends during a call",
        "an update",
        "a release",
        "two readers at once",
        "two permits at once",
        "several names",
        "a lock that is kept from others after its hold",
        "an owner that holds twice",
        "a leader that is reported to an observer",
        "an arrival",
        "an open latch",
        "a shut latch",
        "a calm run",
        "a run with broken clocks",
        "a loss",
    ] {
        assert!(
            seen.get(name).is_some_and(|times| *times >= 3),
            "{name}: {seen:?}"
        );
    }
}

/// The notable things that happened in `history`.
fn happened(history: &History) -> Vec<&'static str> {
    let mut happened = Vec::new();
    for event in &history.events {
        happened.push(match &event.what {
            What::Queued { .. } => "a wait in the queue",
            What::Deadline { .. } => "a renewal",
            What::Downgraded { .. } => "a downgrade",
            What::Refused { why, .. } if why == "cancelled" => "a cancelled call",
            What::Refused { .. } => "a refusal",
            What::Unknown { .. } => "a client that ends during a call",
            What::Updated { .. } => "an update",
            What::Removed { .. } => "a release",
            What::Invoked { names, .. } if names.len() > 1 => "several names",
            What::Kept { .. } => "a lock that is kept from others after its hold",
            What::Told { .. } => "a leader that is reported to an observer",
            What::Turned { party: Some(_), .. } => "an arrival",
            What::Found { open: true, .. } => "an open latch",
            What::Found { open: false, .. } => "a shut latch",
            What::Fault { timing: true, .. } => "a run with broken clocks",
            _ => continue,
        });
    }
    if history.is_calm() {
        happened.push("a calm run");
    }
    let holds = history.holds();
    for (at, one) in holds.iter().enumerate() {
        for other in &holds[at + 1..] {
            let together = one.from_us.max(other.from_us) < one.to_us.min(other.to_us);
            if together && one.op != other.op && one.names == other.names {
                match (one.mode, other.mode) {
                    _ if one.is_owned_with(other) => happened.push("an owner that holds twice"),
                    (Mode::Shared, Mode::Shared) => happened.push("two readers at once"),
                    (Mode::Permit { .. }, Mode::Permit { .. }) => {
                        happened.push("two permits at once");
                    }
                    _ => {}
                }
            }
        }
        // A holder that loses its lock, or is late, ends at its deadline and not before.
        let ended = |what: &What| matches!(what, What::Ended { op } if *op == one.op);
        let end = history.events.iter().find(|event| ended(&event.what));
        if end.is_some_and(|event| event.at_us > one.to_us) {
            happened.push("a loss");
        }
    }
    happened.sort_unstable();
    happened.dedup();
    happened
}
