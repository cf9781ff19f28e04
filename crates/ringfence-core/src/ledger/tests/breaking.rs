//! Break: an operator ends a hold on this node, whatever the holder does later.

use super::super::BREAKS_MAX;
use super::*;
use crate::message::{AcquireSlot, Break, BreakNote};

/// Breaks what is held up to `up_to`, under a ballot that is high enough.
fn breaking(ballot: Ballot, up_to: Ballot) -> Break {
    Break {
        ballot,
        up_to,
        foreign: false,
        only: None,
        slot: None,
        by: Arc::from("ops"),
        reason: Arc::from("host is\ngone"),
        keep_ms: 60_000,
    }
}

fn removed(holders: u64) -> Answer {
    Answer::Removed { holders }
}

impl TestNode {
    /// Breaks `x` up to `up_to`.
    pub(super) fn break_x(&mut self, up_to: Ballot) -> Answer {
        let ballot = self.next_ballot(&["x"]);
        self.ask(DAVE, Op::Break(breaking(ballot, up_to)))
    }

    fn read_x(&mut self, who: u8, op: Op) -> Answer {
        let request = Request {
            claims: Arc::from([Claim {
                name: key("x"),
                mode: Mode::Shared,
            }]),
            token: token(who),
            op,
        };
        let mut entries = [self.entry("x")];
        let outcome = apply(&self.rules, self.now(), &mut entries, &request);
        let [entry] = entries;
        self.entries.insert(key("x"), entry);
        outcome.answer
    }

    /// Alice, Bob and Carol share `x`, under rising ballots.
    fn share_x(&mut self) -> [Ballot; 3] {
        [ALICE, BOB, CAROL].map(|who| {
            self.clock_us += 1;
            let ballot = self.ballot(0);
            assert_eq!(self.read_x(who, acquire(ballot)), Answer::Granted);
            ballot
        })
    }
}

fn is_broken(answer: &Answer, who: u8) -> bool {
    matches!(answer, Answer::Broken(note) if note.id == token(who).id() && note.by == "ops")
}

#[test]
fn a_broken_lock_is_free_and_its_fence_is_higher() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    assert_eq!(node.break_x(ballot), removed(1));
    assert_eq!(node.holder("x"), None);
    let fence = node.floor("x");
    assert!(fence > ballot);
    assert_eq!(node.ask(BOB, acquire(fence)), Answer::Stale);
    let next = Ballot::new(fence.get() + 1);
    assert_eq!(node.ask(BOB, acquire(next)), Answer::Granted);
}

#[test]
fn a_broken_holder_can_neither_extend_nor_restore_nor_acquire_again() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.break_x(ballot);
    assert!(is_broken(&node.ask(ALICE, extend(ballot, TTL_MS)), ALICE));
    assert!(is_broken(&node.ask(ALICE, restore(ballot)), ALICE));
    assert_eq!(node.ask(ALICE, acquire(ballot)), Answer::Stale);
    assert_eq!(node.holder("x"), None);
}

/// The node lost the key before the break, or never had it. A restore may be under way.
#[test]
fn a_break_that_finds_no_holder_still_closes_the_ballot() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    assert_eq!(node.break_x(ballot), removed(0));
    assert_eq!(node.ask(ALICE, restore(ballot)), Answer::Gone);
    let later = Ballot::new(ballot.get() + 1);
    assert_eq!(node.ask(BOB, restore(later)), Answer::Restored);
}

#[test]
fn a_holder_learns_of_the_break_also_if_another_client_holds_the_lock_now() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.break_x(ballot);
    let next = node.next_ballot(&["x"]);
    assert_eq!(node.ask(BOB, acquire(next)), Answer::Granted);
    let answer = node.ask(ALICE, extend(ballot, TTL_MS));
    let Answer::Broken(note) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((note.ballot, &*note.label), (ballot, "job"));
    assert_eq!(note.reason, "host is gone", "one line");
    assert_eq!(node.ask(BOB, extend(next, TTL_MS)), Answer::Extended);
}

#[test]
fn a_holder_that_came_later_is_not_broken() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    let seen = Ballot::new(ballot.get() - 1);
    node.ask(ALICE, acquire(ballot));
    let before = node.entry("x");
    assert!(is_held_by(&node.break_x(seen), ALICE));
    assert_eq!(node.entry("x"), before);
}

#[test]
fn a_break_needs_a_ballot_above_the_fence_and_within_the_window() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    let before = node.entry("x");
    let stale = Op::Break(breaking(ballot, ballot));
    assert_eq!(node.ask(DAVE, stale), Answer::Stale);
    let ahead = Op::Break(breaking(node.ballot(WINDOW_US as i64 + 1), ballot));
    assert_eq!(node.ask(DAVE, ahead), Answer::Ahead);
    assert_eq!(node.entry("x"), before);
}

/// Else a wrong number would keep every later holder from being restored.
#[test]
fn a_break_closes_no_ballot_above_its_own() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.ask(DAVE, Op::Break(breaking(ballot, Ballot::MAX)));
    assert_eq!(node.entry("x").closed(), ballot);
}

#[test]
fn a_break_wakes_the_first_waiters() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    let (first, second) = (node.ticket("c.1"), node.ticket("c.2"));
    node.acquire_queued(BOB, &first);
    node.acquire_queued(CAROL, &second);
    assert_eq!(node.break_x(ballot), removed(1));
    assert_eq!(node.wakes, [wake("c.1", 0), wake("c.2", GRACE_MS)]);
    assert_eq!(
        node.entry("x").record.unwrap().free_since_ms,
        node.now().lease_ms,
        "the waiters' grace begins now"
    );
    assert_eq!(node.acquire_queued(BOB, &first), Answer::Granted);
}

#[test]
fn a_tombstone_can_be_broken_and_does_not_return() {
    let mut node = TestNode::new();
    let ballot = node.ballot(0);
    node.ask(ALICE, acquire(ballot));
    node.ask(ALICE, keep(ballot, 30_000));
    assert!(node.holder("x").unwrap().is_kept());
    assert_eq!(node.break_x(ballot), removed(1));
    assert_eq!(node.holder("x"), None);
    // A second copy of the release that kept it.
    let mut late = keep(ballot, 30_000);
    late.release_mut().unwrap().fate_unknown = true;
    node.ask(ALICE, late);
    assert_eq!(node.holder("x"), None);
}

#[test]
fn a_holder_without_a_record_is_broken_only_if_it_was_meant() {
    let mut node = TestNode::new();
    node.set_foreign("x", "theirs", None);
    let ballot = node.ballot(0);
    assert!(matches!(node.break_x(ballot), Answer::Held(_)));
    let mut op = breaking(node.ballot(1), Ballot::default());
    op.foreign = true;
    assert_eq!(node.ask(DAVE, Op::Break(op)), removed(1));
    assert_eq!(node.holder("x"), None);
    let notes = node.entry("x").broken.unwrap().notes;
    assert_eq!(notes[0].id, "", "its value is secret");
}

#[test]
fn all_readers_are_broken_at_once_except_later_ones() {
    let mut node = TestNode::new();
    let [_, second, third] = node.share_x();
    assert_eq!(node.break_x(second), removed(2));
    for (who, ballot) in [(ALICE, second), (BOB, second)] {
        assert!(is_broken(&node.read_x(who, extend(ballot, TTL_MS)), who));
        assert!(is_broken(&node.read_x(who, restore(ballot)), who));
    }
    assert_eq!(node.read_x(CAROL, extend(third, TTL_MS)), Answer::Extended);
    assert_eq!(node.break_x(third), removed(1));
    assert_eq!(node.holder("x"), None);
}

#[test]
fn one_reader_is_broken_and_the_others_stay() {
    let mut node = TestNode::new();
    let ballots = node.share_x();
    let ballot = node.next_ballot(&["x"]);
    let mut op = breaking(ballot, ballots[1]);
    op.only = Some(Arc::from(token(BOB).id()));
    assert_eq!(node.ask(DAVE, Op::Break(op)), removed(1));
    assert!(is_broken(
        &node.read_x(BOB, extend(ballots[1], TTL_MS)),
        BOB
    ));
    for (who, ballot) in [(ALICE, ballots[0]), (CAROL, ballots[2])] {
        assert_eq!(node.read_x(who, extend(ballot, TTL_MS)), Answer::Extended);
    }
    // An acquire of the broken reader that arrives late.
    assert_eq!(node.read_x(BOB, acquire(ballots[1])), Answer::Stale);
}

#[test]
fn a_slot_is_broken_and_offered_to_the_next_waiter() {
    let mut node = TestNode::new();
    let parts = ["gate", "slot0", "slot1"];
    let take = |node: &mut TestNode, who, ticket: Option<&Ticket>| {
        node.clock_us += 1;
        let op = AcquireSlot {
            slot: None,
            acquire: Acquire {
                ballot: node.ballot(0),
                ttl_ms: TTL_MS,
                label: Arc::from("job"),
                ticket: ticket.cloned(),
                not_after_us: None,
            },
        };
        node.ask_for(&parts, who, Op::AcquireSlot(op)).0
    };
    take(&mut node, ALICE, None);
    take(&mut node, BOB, None);
    let ticket = node.ticket("c.1");
    take(&mut node, CAROL, Some(&ticket));
    let seated = node.entry("slot1").holder_ballot();
    let mut op = breaking(node.next_ballot(&parts), seated);
    op.slot = Some(1);
    assert_eq!(node.ask_for(&parts, DAVE, Op::Break(op)).0, removed(1));
    let woken = Wake {
        slot: Some(1),
        ..wake("c.1", 0)
    };
    assert_eq!(node.wakes, [woken]);
    let lost = node.ask_for(&["slot1"], BOB, extend(seated, TTL_MS)).0;
    assert!(is_broken(&lost, BOB));
    let first = node.entry("slot0").holder_ballot();
    let kept = node.ask_for(&["slot0"], ALICE, extend(first, TTL_MS)).0;
    assert_eq!(kept, Answer::Extended);
}

#[test]
fn breaks_are_remembered_for_a_while_and_only_the_latest() {
    let mut node = TestNode::new();
    for _ in 0..=BREAKS_MAX {
        node.clock_us += 1;
        let ballot = node.next_ballot(&["x"]);
        node.ask(ALICE, acquire(ballot));
        assert_eq!(node.break_x(ballot), removed(1));
    }
    let notes: Vec<BreakNote> = node.entry("x").broken.unwrap().notes;
    assert_eq!(notes.len(), BREAKS_MAX);
    assert_eq!(notes.last().unwrap().at_us, node.clock_us);
    node.pass_ms(60_000);
    node.ask(BOB, Op::Inspect);
    assert!(node.entry("x").broken.is_some());
    node.pass_ms(1);
    node.ask(BOB, Op::Inspect);
    assert_eq!(node.entry("x").broken, None);
}
