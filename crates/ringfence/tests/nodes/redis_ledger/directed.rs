//! Short histories for rules that random histories reach too seldom. Each operation is compared with the
//! ledger.

use super::*;

/// A machine that stops for longer than the window of ballots makes a history usual, so each is played
/// on several names.
const TIMES: usize = 3;

fn ask(name: usize, holder: u8, what: What, ballot: Pick) -> Ask {
    Ask {
        holder,
        names: vec![name],
        what,
        ballot,
        ttl_ms: 2_000,
        latest: None,
        delay_ms: 0,
    }
}

/// Now, without a ticket.
fn acquire(name: usize, holder: u8) -> Ask {
    ask(name, holder, What::Acquire(None), Pick::Clock(0))
}

/// The final release, if everything is known of the hold.
fn done() -> What {
    What::Release {
        kind: ReleaseKind::Final,
        fate_unknown: false,
        ticket: None,
        stays: false,
        keep_ms: None,
    }
}

fn with(what: What, ticket: Option<Shown>, fate_unknown: bool, keep_ms: Option<u64>) -> What {
    match what {
        What::Release { kind, stays, .. } => What::Release {
            kind,
            stays,
            fate_unknown,
            ticket,
            keep_ms,
        },
        other => other,
    }
}

fn play_steps(bench: &mut Bench, steps: impl IntoIterator<Item = Step>) {
    for step in steps {
        bench
            .take(&step)
            .unwrap_or_else(|error| panic!("{step:?}: {error}"));
    }
}

fn bench() -> Bench {
    let mut bench = Bench::new(Flavor::Redis);
    bench.began_us = bench.clock_us();
    bench
}

/// The only node of its group, whose quarantine ends in so many milliseconds.
fn endpoint(left_ms: i64) -> Bench {
    let mut bench = Bench::of_one_endpoint(Flavor::Redis);
    bench.began_us = bench.clock_us();
    bench.birth(left_ms);
    bench
}

fn saw(bench: &Bench, what: &str) {
    assert!(bench.tally.contains_key(what), "{what}: {:?}", bench.tally);
}

/// A refresh that arrives after the grant enters the holder's ticket again; the release removes it,
/// whether others wait or not.
#[test]
fn a_release_removes_the_ticket_that_a_late_refresh_entered() {
    let mut bench = bench();
    let own = (0, false);
    for (refreshed, seen) in [
        (vec![own], "fast path: released to no waiter"),
        (vec![own, (4, false)], "fast path: released to one"),
    ] {
        let release = with(done(), Some(own), false, None);
        let history = [
            acquire(0, 0),
            ask(0, 0, What::Refresh(refreshed), Pick::Clock(0)),
            ask(0, 0, release, Pick::Seat(0, 0)),
        ];
        play_steps(&mut bench, history.map(Step::Ask));
        saw(&bench, seen);
        let tickets = bench.stored(NAMES[0]).queue.entries;
        assert!(tickets.iter().all(|ticket| ticket.id != TICKETS[0].1));
    }
}

#[test]
fn a_release_wakes_the_first_waiter_and_tells_the_second() {
    let mut bench = bench();
    let waits = |ticket| What::Acquire(Some((ticket, true)));
    let history = [
        acquire(0, 0),
        ask(0, 1, waits(4), Pick::Clock(0)),
        ask(0, 2, waits(5), Pick::Clock(0)),
        ask(0, 0, done(), Pick::Seat(0, 0)),
    ];
    play_steps(&mut bench, history.map(Step::Ask));
    saw(&bench, "fast path: released to two");
}

/// The undo of another client raised the fence above the holder's ballot.
#[test]
fn a_release_does_not_lower_the_fence() {
    let mut bench = bench();
    for name in 0..TIMES {
        let undo = What::Release {
            kind: ReleaseKind::Undo,
            fate_unknown: true,
            ticket: None,
            stays: false,
            keep_ms: None,
        };
        let history = [
            acquire(name, 0),
            ask(name, 1, undo, Pick::Ceiling(-5_000)),
            ask(name, 0, with(done(), None, true, None), Pick::Seat(name, 0)),
        ];
        play_steps(&mut bench, history.map(Step::Ask));
    }
}

/// Another client closed a ballot above the holder's, when it asked to keep the name.
#[test]
fn a_release_does_not_lower_the_closed_ballot() {
    let mut bench = bench();
    for name in 0..TIMES {
        let keep = with(done(), None, false, Some(500));
        let history = [
            acquire(name, 0),
            ask(name, 1, keep, Pick::Ceiling(-5_000)),
            ask(name, 0, with(done(), None, true, None), Pick::Seat(name, 0)),
        ];
        play_steps(&mut bench, history.map(Step::Ask));
    }
}

#[test]
fn a_name_is_kept_after_the_lease_but_not_by_a_repeated_request() {
    let mut bench = bench();
    for name in 0..TIMES {
        let short = Ask {
            ttl_ms: 20,
            ..acquire(name, 0)
        };
        let keep = || with(done(), None, true, Some(40));
        let history = [
            Step::Ask(short),
            Step::Wait { ms: 30 },
            Step::Ask(ask(name, 0, keep(), Pick::Seat(name, 0))),
            Step::Wait { ms: 60 },
            // At or below the closed ballot.
            Step::Ask(ask(name, 0, keep(), Pick::Floor(-1_000_000))),
        ];
        play_steps(&mut bench, history);
    }
}

/// The lease is longer than the retention of a record.
#[test]
fn in_a_batch_a_record_outlives_a_key_with_a_long_lease() {
    let mut bench = bench();
    let long = |name| Ask {
        ttl_ms: 90_000,
        ..acquire(name, 0)
    };
    let asks = (0..NAMES.len()).map(long).collect();
    play_steps(&mut bench, [Step::Together(asks)]);
    saw(&bench, "a bundle of three or more");
}

#[test]
fn in_the_quarantine_nothing_is_granted_and_a_waiter_gets_its_place() {
    let mut bench = endpoint(20_000);
    let waits = What::Acquire(Some((4, true)));
    let history = [acquire(0, 0), ask(1, 1, waits, Pick::Clock(0))];
    play_steps(&mut bench, history.map(Step::Ask));
    saw(&bench, "quarantined");
    assert_eq!(bench.stored(NAMES[1]).queue.entries.len(), 1);
    let asks = (0..NAMES.len()).map(|name| acquire(name, 0)).collect();
    play_steps(&mut bench, [Step::Together(asks)]);
    saw(&bench, "refused in a batch");
}

#[test]
fn an_acquire_that_arrives_late_is_not_executed() {
    let mut bench = endpoint(-5_000);
    let late = |name| Ask {
        latest: Some(-1),
        ..acquire(name, 0)
    };
    play_steps(&mut bench, [Step::Ask(late(0))]);
    saw(&bench, "late");
    let asks = (0..NAMES.len()).map(late).collect();
    play_steps(&mut bench, [Step::Together(asks)]);
    saw(&bench, "refused in a batch");
}

#[test]
fn in_the_quarantine_a_restore_replaces_a_lower_ballot_only() {
    let mut bench = endpoint(20_000);
    let restore = |name, holder, ballot| Step::Ask(ask(name, holder, What::Restore, ballot));
    let foreign = Step::Foreign {
        name: 1,
        value: None,
        ttl_ms: Some(2_000),
    };
    let history = [
        restore(0, 0, Pick::Clock(0)),
        restore(0, 1, Pick::Seat(0, -1)),
        restore(0, 1, Pick::Seat(0, 1)),
        foreign,
        restore(1, 0, Pick::Clock(0)),
    ];
    play_steps(&mut bench, history);
    saw(&bench, "a holder replaced");
}
