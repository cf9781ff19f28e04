//! The short form of the simulator: ten thousand schedules of the product in a world where everything
//! goes wrong that may, and proof that they are worth something: that a seed decides all, that what is
//! wrong is caught, made short and shown, and that nothing that should happen never does.

use std::collections::BTreeMap;

use ringfence_verify::history::{History, Mode, What};
use ringfence_verify::invariants;
use ringfence_verify::simulator::{Campaign, Clocks, Report, plan, run};

fn campaign(first: u64, schedules: u64, clocks: Clocks) -> Report {
    let campaign = Campaign {
        first,
        schedules,
        clocks,
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
    let told = |seed| {
        let plan = plan(seed, Clocks::Usual);
        let run = run(&plan, &plan.all(), true);
        run.trace + &run.history.to_json_lines()
    };
    for seed in 1..=25 {
        let elsewhere = std::thread::spawn(move || told(seed));
        let here = told(seed);
        assert!(here.lines().count() > 20, "seed {seed} is a world");
        assert_eq!(here, elsewhere.join().unwrap(), "seed {seed}");
        assert_ne!(here, told(seed + 1), "another seed is another world");
    }
}

#[test]
fn the_clocks_of_the_debate_are_safe_with_the_drift_set_for_them() {
    let report = campaign(1, 500, Clocks::Debate);
    assert!(report.failure.is_none(), "{report}");
}

/// With the default drift they are not; and whoever is shown that can run it again.
#[test]
fn the_clocks_of_the_debate_are_caught_with_the_default_drift() {
    let report = campaign(1, 5_000, Clocks::DebateUnprepared);
    let failure = report
        .failure
        .expect("five seconds that last 4.5 are too short");
    let timed = ["exclusion", "readers", "permits"];
    assert!(timed.contains(&failure.violation.invariant), "{failure}");
    let text = failure.to_string();
    let command = format!(
        "ringfence-verify -- simulate --seed {} --clocks debate-unprepared --steps",
        failure.plan.seed
    );
    assert!(text.contains(&command), "{text}");
    let (least, all) = (failure.parts.steps.len(), failure.plan.steps.len());
    assert!(least <= 6 && least < all, "made short: {text}");
    let again = run(&failure.plan, &failure.parts, false);
    assert_eq!(invariants::check(&again.history), Err(failure.shrunk));
}

/// What never happens proves nothing: of everything that the invariants are about, there is enough.
#[test]
fn everything_that_should_happen_does() {
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
        "a wait in line",
        "a renewal",
        "a downgrade",
        "a refusal",
        "a cancelled call",
        "a client gone while it asked",
        "an update",
        "a release",
        "two readers at once",
        "two permits at once",
        "several names",
        "a lock that is kept after its hold",
        "an owner that holds twice",
        "a leader that somebody is told of",
        "an arrival",
        "a latch that is found open",
        "a latch that is found shut",
        "a calm run",
        "a run whose clocks are wrong",
        "a loss",
    ] {
        assert!(
            seen.get(name).is_some_and(|times| *times >= 3),
            "{name}: {seen:?}"
        );
    }
}

/// Which of the things worth having happened in `history`.
fn happened(history: &History) -> Vec<&'static str> {
    let mut happened = Vec::new();
    for event in &history.events {
        happened.push(match &event.what {
            What::Queued { .. } => "a wait in line",
            What::Deadline { .. } => "a renewal",
            What::Downgraded { .. } => "a downgrade",
            What::Refused { why, .. } if why == "cancelled" => "a cancelled call",
            What::Refused { .. } => "a refusal",
            What::Unknown { .. } => "a client gone while it asked",
            What::Updated { .. } => "an update",
            What::Removed { .. } => "a release",
            What::Invoked { names, .. } if names.len() > 1 => "several names",
            What::Kept { .. } => "a lock that is kept after its hold",
            What::Told { .. } => "a leader that somebody is told of",
            What::Turned { party: Some(_), .. } => "an arrival",
            What::Found { open: true, .. } => "a latch that is found open",
            What::Found { open: false, .. } => "a latch that is found shut",
            What::Fault { timing: true, .. } => "a run whose clocks are wrong",
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
        // Whoever is told of a loss, or is late, ends at the deadline and not before.
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
