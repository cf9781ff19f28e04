//! Readers share a name, but never with a writer.

mod quarantine;
mod queue;

use super::super::SHARED;
use super::*;

/// A name and the mode of the claim.
type WantedClaim<'a> = (&'a str, Mode);

const READ: &[WantedClaim<'_>] = &[("x", Mode::Shared)];
const WRITE: &[WantedClaim<'_>] = &[("x", Mode::Exclusive)];

impl TestNode {
    fn ask_as(&mut self, wanted: &[WantedClaim<'_>], who: u8, op: Op) -> (Answer, ReplyStamp) {
        self.ask_with(wanted, token(who), op)
    }

    fn ask_with(
        &mut self,
        wanted: &[WantedClaim<'_>],
        token: Token,
        op: Op,
    ) -> (Answer, ReplyStamp) {
        let claims = wanted.iter().map(|(name, mode)| Claim {
            name: key(name),
            mode: *mode,
        });
        let request = Request {
            claims: claims.collect(),
            token,
            op,
        };
        let mut entries: Vec<Entry> = wanted.iter().map(|(name, _)| self.entry(name)).collect();
        let outcome = apply(&self.rules, self.now(), &mut entries, &request);
        for ((name, _), entry) in wanted.iter().zip(entries) {
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

    /// Tries to acquire with a ticket, under a ballot that is high enough.
    fn queue(&mut self, wanted: &[WantedClaim<'_>], who: u8, ticket: &Ticket) -> Answer {
        let floor = self.ask_as(wanted, who, Op::Inspect).1.floor;
        let ballot = Ballot::new(self.clock_us.max(floor.get() + 1));
        self.ask_as(wanted, who, acquire_with_ticket(ballot, ticket))
            .0
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
fn readers_need_no_rising_ballots_among_themselves() {
    let mut node = TestNode::new();
    assert_eq!(node.read(ALICE, node.ballot(10)), Answer::Granted);
    assert_eq!(node.read(BOB, node.ballot(5)), Answer::Granted);
    assert_eq!(node.read(CAROL, node.ballot(5)), Answer::Granted);
    assert_eq!(node.entry("x").readers.len(), 3);
}

#[test]
fn a_reader_is_not_granted_again_under_a_lower_ballot() {
    let mut node = TestNode::new();
    assert_eq!(node.read(ALICE, node.ballot(10)), Answer::Granted);
    assert_eq!(node.read(ALICE, node.ballot(5)), Answer::Stale);
    assert_eq!(node.entry("x").readers[0].ballot, node.ballot(10));
}

#[test]
fn a_share_ends_with_its_own_lease_while_other_readers_still_hold() {
    let mut node = TestNode::new();
    let first = node.ballot(10);
    assert_eq!(node.read(ALICE, first), Answer::Granted);
    node.pass_ms(TTL_MS / 2);
    assert_eq!(node.read(BOB, node.ballot(10)), Answer::Granted);
    node.pass_ms(TTL_MS / 2 + 1);
    let extend = Op::Extend(Extend {
        ballot: first,
        ttl_ms: TTL_MS,
        delay_ms: 0,
    });
    assert_eq!(node.ask_as(READ, ALICE, extend).0, Answer::Gone);
}

#[test]
fn a_shared_acquire_that_may_still_arrive_is_refused_after_its_undo() {
    let mut node = TestNode::new();
    let (came, late) = (node.ballot(5), node.ballot(10));
    assert_eq!(node.read(ALICE, came), Answer::Granted);
    assert_eq!(
        node.ask_as(READ, ALICE, undo_of_unknown_fate(late)).0,
        Answer::Released
    );
    assert_eq!(node.read(ALICE, late), Answer::Stale);
}

#[test]
fn a_writer_must_be_above_both_fences_and_a_reader_above_the_writers() {
    let mut node = TestNode::new();
    let (low, high) = (node.ballot(5), node.ballot(10));
    assert_eq!(node.read(ALICE, high), Answer::Granted);
    node.ask_as(READ, ALICE, release(high));
    assert_eq!(node.write_lock(BOB, low), Answer::Stale);
    assert_eq!(node.write_lock(BOB, high), Answer::Stale);
    assert_eq!(node.write_lock(BOB, node.ballot(11)), Answer::Granted);
    node.ask_as(WRITE, BOB, release(node.ballot(11)));
    assert_eq!(node.read(CAROL, node.ballot(11)), Answer::Stale);
    assert_eq!(node.read(CAROL, node.ballot(12)), Answer::Granted);
}

#[test]
fn the_floor_is_that_of_the_claim_s_mode() {
    let mut node = TestNode::new();
    let high = node.ballot(10);
    node.read(ALICE, high);
    let ground = node.ballot(-(WINDOW_US as i64));
    assert_eq!(node.ask_as(READ, BOB, Op::Inspect).1.floor, ground);
    assert_eq!(node.ask_as(WRITE, BOB, Op::Inspect).1.floor, high);
}

#[test]
fn readers_and_a_writer_exclude_each_other() {
    let mut node = TestNode::new();
    node.read(ALICE, node.ballot(1));
    let answer = node.write_lock(BOB, node.ballot(2));
    assert!(
        matches!(&answer, Answer::Held(h) if h.id.is_none() && h.label.as_deref() == Some("job"))
    );
    node.ask_as(READ, ALICE, release(node.ballot(1)));
    assert_eq!(node.write_lock(BOB, node.ballot(2)), Answer::Granted);
    assert!(is_held_by(&node.read(ALICE, node.ballot(3)), BOB));
    // Neither a plain lock nor another library's client is granted while a reader holds.
    node.ask_as(WRITE, BOB, release(node.ballot(2)));
    node.read(ALICE, node.ballot(3));
    let plain = node
        .ask_as(WRITE, CAROL, Op::PlainAcquire(PlainAcquire { ttl_ms: 10 }))
        .0;
    assert!(matches!(plain, Answer::Held(_)));
}

#[test]
fn the_marker_expires_with_the_last_reader() {
    let mut node = TestNode::new();
    let start = node.now().lease_ms;
    let ballot = node.ballot(1);
    node.ask_as(READ, ALICE, acquire_for(ballot, 500));
    node.ask_as(READ, BOB, acquire_for(ballot, 100));
    assert_eq!(node.entry("x").key.unwrap().value, SHARED);
    assert_eq!(node.until_ms("x"), Some(start + 500));
    node.ask_as(READ, BOB, extend(ballot, 900));
    assert_eq!(node.until_ms("x"), Some(start + 900));
    node.ask_as(READ, BOB, release(ballot));
    assert_eq!(node.until_ms("x"), Some(start + 500), "shorter again");
    node.pass_ms(501);
    assert_eq!(node.holder("x"), None);
    assert_eq!(node.write_lock(CAROL, node.ballot(1)), Answer::Granted);
    assert_eq!(node.record().free_since_ms, start + 501);
}

#[test]
fn the_last_reader_to_leave_frees_the_name() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.read(ALICE, ballot);
    node.read(BOB, ballot);
    assert_eq!(
        node.ask_as(READ, ALICE, release(ballot)).0,
        Answer::Released
    );
    assert!(node.holder("x").is_some());
    assert_eq!(node.ask_as(READ, ALICE, release(ballot)).0, Answer::Gone);
    node.pass_ms(7);
    assert_eq!(node.ask_as(READ, BOB, release(ballot)).0, Answer::Released);
    assert_eq!(node.entry("x").key, None);
    assert_eq!(node.record().free_since_ms, node.now().lease_ms);
}

#[test]
fn a_marker_without_a_reader_is_a_foreign_value() {
    for until_ms in [None, Some(100)] {
        let mut node = TestNode::new();
        // The seat of former readers in the record does not make the value ours.
        let ballot = node.ballot(1);
        node.ask_as(READ, ALICE, acquire_for(ballot, 50));
        node.pass_ms(51);
        assert_eq!(node.holder("x"), None);
        let until_ms = until_ms.map(|left| node.now().lease_ms + left);
        node.set_foreign("x", SHARED, until_ms);
        let holder = node.holder("x").unwrap();
        assert_eq!((holder.label, holder.id), (None, None));
        let refused = node.write_lock(BOB, node.ballot(2));
        assert!(matches!(refused, Answer::Held(_)), "{refused:?}");
        let refused = node.ask_as(READ, CAROL, acquire(node.ballot(3))).0;
        assert!(matches!(refused, Answer::Held(_)), "{refused:?}");
        assert_eq!(
            node.ask_as(READ, ALICE, extend(ballot, 100)).0,
            Answer::Gone
        );
        assert_eq!(node.entry("x").key.unwrap().value, SHARED);
        assert_eq!(node.until_ms("x"), until_ms, "the key was overwritten");
        if until_ms.is_some() {
            node.pass_ms(101);
            assert_eq!(node.write_lock(BOB, node.ballot(2)), Answer::Granted);
        }
    }
}

#[test]
fn a_reader_that_finds_a_foreign_value_is_gone() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.read(ALICE, ballot);
    node.set_foreign("x", "foreign", Some(node.now().lease_ms + 50));
    assert_eq!(
        node.ask_as(READ, ALICE, extend(ballot, 100)).0,
        Answer::Gone
    );
    assert!(matches!(
        node.ask_as(READ, ALICE, restore(ballot)).0,
        Answer::Held(_)
    ));
    node.pass_ms(51);
    assert_eq!(
        node.ask_as(READ, ALICE, extend(ballot, 100)).0,
        Answer::Gone
    );
    assert_eq!(
        node.ask_as(READ, ALICE, restore(ballot)).0,
        Answer::Restored
    );
}

#[test]
fn a_leaving_reader_does_not_keep_others_from_being_restored() {
    let mut node = TestNode::new();
    let (low, high) = (node.ballot(1), node.ballot(2));
    node.read(ALICE, low);
    node.read(BOB, high);
    node.ask_as(READ, BOB, release(high));
    node.delete_key("x");
    assert_eq!(node.ask_as(READ, ALICE, restore(low)).0, Answer::Restored);
}

#[test]
fn a_late_restore_of_a_reader_that_left_is_refused() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.lose_data();
    node.ask_as(READ, ALICE, release(ballot));
    assert_eq!(node.ask_as(READ, ALICE, restore(ballot)).0, Answer::Gone);
}

#[test]
fn a_release_of_a_reader_closes_its_ballot_if_a_restore_may_still_arrive() {
    let mut node = TestNode::new();
    let (low, high) = (node.ballot(1), node.ballot(2));
    node.read(ALICE, high);
    node.read(BOB, low);
    let mut op = release(high);
    if let Op::Release(Release { fate_unknown, .. }) = &mut op {
        *fate_unknown = true;
    }
    assert_eq!(node.ask_as(READ, ALICE, op).0, Answer::Released);
    assert_eq!(node.ask_as(READ, ALICE, restore(high)).0, Answer::Gone);
    assert_eq!(node.entry("x").readers.len(), 1, "bob still holds");
    assert_eq!(
        node.ask_as(READ, BOB, extend(low, TTL_MS)).0,
        Answer::Extended
    );
    // An undo closes nothing: a ballot that was never granted is never restored.
    node.read(CAROL, node.ballot(5));
    node.ask_as(READ, CAROL, undo_of_unknown_fate(node.ballot(5)));
    assert_eq!(node.record().closed, high);
}

#[test]
fn a_shared_acquire_that_arrives_after_its_undo_is_refused() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.ask_as(READ, ALICE, undo_of_unknown_fate(ballot));
    assert_eq!(node.read(ALICE, ballot), Answer::Stale);
    // Where the acquire was executed, nothing is on its way any more: new readers are not delayed.
    node.read(BOB, node.ballot(9));
    node.ask_as(READ, BOB, undo_of_unknown_fate(node.ballot(9)));
    assert_eq!(node.read(CAROL, node.ballot(8)), Answer::Granted);
}

#[test]
fn a_late_undo_leaves_the_later_attempt_s_share() {
    let mut node = TestNode::new();
    node.read(ALICE, node.ballot(1));
    node.read(ALICE, node.ballot(5));
    assert_eq!(
        node.ask_as(READ, ALICE, undo(node.ballot(1))).0,
        Answer::Newer
    );
    assert_eq!(node.entry("x").readers.len(), 1);
}

#[test]
fn downgrade_lets_readers_in_and_keeps_writers_out() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.write_lock(ALICE, ballot);
    let (bob, carol, dave) = (node.ticket("c.b"), node.ticket("c.c"), node.ticket("c.d"));
    node.queue(READ, BOB, &bob);
    node.queue(READ, CAROL, &carol);
    node.queue(WRITE, DAVE, &dave);
    assert_eq!(
        node.ask_as(READ, ALICE, downgrade(ballot)).0,
        Answer::Downgraded
    );
    assert_eq!(node.wakes, [wake("c.b", 0), wake("c.c", 0)]);
    assert_eq!(node.entry("x").readers[0].ballot, ballot);
    assert_eq!(node.queue(READ, CAROL, &reentered(&carol)), Answer::Granted);
    assert!(matches!(
        node.queue(WRITE, DAVE, &reentered(&dave)),
        Answer::Held(_)
    ));
    assert_eq!(
        node.ask_as(READ, ALICE, extend(ballot, 100)).0,
        Answer::Extended
    );
    assert_eq!(
        node.ask_as(READ, ALICE, downgrade(ballot)).0,
        Answer::Downgraded
    );
    assert_eq!(node.wakes, []);
}

#[test]
fn a_downgrade_of_a_lock_that_is_not_held_is_refused() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    assert_eq!(node.ask_as(READ, ALICE, downgrade(ballot)).0, Answer::Gone);
    node.write_lock(BOB, ballot);
    assert!(is_held_by(
        &node.ask_as(READ, ALICE, downgrade(ballot)).0,
        BOB
    ));
}

#[test]
fn an_extend_of_a_share_makes_up_for_a_lost_downgrade() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.write_lock(ALICE, ballot);
    assert_eq!(
        node.ask_as(READ, ALICE, extend(ballot, 50)).0,
        Answer::Extended
    );
    assert_eq!(
        node.until_ms("x"),
        Some(node.now().lease_ms + TTL_MS),
        "not shortened"
    );
    assert_eq!(node.read(BOB, node.ballot(2)), Answer::Granted);
}

#[test]
fn a_reader_cannot_become_a_writer() {
    let mut node = TestNode::new();
    node.read(ALICE, node.ballot(1));
    assert!(matches!(
        node.write_lock(ALICE, node.ballot(2)),
        Answer::Held(_)
    ));
    assert!(matches!(
        node.ask_as(WRITE, ALICE, extend(node.ballot(1), 100)).0,
        Answer::Held(_)
    ));
}
