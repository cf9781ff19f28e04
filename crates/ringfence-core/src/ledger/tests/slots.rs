//! A semaphore on one node: which caller may have a slot, which slot it gets, and which waiters a
//! release wakes.

use super::*;
use crate::message::{Acquire, AcquireSlot, Permit, RefreshSlots, Release, ReleaseSlot, Slots};

const ERIN: u8 = 0xee;

/// The names of the admission record and of `size` slots.
const PARTS: [&str; 5] = ["gate", "slot0", "slot1", "slot2", "slot3"];

impl TestNode {
    fn ask_slots(&mut self, size: usize, who: u8, op: Op) -> (Answer, ReplyStamp) {
        self.ask_for(&PARTS[..=size], who, op)
    }

    /// `who` asks for `slot`, or for any slot, of `size`.
    fn acquire_of(
        &mut self,
        size: usize,
        who: u8,
        slot: Option<u32>,
        ticket: Option<&Ticket>,
    ) -> Permit {
        // Higher than all ballots before.
        self.clock_us += 1;
        let op = acquire_slot(self.ballot(0), slot, ticket);
        match self.ask_slots(size, who, op).0 {
            Answer::Permit(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    /// `who` asks for any slot of two.
    fn any_of_two(&mut self, who: u8, ticket: Option<&Ticket>) -> Permit {
        self.acquire_of(2, who, None, ticket)
    }

    fn release_from(
        &mut self,
        slots: Slots,
        who: u8,
        kind: ReleaseKind,
        back: Option<&Ticket>,
    ) -> Answer {
        let ballot = self.ballot(0);
        let op = release_slots(slots, ballot, kind, back, back.is_some());
        self.ask_slots(2, who, op).0
    }

    fn turns(&mut self, tickets: &[&Ticket]) -> Vec<Turn> {
        let tickets = tickets.iter().map(|ticket| (*ticket).clone()).collect();
        match self
            .ask_slots(2, 0, Op::RefreshSlots(RefreshSlots { tickets }))
            .0
        {
            Answer::Turns(turns) => turns,
            other => panic!("{other:?}"),
        }
    }

    fn old_place(&self, by_us: u64, id: &str) -> Ticket {
        Ticket {
            since_us: START_US + by_us,
            id: Arc::from(id),
            first: false,
            label: Arc::from("waiter"),
        }
    }
}

pub(super) fn acquire_slot(ballot: Ballot, slot: Option<u32>, ticket: Option<&Ticket>) -> Op {
    Op::AcquireSlot(AcquireSlot {
        slot,
        acquire: Acquire {
            ballot,
            ttl_ms: TTL_MS,
            label: Arc::from("job"),
            ticket: ticket.cloned(),
            not_after_us: None,
        },
    })
}

pub(super) fn release_slots(
    slots: Slots,
    ballot: Ballot,
    kind: ReleaseKind,
    ticket: Option<&Ticket>,
    stays: bool,
) -> Op {
    Op::ReleaseSlot(ReleaseSlot {
        slots,
        release: Release {
            ballot,
            kind,
            fate_unknown: false,
            ticket: ticket.cloned(),
            stays,
            keep_ms: None,
            delay_ms: 0,
        },
    })
}

/// A wake that is due at once, with a freed `slot`.
pub(super) fn wake_for(ticket: &str, slot: u32) -> Wake {
    Wake {
        slot: Some(slot),
        ..wake(ticket, 0)
    }
}

pub(super) fn granted(permit: &Permit, slot: u32) -> bool {
    *permit.answer == Answer::Granted && permit.slot == Some(slot)
}

#[test]
fn every_slot_is_granted_once_and_the_lowest_first() {
    let mut node = TestNode::new();
    let first = node.any_of_two(ALICE, None);
    assert!(granted(&first, 0));
    assert_eq!((first.free, first.ahead, first.most), (vec![0, 1], 0, 2));
    assert!(granted(&node.any_of_two(BOB, None), 1));
    let refused = node.any_of_two(CAROL, None);
    assert!(is_held_by(&refused.answer, ALICE), "{refused:?}");
    assert_eq!((refused.slot, refused.free), (None, vec![]));
    assert_eq!(
        node.release_from(Slots::Only(0), ALICE, ReleaseKind::Final, None),
        Answer::Released
    );
    assert!(granted(&node.any_of_two(CAROL, None), 0));
}

#[test]
fn a_wanted_slot_is_never_replaced_by_another() {
    let mut node = TestNode::new();
    assert!(granted(&node.acquire_of(2, ALICE, Some(1), None), 1));
    let refused = node.acquire_of(2, BOB, Some(1), None);
    assert!(is_held_by(&refused.answer, ALICE), "{refused:?}");
    assert_eq!((refused.slot, refused.free), (Some(1), vec![0]));
    assert!(granted(&node.acquire_of(2, BOB, Some(0), None), 0));
}

#[test]
fn the_rules_of_an_exclusive_name_apply_to_each_slot() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask_slots(2, ALICE, acquire_slot(ballot, Some(0), None));
    node.release_from(Slots::Only(0), ALICE, ReleaseKind::Final, None);
    // Each slot has its own fence, and the reply carries the floor of its slot.
    let (answer, stamp) = node.ask_slots(2, BOB, acquire_slot(ballot, Some(0), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!((*permit.answer, stamp.floor), (Answer::Stale, ballot));
    let (answer, stamp) = node.ask_slots(2, BOB, acquire_slot(ballot, Some(1), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!((*permit.answer, stamp.floor), (Answer::Granted, ballot));
    let high = node.ballot(WINDOW_US as i64 + 1);
    let (answer, _) = node.ask_slots(2, CAROL, acquire_slot(high, Some(0), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!(*permit.answer, Answer::Ahead);
    // A closed ballot is not restored. A ballot that is not closed is, and it can be extended.
    let closed = node.ask_for(&["slot0"], ALICE, release_of_unknown_fate(ballot));
    assert_eq!(closed.0, Answer::Gone);
    assert_eq!(
        node.ask_for(&["slot0"], ALICE, restore(ballot)).0,
        Answer::Gone
    );
    let held = node.ask_for(&["slot1"], BOB, extend(ballot, TTL_MS)).0;
    assert_eq!(held, Answer::Extended);
    node.lose_data();
    assert_eq!(
        node.ask_for(&["slot1"], BOB, restore(ballot)).0,
        Answer::Restored
    );
    // A holder that acquires again keeps its slot, under the higher ballot.
    let again = node.any_of_two(BOB, None);
    assert!(granted(&again, 1), "{again:?}");
    node.pass_ms(TTL_MS + 1);
    assert!(
        granted(&node.acquire_of(2, CAROL, Some(1), None), 1),
        "expired"
    );
}

#[test]
fn a_late_undo_of_an_earlier_attempt_releases_no_slot_of_a_later_one() {
    let mut node = TestNode::new();
    let (early, late) = (node.ballot(0), node.ballot(5));
    node.ask_slots(2, ALICE, acquire_slot(early, Some(0), None));
    node.ask_slots(2, ALICE, acquire_slot(late, Some(1), None));
    let undo = release_slots(Slots::All, early, ReleaseKind::Undo, None, true);
    assert_eq!(node.ask_slots(2, ALICE, undo.clone()).0, Answer::Released);
    assert_eq!(node.until_ms("slot0"), None);
    assert!(node.until_ms("slot1").is_some());
    assert_eq!(node.ask_slots(2, ALICE, undo).0, Answer::Newer);
}

#[test]
fn an_undo_of_unknown_fate_retires_the_ballot_in_every_named_slot() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    let of_unknown_fate = Op::ReleaseSlot(ReleaseSlot {
        slots: Slots::AllBut(1),
        release: Release {
            ballot,
            kind: ReleaseKind::Undo,
            fate_unknown: true,
            ticket: None,
            stays: true,
            keep_ms: None,
            delay_ms: 0,
        },
    });
    assert_eq!(node.ask_slots(2, ALICE, of_unknown_fate).0, Answer::Gone);
    let (answer, _) = node.ask_slots(2, ALICE, acquire_slot(ballot, None, None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!((permit.slot, *permit.answer), (Some(0), Answer::Stale));
    let (answer, _) = node.ask_slots(2, ALICE, acquire_slot(ballot, Some(1), None));
    let Answer::Permit(permit) = answer else {
        panic!()
    };
    assert_eq!(*permit.answer, Answer::Granted, "not named by the undo");
}

#[test]
fn a_caller_with_fewer_waiters_ahead_than_free_slots_is_granted() {
    let mut node = TestNode::new();
    let tickets: Vec<Ticket> = (0..3)
        .map(|n| node.old_place(n, &format!("t.{n}")))
        .collect();
    for who in [ALICE, BOB] {
        node.any_of_two(who, None);
    }
    for (ticket, who) in tickets.iter().zip([CAROL, DAVE, ERIN]) {
        assert!(!granted(&node.any_of_two(who, Some(ticket)), 0));
    }
    node.release_from(Slots::Only(0), ALICE, ReleaseKind::Final, None);
    node.release_from(Slots::Only(1), BOB, ReleaseKind::Final, None);
    // For a caller without a ticket all three waiters are ahead.
    let jumping = node.any_of_two(ALICE, None);
    assert_eq!(
        *jumping.answer,
        Answer::Behind {
            ahead: 2,
            for_ms: None
        }
    );
    let third = node.any_of_two(ERIN, Some(&tickets[2]));
    assert!(is_behind(&third.answer, 1), "{third:?}");
    // The second waiter does not wait for the first, and leaves the first slot to it.
    let second = node.any_of_two(DAVE, Some(&tickets[1]));
    assert!(granted(&second, 1), "{second:?}");
    assert_eq!(
        node.queue_ids("gate"),
        ["t.0", "t.2"],
        "a holder is not in the queue"
    );
    assert!(is_behind(
        &node.any_of_two(ERIN, Some(&tickets[2])).answer,
        1
    ));
    assert!(granted(&node.any_of_two(CAROL, Some(&tickets[0])), 0));
}

#[test]
fn dead_waiters_ahead_are_passed_after_their_grace() {
    let mut node = TestNode::new();
    let (dead, alive) = (node.old_place(0, "t.0"), node.old_place(1, "t.1"));
    let one =
        |node: &mut TestNode, who, ticket: Option<&Ticket>| node.acquire_of(1, who, None, ticket);
    one(&mut node, ALICE, None);
    one(&mut node, BOB, Some(&dead));
    node.pass_ms(100);
    let ballot = node.ballot(0);
    let done = release_slots(Slots::Only(0), ballot, ReleaseKind::Final, None, false);
    node.ask_slots(1, ALICE, done);
    node.pass_ms(GRACE_MS - 1);
    let behind = one(&mut node, CAROL, Some(&alive));
    assert_eq!(
        *behind.answer,
        Answer::Behind {
            ahead: 1,
            for_ms: Some(1)
        }
    );
    node.pass_ms(1);
    assert!(granted(&one(&mut node, CAROL, Some(&alive)), 0));
    assert_eq!(
        node.queue_ids("gate"),
        Vec::<String>::new(),
        "the dead ticket was dropped"
    );
}

#[test]
fn a_release_wakes_the_newly_entitled_waiter_and_the_next_after_the_grace() {
    let mut node = TestNode::new();
    let tickets: Vec<Ticket> = (0..4)
        .map(|n| node.old_place(n, &format!("t.{n}")))
        .collect();
    for who in [ALICE, BOB] {
        node.any_of_two(who, None);
    }
    for (ticket, who) in tickets.iter().zip([CAROL, DAVE, ERIN, 1]) {
        node.any_of_two(who, Some(ticket));
    }
    node.release_from(Slots::Only(1), BOB, ReleaseKind::Final, None);
    assert_eq!(node.wakes, [wake_for("t.0", 1), wake("t.1", GRACE_MS)]);
    // The first waiter was woken before, with another slot.
    node.release_from(Slots::Only(0), ALICE, ReleaseKind::Final, None);
    assert_eq!(node.wakes, [wake_for("t.1", 0), wake("t.2", GRACE_MS)]);
    let turns = node.turns(&[&tickets[0], &tickets[1], &tickets[2]]);
    let turn = |ahead| Turn { ahead, free: true };
    assert_eq!(turns, [turn(0), turn(0), turn(1)]);
    // A waiter that leaves the queue lets one more acquire.
    let gone = release_slots(
        Slots::All,
        node.ballot(0),
        ReleaseKind::Undo,
        Some(&tickets[1]),
        false,
    );
    node.ask_slots(2, DAVE, gone);
    // That freed no slot, so the wake names none: the waiter asks for any.
    assert_eq!(node.wakes, [wake("t.2", 0), wake("t.3", GRACE_MS)]);
}

#[test]
fn each_of_several_freed_slots_is_named_to_one_waiter() {
    let mut node = TestNode::new();
    let tickets: Vec<Ticket> = (0..3)
        .map(|n| node.old_place(n, &format!("t.{n}")))
        .collect();
    for slot in [0, 1] {
        node.acquire_of(2, ALICE, Some(slot), None);
    }
    for (ticket, who) in tickets.iter().zip([BOB, CAROL, DAVE]) {
        node.any_of_two(who, Some(ticket));
    }
    node.release_from(Slots::All, ALICE, ReleaseKind::Final, None);
    let told = [
        wake_for("t.0", 0),
        wake_for("t.1", 1),
        wake("t.2", GRACE_MS),
    ];
    assert_eq!(node.wakes, told);
}

#[test]
fn an_undo_reenters_the_ticket_and_wakes_no_waiter_in_vain() {
    let mut node = TestNode::new();
    let (first, second) = (node.old_place(0, "t.0"), node.old_place(1, "t.1"));
    node.acquire_of(1, ALICE, None, Some(&first));
    node.acquire_of(1, BOB, None, Some(&second));
    assert_eq!(node.queue_ids("gate"), ["t.1"]);
    let ballot = node.ballot(0);
    let undo = release_slots(Slots::All, ballot, ReleaseKind::Undo, Some(&first), true);
    assert_eq!(node.ask_slots(1, ALICE, undo).0, Answer::Released);
    assert_eq!(node.queue_ids("gate"), ["t.0", "t.1"]);
    assert_eq!(node.wakes, [], "the sender tries again by itself");
    // If the sender's ticket is behind the second one, it is the second one's turn.
    assert!(granted(&node.acquire_of(1, ALICE, None, Some(&first)), 0));
    let third = node.old_place(2, "t.2");
    let undo = release_slots(
        Slots::All,
        node.ballot(0),
        ReleaseKind::Undo,
        Some(&third),
        true,
    );
    node.ask_slots(1, ALICE, undo);
    assert_eq!(node.wakes, [wake_for("t.1", 0)]);
}

#[test]
fn every_reply_reports_the_largest_number_of_permits() {
    let mut node = TestNode::new();
    assert_eq!(node.acquire_of(2, ALICE, None, None).most, 2);
    assert_eq!(node.acquire_of(3, BOB, None, None).most, 3);
    let told = node.acquire_of(2, CAROL, None, None);
    assert!(!granted(&told, 2), "two of two are held");
    assert_eq!(told.most, 3);
    assert_eq!(node.acquire_of(3, CAROL, None, None).slot, Some(2));
    node.pass_ms(RETENTION_MS + 1);
    assert_eq!(
        node.acquire_of(2, ALICE, None, None).most,
        2,
        "the larger number has expired"
    );
    let until = node.entry("gate").key.and_then(|key| key.until_ms);
    assert!(until.is_some(), "the admission record expires");
}
