//! A semaphore on one node: who may have a slot, which one, and who is told when one is given back.

use super::*;
use crate::ledger::PlainKey;
use crate::message::{Acquire, AcquireSlot, Permit, RefreshSlots, Release, ReleaseSlot, Slots};

const ERIN: u8 = 0xee;

/// The gate and `size` slots, under names that the desk takes.
const PARTS: [&str; 5] = ["gate", "slot0", "slot1", "slot2", "slot3"];

impl Desk {
    fn ask_slots(&mut self, size: usize, who: u8, op: Op) -> (Answer, Stamp) {
        self.ask_for(&PARTS[..=size], who, op)
    }

    /// `who` asks for `slot`, or any, of `size`.
    fn enter_of(
        &mut self,
        size: usize,
        who: u8,
        slot: Option<u32>,
        place: Option<&Place>,
    ) -> Permit {
        // Higher than all before.
        self.clock_us += 1;
        let op = acquire_slot(self.ballot(0), slot, place);
        match self.ask_slots(size, who, op).0 {
            Answer::Permit(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    /// `who` asks for any slot of two.
    fn any_of_two(&mut self, who: u8, place: Option<&Place>) -> Permit {
        self.enter_of(2, who, None, place)
    }

    fn go_from(
        &mut self,
        slots: Slots,
        who: u8,
        kind: ReleaseKind,
        back: Option<&Place>,
    ) -> Answer {
        let ballot = self.ballot(0);
        let op = release_slots(slots, ballot, kind, back, back.is_some());
        self.ask_slots(2, who, op).0
    }

    fn turns(&mut self, places: &[&Place]) -> Vec<Turn> {
        let places = places.iter().map(|place| (*place).clone()).collect();
        match self
            .ask_slots(2, 0, Op::RefreshSlots(RefreshSlots { places }))
            .0
        {
            Answer::Turns(turns) => turns,
            other => panic!("{other:?}"),
        }
    }

    fn old_place(&self, by_us: u64, id: &str) -> Place {
        Place {
            since_us: START_US + by_us,
            id: Arc::from(id),
            first: false,
        }
    }
}

fn acquire_slot(ballot: Ballot, slot: Option<u32>, place: Option<&Place>) -> Op {
    Op::AcquireSlot(AcquireSlot {
        slot,
        acquire: Acquire {
            ballot,
            ttl_ms: TTL_MS,
            label: Arc::from("job"),
            place: place.cloned(),
        },
    })
}

fn release_slots(
    slots: Slots,
    ballot: Ballot,
    kind: ReleaseKind,
    place: Option<&Place>,
    stays: bool,
) -> Op {
    Op::ReleaseSlot(ReleaseSlot {
        slots,
        release: Release {
            ballot,
            kind,
            fate_unknown: false,
            place: place.cloned(),
            stays,
            keep_ms: None,
        },
    })
}

/// A wake to come at once, for `slot`.
fn wake_for(ticket: &str, slot: u32) -> Wake {
    Wake {
        slot: Some(slot),
        ..wake(ticket, 0)
    }
}

fn granted(permit: &Permit, slot: u32) -> bool {
    *permit.answer == Answer::Granted && permit.slot == Some(slot)
}

#[test]
fn as_many_slots_are_given_as_there_are_and_the_lowest_first() {
    let mut desk = Desk::new();
    let first = desk.any_of_two(ALICE, None);
    assert!(granted(&first, 0));
    assert_eq!((first.free, first.ahead, first.most), (vec![0, 1], 0, 2));
    assert!(granted(&desk.any_of_two(BOB, None), 1));
    let refused = desk.any_of_two(CAROL, None);
    assert!(is_held_by(&refused.answer, ALICE), "{refused:?}");
    assert_eq!((refused.slot, refused.free), (None, vec![]));
    assert_eq!(
        desk.go_from(Slots::Only(0), ALICE, ReleaseKind::Final, None),
        Answer::Released
    );
    assert!(granted(&desk.any_of_two(CAROL, None), 0));
}

#[test]
fn a_slot_that_is_named_is_never_replaced_by_another() {
    let mut desk = Desk::new();
    assert!(granted(&desk.enter_of(2, ALICE, Some(1), None), 1));
    let refused = desk.enter_of(2, BOB, Some(1), None);
    assert!(is_held_by(&refused.answer, ALICE), "{refused:?}");
    assert_eq!((refused.slot, refused.free), (Some(1), vec![0]));
    assert!(granted(&desk.enter_of(2, BOB, Some(0), None), 0));
}

#[test]
fn the_rules_of_an_exclusive_name_hold_for_each_slot() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    desk.ask_slots(2, ALICE, acquire_slot(ballot, Some(0), None));
    desk.go_from(Slots::Only(0), ALICE, ReleaseKind::Final, None);
    // Fences are per slot, and so is the floor that the answer tells.
    let (answer, stamp) = desk.ask_slots(2, BOB, acquire_slot(ballot, Some(0), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!((*permit.answer, stamp.floor), (Answer::Stale, ballot));
    let (answer, stamp) = desk.ask_slots(2, BOB, acquire_slot(ballot, Some(1), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!((*permit.answer, stamp.floor), (Answer::Granted, ballot));
    let high = desk.ballot(WINDOW_US as i64 + 1);
    let (answer, _) = desk.ask_slots(2, CAROL, acquire_slot(high, Some(0), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!(*permit.answer, Answer::Ahead);
    // A closed ballot is not restored; one that is not closed is, and extended.
    assert_eq!(
        desk.ask_for(&["slot0"], ALICE, restore(ballot)).0,
        Answer::Gone
    );
    let held = desk.ask_for(&["slot1"], BOB, extend(ballot, TTL_MS)).0;
    assert_eq!(held, Answer::Extended);
    desk.forget();
    assert_eq!(
        desk.ask_for(&["slot1"], BOB, restore(ballot)).0,
        Answer::Restored
    );
    // A holder that comes again keeps its slot, under the higher ballot.
    let again = desk.any_of_two(BOB, None);
    assert!(granted(&again, 1), "{again:?}");
    desk.pass_ms(TTL_MS + 1);
    assert!(
        granted(&desk.enter_of(2, CAROL, Some(1), None), 1),
        "expired"
    );
}

#[test]
fn a_late_undo_of_an_earlier_attempt_takes_nothing_from_a_later_one() {
    let mut desk = Desk::new();
    let (early, late) = (desk.ballot(0), desk.ballot(5));
    desk.ask_slots(2, ALICE, acquire_slot(early, Some(0), None));
    desk.ask_slots(2, ALICE, acquire_slot(late, Some(1), None));
    let undo = release_slots(Slots::All, early, ReleaseKind::Undo, None, true);
    assert_eq!(desk.ask_slots(2, ALICE, undo.clone()).0, Answer::Released);
    assert_eq!(desk.until_ms("slot0"), None);
    assert!(desk.until_ms("slot1").is_some());
    assert_eq!(desk.ask_slots(2, ALICE, undo).0, Answer::Newer);
}

#[test]
fn an_attempt_at_any_slot_whose_fate_is_unknown_is_retired_in_each() {
    let mut desk = Desk::new();
    let ballot = desk.ballot(0);
    let blind = Op::ReleaseSlot(ReleaseSlot {
        slots: Slots::AllBut(1),
        release: Release {
            ballot,
            kind: ReleaseKind::Undo,
            fate_unknown: true,
            place: None,
            stays: true,
            keep_ms: None,
        },
    });
    assert_eq!(desk.ask_slots(2, ALICE, blind).0, Answer::Gone);
    let (answer, _) = desk.ask_slots(2, ALICE, acquire_slot(ballot, None, None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!((permit.slot, *permit.answer), (Some(0), Answer::Stale));
    let (answer, _) = desk.ask_slots(2, ALICE, acquire_slot(ballot, Some(1), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!(*permit.answer, Answer::Granted, "that one was not meant");
}

#[test]
fn whoever_has_fewer_ahead_than_slots_are_free_may_come() {
    let mut desk = Desk::new();
    let places: Vec<Place> = (0..3)
        .map(|n| desk.old_place(n, &format!("t.{n}")))
        .collect();
    for who in [ALICE, BOB] {
        desk.any_of_two(who, None);
    }
    for (place, who) in places.iter().zip([CAROL, DAVE, ERIN]) {
        assert!(!granted(&desk.any_of_two(who, Some(place)), 0));
    }
    desk.go_from(Slots::Only(0), ALICE, ReleaseKind::Final, None);
    desk.go_from(Slots::Only(1), BOB, ReleaseKind::Final, None);
    // Without a ticket all three are ahead.
    let jumping = desk.any_of_two(ALICE, None);
    assert_eq!(
        *jumping.answer,
        Answer::Behind {
            ahead: 2,
            for_ms: None
        }
    );
    let third = desk.any_of_two(ERIN, Some(&places[2]));
    assert!(is_behind(&third.answer, 1), "{third:?}");
    // The second in line does not wait for the first, and leaves it the first slot.
    let second = desk.any_of_two(DAVE, Some(&places[1]));
    assert!(granted(&second, 1), "{second:?}");
    assert_eq!(
        desk.line("gate"),
        ["t.0", "t.2"],
        "who has a slot waits no longer"
    );
    assert!(is_behind(
        &desk.any_of_two(ERIN, Some(&places[2])).answer,
        1
    ));
    assert!(granted(&desk.any_of_two(CAROL, Some(&places[0])), 0));
}

#[test]
fn those_ahead_who_do_not_come_are_passed_after_their_grace() {
    let mut desk = Desk::new();
    let (dead, alive) = (desk.old_place(0, "t.0"), desk.old_place(1, "t.1"));
    let one = |desk: &mut Desk, who, place: Option<&Place>| desk.enter_of(1, who, None, place);
    one(&mut desk, ALICE, None);
    one(&mut desk, BOB, Some(&dead));
    desk.pass_ms(100);
    let ballot = desk.ballot(0);
    let done = release_slots(Slots::Only(0), ballot, ReleaseKind::Final, None, false);
    desk.ask_slots(1, ALICE, done);
    desk.pass_ms(GRACE_MS - 1);
    let behind = one(&mut desk, CAROL, Some(&alive));
    assert_eq!(
        *behind.answer,
        Answer::Behind {
            ahead: 1,
            for_ms: Some(1)
        }
    );
    desk.pass_ms(1);
    assert!(granted(&one(&mut desk, CAROL, Some(&alive)), 0));
    assert_eq!(desk.line("gate"), Vec::<String>::new(), "it did not come");
}

#[test]
fn a_release_wakes_whom_the_slot_serves_and_the_next_after_grace() {
    let mut desk = Desk::new();
    let places: Vec<Place> = (0..4)
        .map(|n| desk.old_place(n, &format!("t.{n}")))
        .collect();
    for who in [ALICE, BOB] {
        desk.any_of_two(who, None);
    }
    for (place, who) in places.iter().zip([CAROL, DAVE, ERIN, 1]) {
        desk.any_of_two(who, Some(place));
    }
    desk.go_from(Slots::Only(1), BOB, ReleaseKind::Final, None);
    assert_eq!(desk.wakes, [wake_for("t.0", 1), wake("t.1", GRACE_MS)]);
    // The first was told already, and of another slot.
    desk.go_from(Slots::Only(0), ALICE, ReleaseKind::Final, None);
    assert_eq!(desk.wakes, [wake_for("t.1", 0), wake("t.2", GRACE_MS)]);
    let turns = desk.turns(&[&places[0], &places[1], &places[2]]);
    let turn = |ahead| Turn { ahead, free: true };
    assert_eq!(turns, [turn(0), turn(0), turn(1)]);
    // Whoever gives up makes way for one more.
    let gone = release_slots(
        Slots::All,
        desk.ballot(0),
        ReleaseKind::Undo,
        Some(&places[1]),
        false,
    );
    desk.ask_slots(2, DAVE, gone);
    // No slot was freed by that: which one is left for it, it finds out by itself.
    assert_eq!(desk.wakes, [wake("t.2", 0), wake("t.3", GRACE_MS)]);
}

#[test]
fn each_of_several_slots_that_are_given_back_at_once_is_named_to_one() {
    let mut desk = Desk::new();
    let places: Vec<Place> = (0..3)
        .map(|n| desk.old_place(n, &format!("t.{n}")))
        .collect();
    for slot in [0, 1] {
        desk.enter_of(2, ALICE, Some(slot), None);
    }
    for (place, who) in places.iter().zip([BOB, CAROL, DAVE]) {
        desk.any_of_two(who, Some(place));
    }
    desk.go_from(Slots::All, ALICE, ReleaseKind::Final, None);
    let told = [
        wake_for("t.0", 0),
        wake_for("t.1", 1),
        wake("t.2", GRACE_MS),
    ];
    assert_eq!(desk.wakes, told);
}

#[test]
fn an_undo_takes_the_place_in_line_again_and_wakes_nobody_in_vain() {
    let mut desk = Desk::new();
    let (first, second) = (desk.old_place(0, "t.0"), desk.old_place(1, "t.1"));
    desk.enter_of(1, ALICE, None, Some(&first));
    desk.enter_of(1, BOB, None, Some(&second));
    assert_eq!(desk.line("gate"), ["t.1"]);
    let ballot = desk.ballot(0);
    let undo = release_slots(Slots::All, ballot, ReleaseKind::Undo, Some(&first), true);
    assert_eq!(desk.ask_slots(1, ALICE, undo).0, Answer::Released);
    assert_eq!(desk.line("gate"), ["t.0", "t.1"]);
    assert_eq!(desk.wakes, [], "the sender comes again by itself");
    // It is the second's turn after all if the first was behind it.
    assert!(granted(&desk.enter_of(1, ALICE, None, Some(&first)), 0));
    let third = desk.old_place(2, "t.2");
    let undo = release_slots(
        Slots::All,
        desk.ballot(0),
        ReleaseKind::Undo,
        Some(&third),
        true,
    );
    desk.ask_slots(1, ALICE, undo);
    assert_eq!(desk.wakes, [wake_for("t.1", 0)]);
}

#[test]
fn the_largest_number_that_anybody_gave_is_told_to_all() {
    let mut desk = Desk::new();
    assert_eq!(desk.enter_of(2, ALICE, None, None).most, 2);
    assert_eq!(desk.enter_of(3, BOB, None, None).most, 3);
    let told = desk.enter_of(2, CAROL, None, None);
    assert!(!granted(&told, 2), "two of two are taken");
    assert_eq!(told.most, 3);
    assert_eq!(desk.enter_of(3, CAROL, None, None).slot, Some(2));
    desk.pass_ms(RETENTION_MS + 1);
    assert_eq!(
        desk.enter_of(2, ALICE, None, None).most,
        2,
        "that is long ago"
    );
    let until = desk
        .entry("gate")
        .key
        .and_then(|key: PlainKey| key.until_ms);
    assert!(until.is_some(), "nothing stays for ever");
}
