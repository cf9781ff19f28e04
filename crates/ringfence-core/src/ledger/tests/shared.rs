//! Readers beside each other, and never beside a writer.

use proptest::prelude::*;

use super::super::SHARED;
use super::*;

/// One name and how it is claimed.
type Wish<'a> = (&'a str, Mode);

const READ: &[Wish<'_>] = &[("x", Mode::Shared)];
const WRITE: &[Wish<'_>] = &[("x", Mode::Exclusive)];

impl Desk {
    fn ask_as(&mut self, wishes: &[Wish<'_>], who: u8, op: Op) -> (Answer, Stamp) {
        self.ask_with(wishes, token(who), op)
    }

    fn ask_with(&mut self, wishes: &[Wish<'_>], token: Token, op: Op) -> (Answer, Stamp) {
        let claims = wishes.iter().map(|(name, mode)| Claim {
            name: key(name),
            mode: *mode,
        });
        let request = Request {
            claims: claims.collect(),
            token,
            op,
        };
        let mut entries: Vec<Entry> = wishes.iter().map(|(name, _)| self.entry(name)).collect();
        let outcome = apply(&self.rules, self.now(), &mut entries, &request);
        for ((name, _), entry) in wishes.iter().zip(entries) {
            self.entries.insert(key(name), entry);
        }
        self.wakes = outcome.wakes;
        (outcome.answer, outcome.stamp)
    }

    fn read(&mut self, who: u8, ballot: Ballot) -> Answer {
        self.ask_as(READ, who, acquire(ballot)).0
    }

    fn write_lock(&mut self, who: u8, ballot: Ballot) -> Answer {
        self.ask_as(WRITE, who, acquire(ballot)).0
    }

    /// Tries with a place in line, under a ballot that is high enough.
    fn queue(&mut self, wishes: &[Wish<'_>], who: u8, place: &Place) -> Answer {
        let floor = self.ask_as(wishes, who, Op::Inspect).1.floor;
        let ballot = Ballot::new(self.clock_us.max(floor.get() + 1));
        self.ask_as(wishes, who, acquire_in_line(ballot, place)).0
    }

    fn record(&self) -> super::super::Record {
        self.entry("x").record.expect("a record")
    }
}

fn downgrade(ballot: Ballot) -> Op {
    Op::Downgrade(Downgrade {
        ballot,
        ttl_ms: TTL_MS,
    })
}

#[test]
fn readers_need_no_order_among_themselves() {
    let mut desk = Desk::new();
    assert_eq!(desk.read(ALICE, desk.ballot(10)), Answer::Granted);
    assert_eq!(desk.read(BOB, desk.ballot(5)), Answer::Granted);
    assert_eq!(desk.read(CAROL, desk.ballot(5)), Answer::Granted);
    assert_eq!(desk.entry("x").readers.len(), 3);
}

#[test]
fn a_reader_is_not_seated_anew_under_a_lower_ballot() {
    let mut desk = Desk::new();
    assert_eq!(desk.read(ALICE, desk.ballot(10)), Answer::Granted);
    assert_eq!(desk.read(ALICE, desk.ballot(5)), Answer::Stale);
    assert_eq!(desk.entry("x").readers[0].ballot, desk.ballot(10));
}

#[test]
fn a_share_ends_with_its_own_lease_while_others_go_on() {
    let mut desk = Desk::new();
    let first = desk.ballot(10);
    assert_eq!(desk.read(ALICE, first), Answer::Granted);
    desk.pass_ms(TTL_MS / 2);
    assert_eq!(desk.read(BOB, desk.ballot(10)), Answer::Granted);
    desk.pass_ms(TTL_MS / 2 + 1);
    let extend = Op::Extend(Extend {
        ballot: first,
        ttl_ms: TTL_MS,
    });
    assert_eq!(desk.ask_as(READ, ALICE, extend).0, Answer::Gone);
}

#[test]
fn a_share_that_may_still_be_on_its_way_is_refused_after_its_undo() {
    let mut desk = Desk::new();
    let (came, late) = (desk.ballot(5), desk.ballot(10));
    assert_eq!(desk.read(ALICE, came), Answer::Granted);
    assert_eq!(
        desk.ask_as(READ, ALICE, undo_blindly(late)).0,
        Answer::Released
    );
    assert_eq!(desk.read(ALICE, late), Answer::Stale);
}

#[test]
fn a_writer_must_be_above_both_fences_and_a_reader_above_the_writers() {
    let mut desk = Desk::new();
    let (low, high) = (desk.ballot(5), desk.ballot(10));
    assert_eq!(desk.read(ALICE, high), Answer::Granted);
    desk.ask_as(READ, ALICE, release(high));
    assert_eq!(desk.write_lock(BOB, low), Answer::Stale);
    assert_eq!(desk.write_lock(BOB, high), Answer::Stale);
    assert_eq!(desk.write_lock(BOB, desk.ballot(11)), Answer::Granted);
    desk.ask_as(WRITE, BOB, release(desk.ballot(11)));
    assert_eq!(desk.read(CAROL, desk.ballot(11)), Answer::Stale);
    assert_eq!(desk.read(CAROL, desk.ballot(12)), Answer::Granted);
}

#[test]
fn the_floor_is_that_of_the_claim_s_mode() {
    let mut desk = Desk::new();
    let high = desk.ballot(10);
    desk.read(ALICE, high);
    let ground = desk.ballot(-(WINDOW_US as i64));
    assert_eq!(desk.ask_as(READ, BOB, Op::Inspect).1.floor, ground);
    assert_eq!(desk.ask_as(WRITE, BOB, Op::Inspect).1.floor, high);
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    let mut desk = Desk::new();
    desk.read(ALICE, desk.ballot(1));
    let answer = desk.write_lock(BOB, desk.ballot(2));
    assert!(
        matches!(&answer, Answer::Held(h) if h.id.is_none() && h.label.as_deref() == Some("job"))
    );
    desk.ask_as(READ, ALICE, release(desk.ballot(1)));
    assert_eq!(desk.write_lock(BOB, desk.ballot(2)), Answer::Granted);
    assert!(is_held_by(&desk.read(ALICE, desk.ballot(3)), BOB));
    // Neither a plain lock nor another library's client comes beside a reader.
    desk.ask_as(WRITE, BOB, release(desk.ballot(2)));
    desk.read(ALICE, desk.ballot(3));
    let plain = desk
        .ask_as(WRITE, CAROL, Op::PlainAcquire(PlainAcquire { ttl_ms: 10 }))
        .0;
    assert!(matches!(plain, Answer::Held(_)));
}

#[test]
fn the_marker_lasts_as_long_as_the_last_reader() {
    let mut desk = Desk::new();
    let start = desk.now().lease_ms;
    let ballot = desk.ballot(1);
    desk.ask_as(READ, ALICE, acquire_for(ballot, 500));
    desk.ask_as(READ, BOB, acquire_for(ballot, 100));
    assert_eq!(desk.entry("x").key.unwrap().value, SHARED);
    assert_eq!(desk.until_ms("x"), Some(start + 500));
    desk.ask_as(READ, BOB, extend(ballot, 900));
    assert_eq!(desk.until_ms("x"), Some(start + 900));
    desk.ask_as(READ, BOB, release(ballot));
    assert_eq!(desk.until_ms("x"), Some(start + 500), "shorter again");
    desk.pass_ms(501);
    assert_eq!(desk.holder("x"), None);
    assert_eq!(desk.write_lock(CAROL, desk.ballot(1)), Answer::Granted);
    assert_eq!(desk.record().free_since_ms, start + 501);
}

#[test]
fn the_last_reader_to_leave_frees_the_name() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.read(ALICE, ballot);
    desk.read(BOB, ballot);
    assert_eq!(
        desk.ask_as(READ, ALICE, release(ballot)).0,
        Answer::Released
    );
    assert!(desk.holder("x").is_some());
    assert_eq!(desk.ask_as(READ, ALICE, release(ballot)).0, Answer::Gone);
    desk.pass_ms(7);
    assert_eq!(desk.ask_as(READ, BOB, release(ballot)).0, Answer::Released);
    assert_eq!(desk.entry("x").key, None);
    assert_eq!(desk.record().free_since_ms, desk.now().lease_ms);
}

#[test]
fn a_marker_without_a_reader_is_another_program_s_value() {
    for until_ms in [None, Some(100)] {
        let mut desk = Desk::new();
        // A seat of former readers in the record makes the value no more ours.
        let ballot = desk.ballot(1);
        desk.ask_as(READ, ALICE, acquire_for(ballot, 50));
        desk.pass_ms(51);
        assert_eq!(desk.holder("x"), None);
        let until_ms = until_ms.map(|left| desk.now().lease_ms + left);
        desk.set_foreign("x", SHARED, until_ms);
        let holder = desk.holder("x").unwrap();
        assert_eq!((holder.label, holder.id), (None, None));
        let refused = desk.write_lock(BOB, desk.ballot(2));
        assert!(matches!(refused, Answer::Held(_)), "{refused:?}");
        let refused = desk.ask_as(READ, CAROL, acquire(desk.ballot(3))).0;
        assert!(matches!(refused, Answer::Held(_)), "{refused:?}");
        assert_eq!(
            desk.ask_as(READ, ALICE, extend(ballot, 100)).0,
            Answer::Gone
        );
        assert_eq!(desk.entry("x").key.unwrap().value, SHARED);
        assert_eq!(desk.until_ms("x"), until_ms, "it was written over");
        if until_ms.is_some() {
            desk.pass_ms(101);
            assert_eq!(desk.write_lock(BOB, desk.ballot(2)), Answer::Granted);
        }
    }
}

#[test]
fn a_reader_who_finds_a_foreign_value_is_gone() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.read(ALICE, ballot);
    desk.set_foreign("x", "somebody", Some(desk.now().lease_ms + 50));
    assert_eq!(
        desk.ask_as(READ, ALICE, extend(ballot, 100)).0,
        Answer::Gone
    );
    assert!(matches!(
        desk.ask_as(READ, ALICE, restore(ballot)).0,
        Answer::Held(_)
    ));
    desk.pass_ms(51);
    assert_eq!(
        desk.ask_as(READ, ALICE, extend(ballot, 100)).0,
        Answer::Gone
    );
    assert_eq!(
        desk.ask_as(READ, ALICE, restore(ballot)).0,
        Answer::Restored
    );
}

#[test]
fn a_reader_that_leaves_does_not_keep_others_from_being_restored() {
    let mut desk = Desk::new();
    let (low, high) = (desk.ballot(1), desk.ballot(2));
    desk.read(ALICE, low);
    desk.read(BOB, high);
    desk.ask_as(READ, BOB, release(high));
    desk.delete_key("x");
    assert_eq!(desk.ask_as(READ, ALICE, restore(low)).0, Answer::Restored);
}

#[test]
fn a_late_restore_of_a_reader_that_left_is_refused() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.forget();
    desk.ask_as(READ, ALICE, release(ballot));
    assert_eq!(desk.ask_as(READ, ALICE, restore(ballot)).0, Answer::Gone);
}

#[test]
fn where_a_restore_may_be_under_way_the_release_of_a_reader_closes_its_ballot() {
    let mut desk = Desk::new();
    let (low, high) = (desk.ballot(1), desk.ballot(2));
    desk.read(ALICE, high);
    desk.read(BOB, low);
    let mut op = release(high);
    if let Op::Release(Release { fate_unknown, .. }) = &mut op {
        *fate_unknown = true;
    }
    assert_eq!(desk.ask_as(READ, ALICE, op).0, Answer::Released);
    assert_eq!(desk.ask_as(READ, ALICE, restore(high)).0, Answer::Gone);
    assert_eq!(desk.entry("x").readers.len(), 1, "bob is where he was");
    assert_eq!(
        desk.ask_as(READ, BOB, extend(low, TTL_MS)).0,
        Answer::Extended
    );
    // An undo closes nothing: nobody restores what was never granted.
    desk.read(CAROL, desk.ballot(5));
    desk.ask_as(READ, CAROL, undo_blindly(desk.ballot(5)));
    assert_eq!(desk.record().closed, high);
}

#[test]
fn a_shared_acquire_that_lands_after_its_undo_is_refused() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.ask_as(READ, ALICE, undo_blindly(ballot));
    assert_eq!(desk.read(ALICE, ballot), Answer::Stale);
    // Of one that came, nothing is on its way any more: others are not held up.
    desk.read(BOB, desk.ballot(9));
    desk.ask_as(READ, BOB, undo_blindly(desk.ballot(9)));
    assert_eq!(desk.read(CAROL, desk.ballot(8)), Answer::Granted);
}

#[test]
fn a_late_undo_leaves_the_later_attempt_s_share() {
    let mut desk = Desk::new();
    desk.read(ALICE, desk.ballot(1));
    desk.read(ALICE, desk.ballot(5));
    assert_eq!(
        desk.ask_as(READ, ALICE, undo(desk.ballot(1))).0,
        Answer::Newer
    );
    assert_eq!(desk.entry("x").readers.len(), 1);
}

#[test]
fn downgrade_lets_readers_in_and_keeps_writers_out() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.write_lock(ALICE, ballot);
    let (bob, carol, dave) = (desk.place("c.b"), desk.place("c.c"), desk.place("c.d"));
    desk.queue(READ, BOB, &bob);
    desk.queue(READ, CAROL, &carol);
    desk.queue(WRITE, DAVE, &dave);
    assert_eq!(
        desk.ask_as(READ, ALICE, downgrade(ballot)).0,
        Answer::Downgraded
    );
    assert_eq!(desk.wakes, [wake("c.b", 0), wake("c.c", 0)]);
    assert_eq!(desk.entry("x").readers[0].ballot, ballot);
    assert_eq!(desk.queue(READ, CAROL, &again(&carol)), Answer::Granted);
    assert!(matches!(
        desk.queue(WRITE, DAVE, &again(&dave)),
        Answer::Held(_)
    ));
    assert_eq!(
        desk.ask_as(READ, ALICE, extend(ballot, 100)).0,
        Answer::Extended
    );
    assert_eq!(
        desk.ask_as(READ, ALICE, downgrade(ballot)).0,
        Answer::Downgraded
    );
    assert_eq!(desk.wakes, []);
}

#[test]
fn downgrade_of_what_is_not_held_is_refused() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    assert_eq!(desk.ask_as(READ, ALICE, downgrade(ballot)).0, Answer::Gone);
    desk.write_lock(BOB, ballot);
    assert!(is_held_by(
        &desk.ask_as(READ, ALICE, downgrade(ballot)).0,
        BOB
    ));
}

#[test]
fn an_extend_of_a_share_makes_up_for_a_downgrade_that_never_arrived() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(1);
    desk.write_lock(ALICE, ballot);
    assert_eq!(
        desk.ask_as(READ, ALICE, extend(ballot, 50)).0,
        Answer::Extended
    );
    assert_eq!(
        desk.until_ms("x"),
        Some(desk.now().lease_ms + TTL_MS),
        "not shortened"
    );
    assert_eq!(desk.read(BOB, desk.ballot(2)), Answer::Granted);
}

#[test]
fn a_reader_cannot_become_a_writer() {
    let mut desk = Desk::new();
    desk.read(ALICE, desk.ballot(1));
    assert!(matches!(
        desk.write_lock(ALICE, desk.ballot(2)),
        Answer::Held(_)
    ));
    assert!(matches!(
        desk.ask_as(WRITE, ALICE, extend(desk.ballot(1), 100)).0,
        Answer::Held(_)
    ));
}

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
                    true => entry.held_as(Mode::Shared, token(*who).expose()).is_some(),
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
