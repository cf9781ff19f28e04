//! Readers beside each other, and never beside a writer.

mod line;

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
