//! Readers and writers in one wait queue, and what must hold with readers whatever happens.

use proptest::prelude::*;

use super::*;

#[test]
fn readers_do_not_pass_a_writer_in_line() {
    let mut desk = Desk::new();
    desk.read(ALICE, desk.ballot(1));
    let (writer, reader) = (desk.place("c.1"), desk.place("c.2"));
    assert!(matches!(desk.queue(WRITE, BOB, &writer), Answer::Held(_)));
    assert!(is_behind(&desk.queue(READ, CAROL, &reader), 1));
    assert!(
        is_behind(&desk.read(DAVE, desk.ballot(2)), 1),
        "without a place neither"
    );
    // However long the first reader stays: the writer is not dead, it cannot come.
    for _ in 0..4 {
        desk.pass_ms(2_000);
        desk.ask_as(READ, ALICE, extend(desk.ballot(-8_000_000), TTL_MS));
        desk.ask_as(
            WRITE,
            0,
            Op::Refresh(Refresh {
                places: Arc::from([again(&writer)]),
            }),
        );
        assert!(is_behind(&desk.queue(READ, CAROL, &again(&reader)), 1));
    }
}

#[test]
fn the_writer_is_next_after_a_hundred_readers() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    let reader = |n: u8| Token::from_entropy([n; TOKEN_ENTROPY_BYTES]);
    for n in 0..100 {
        assert_eq!(
            desk.ask_with(READ, reader(n), acquire(ballot)).0,
            Answer::Granted
        );
    }
    let (writer, late) = (desk.place("c.1"), desk.place("c.2"));
    desk.queue(WRITE, 200, &writer);
    desk.queue(READ, 201, &late);
    for n in 0..100 {
        assert_eq!(desk.wakes, [], "{n}");
        desk.ask_with(READ, reader(n), release(ballot));
    }
    assert_eq!(desk.wakes, [wake("c.1", 0), wake("c.2", GRACE_MS)]);
    assert!(is_behind(&desk.queue(READ, 201, &again(&late)), 1));
    assert_eq!(desk.queue(WRITE, 200, &again(&writer)), Answer::Granted);
}

#[test]
fn every_leading_reader_is_woken_and_the_writer_behind_them_later() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.write_lock(ALICE, ballot);
    let places: Vec<Place> = (1..=4).map(|n| desk.place(&format!("c.{n}"))).collect();
    desk.queue(READ, 1, &places[0]);
    desk.queue(READ, 2, &places[1]);
    desk.queue(WRITE, 3, &places[2]);
    desk.queue(READ, 4, &places[3]);
    desk.ask_as(WRITE, ALICE, release(ballot));
    let expected = [wake("c.1", 0), wake("c.2", 0), wake("c.3", 2 * GRACE_MS)];
    assert_eq!(desk.wakes, expected);
    // In any order among themselves, and nobody else's place is lost by it.
    assert_eq!(desk.queue(READ, 2, &again(&places[1])), Answer::Granted);
    assert_eq!(desk.line("x"), ["c.1", "c.3", "c.4"]);
    assert_eq!(desk.queue(READ, 1, &again(&places[0])), Answer::Granted);
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let mut desk = Desk::new();
    desk.read(ALICE, desk.ballot(1));
    let (writer, reader) = (desk.place("c.1"), desk.place("c.2"));
    desk.queue(WRITE, BOB, &writer);
    desk.queue(READ, CAROL, &reader);
    let cancel = leave(
        desk.ballot(2),
        ReleaseKind::Undo,
        Some(&again(&writer)),
        false,
    );
    desk.ask_as(WRITE, BOB, cancel);
    assert_eq!(desk.wakes, [wake("c.2", 0)]);
    assert_eq!(desk.queue(READ, CAROL, &again(&reader)), Answer::Granted);
}

#[test]
fn a_refresh_tells_readers_only_of_what_is_in_their_way() {
    let mut desk = Desk::new();
    desk.read(ALICE, desk.ballot(1));
    let (one, two) = (desk.place("c.1"), desk.place("c.2"));
    let refresh = |desk: &mut Desk, wishes, place: &Place| {
        let places = Arc::from([again(place)]);
        desk.ask_as(wishes, 0, Op::Refresh(Refresh { places })).0
    };
    let turn = |ahead, free| Answer::Turns(vec![Turn { ahead, free }]);
    assert_eq!(refresh(&mut desk, READ, &one), turn(0, true));
    assert_eq!(refresh(&mut desk, READ, &two), turn(0, true));
    assert_eq!(refresh(&mut desk, WRITE, &two), turn(1, false));
}

#[test]
fn claims_of_several_names_may_mix_modes() {
    let mut desk = Desk::new();
    let both: &[Wish<'_>] = &[("x", Mode::Shared), ("y", Mode::Exclusive)];
    let ballot = desk.ballot(1);
    desk.read(ALICE, ballot);
    assert_eq!(desk.ask_as(both, BOB, acquire(ballot)).0, Answer::Granted);
    assert!(
        matches!(desk.ask_as(both, CAROL, acquire(desk.ballot(2))).0, Answer::Held(h) if h.claim == 1)
    );
    assert_eq!(desk.read(CAROL, ballot), Answer::Granted);
    assert_eq!(
        desk.ask_as(both, BOB, extend(ballot, 100)).0,
        Answer::Extended
    );
    assert_eq!(desk.ask_as(both, BOB, release(ballot)).0, Answer::Released);
    assert_eq!(desk.holder("y"), None);
    assert_eq!(desk.entry("x").readers.len(), 2);
}

#[derive(Debug, Clone)]
struct Step {
    pass_ms: u64,
    who: u8,
    shared: bool,
    what: u8,
    offset_us: i64,
    ttl_ms: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pass = prop_oneof![6 => 0u64..3, 1 => 0u64..30, 1 => 60_000u64..70_000];
    let offset = prop_oneof![4 => -20i64..20, 1 => -5_000_002i64..5_000_002];
    let step = (pass, 1u8..5, any::<bool>(), 0u8..10, offset, 0u64..20).prop_map(
        |(pass_ms, who, shared, what, offset_us, ttl_ms)| Step {
            pass_ms,
            who,
            shared,
            what,
            offset_us,
            ttl_ms,
        },
    );
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever happens: no writer beside a reader or another writer, no lease shortened, and of two
    /// grants of which one is exclusive the later has the higher fence.
    #[test]
    fn the_invariants_hold_with_readers(steps in steps()) {
        let mut desk = Desk::new();
        // Who was told to hold what, until when.
        let mut held: Vec<(u8, bool, u64)> = Vec::new();
        let (mut written, mut granted) = (Ballot::default(), Ballot::default());
        for step in &steps {
            desk.pass_ms(step.pass_ms);
            let now_ms = desk.now().lease_ms;
            held.retain(|(_, _, until)| *until >= now_ms);
            let ballot = desk.ballot(step.offset_us);
            // Readers and writers have tokens of their own; a writer that downgraded keeps its own.
            let downgraded = held.iter().any(|h| h.0 == step.who + 100 && h.1);
            let who = if step.shared && !downgraded { step.who } else { step.who + 100 };
            let shared = step.shared;
            let place = Place { since_us: desk.clock_us / 1_000_000, id: Arc::from(format!("c.{who}")), first: false };
            let op = match step.what {
                0..=2 => acquire_for(ballot, step.ttl_ms),
                3 => Op::Acquire(Acquire { ballot, ttl_ms: step.ttl_ms, label: Arc::from("job"), place: Some(place) }),
                4 => extend(ballot, step.ttl_ms),
                5 => release(ballot),
                6 => undo(ballot),
                7 => undo_blindly(ballot),
                8 => Op::Downgrade(Downgrade { ballot, ttl_ms: step.ttl_ms }),
                _ => Op::Restore(Restore { ballot, ttl_ms: step.ttl_ms, label: Arc::from("job") }),
            };
            let wishes = if shared { READ } else { WRITE };
            let answer = desk.ask_as(wishes, who, op).0;
            let until = now_ms + step.ttl_ms;
            let mine = held.iter().position(|h| h.0 == who);
            match answer {
                Answer::Granted | Answer::Extended | Answer::Restored | Answer::Downgraded => {
                    let shared = shared || answer == Answer::Downgraded;
                    let until = mine.map_or(until, |at| held.remove(at).2.max(until));
                    let clash = held.iter().any(|h| !(h.1 && shared));
                    prop_assert!(!clash, "{who} beside {held:?}");
                    let again = mine.is_some();
                    if answer == Answer::Granted && !again {
                        let below = if shared { written } else { granted };
                        prop_assert!(ballot > below, "{ballot:?} after {below:?}");
                        granted = granted.max(ballot);
                        if !shared { written = written.max(ballot); }
                    }
                    held.push((who, shared, until));
                }
                Answer::Released | Answer::Gone | Answer::Held(_) if (5..=7).contains(&step.what) => {
                    held.retain(|h| h.0 != who);
                }
                _ => {}
            }
            let entry = desk.entry("x");
            for (who, shared, until) in &held {
                let stands = match shared {
                    true => entry.ballot_of(Mode::Shared, token(*who).expose()).is_some(),
                    false => entry.is_held_by(token(*who).expose()),
                };
                prop_assert!(stands, "{who} was told to hold until {until}: {entry:?}");
            }
        }
    }
}

/// The writer's own ticket, if it were left in the queue, would stand before the reader's.
#[test]
fn a_writer_that_waited_and_downgrades_lets_the_next_reader_in() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.write_lock(ALICE, ballot);
    let (writer, reader) = (desk.place("c.1"), desk.place("c.2"));
    desk.queue(WRITE, BOB, &writer);
    desk.queue(READ, CAROL, &reader);
    desk.ask_as(WRITE, ALICE, release(ballot));
    assert_eq!(desk.queue(WRITE, BOB, &again(&writer)), Answer::Granted);
    let ballot = desk.seated(&["x"]);
    let ttl_ms = TTL_MS;
    let (answer, _) = desk.ask_as(WRITE, BOB, Op::Downgrade(Downgrade { ballot, ttl_ms }));
    assert_eq!(answer, Answer::Downgraded);
    assert_eq!(desk.wakes, [wake("c.2", 0)]);
    assert_eq!(desk.queue(READ, CAROL, &again(&reader)), Answer::Granted);
}
