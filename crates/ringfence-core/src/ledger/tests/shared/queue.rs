//! Readers and writers in one wait queue, and the invariants for any sequence of operations.

use proptest::prelude::*;

use super::*;

#[test]
fn readers_do_not_pass_a_waiting_writer() {
    let mut node = TestNode::new();
    node.read(ALICE, node.ballot(1));
    let (writer, reader) = (node.ticket("c.1"), node.ticket("c.2"));
    assert!(matches!(node.queue(WRITE, BOB, &writer), Answer::Held(_)));
    assert!(is_behind(&node.queue(READ, CAROL, &reader), 1));
    assert!(
        is_behind(&node.read(DAVE, node.ballot(2)), 1),
        "nor without a ticket"
    );
    // However long the first reader holds: the writer is not dead, it only cannot acquire yet.
    for _ in 0..4 {
        node.pass_ms(2_000);
        node.ask_as(READ, ALICE, extend(node.ballot(-8_000_000), TTL_MS));
        node.ask_as(
            WRITE,
            0,
            Op::Refresh(Refresh {
                tickets: Arc::from([reentered(&writer)]),
            }),
        );
        assert!(is_behind(&node.queue(READ, CAROL, &reentered(&reader)), 1));
    }
}

#[test]
fn the_writer_is_next_after_a_hundred_readers() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    let reader = |n: u8| Token::from_entropy([n; TOKEN_ENTROPY_BYTES]);
    for n in 0..100 {
        assert_eq!(
            node.ask_with(READ, reader(n), acquire(ballot)).0,
            Answer::Granted
        );
    }
    let (writer, late) = (node.ticket("c.1"), node.ticket("c.2"));
    node.queue(WRITE, 200, &writer);
    node.queue(READ, 201, &late);
    for n in 0..100 {
        assert_eq!(node.wakes, [], "{n}");
        node.ask_with(READ, reader(n), release(ballot));
    }
    assert_eq!(node.wakes, [wake("c.1", 0), wake("c.2", GRACE_MS)]);
    assert!(is_behind(&node.queue(READ, 201, &reentered(&late)), 1));
    assert_eq!(node.queue(WRITE, 200, &reentered(&writer)), Answer::Granted);
}

#[test]
fn every_leading_reader_is_woken_and_the_writer_behind_them_later() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.write_lock(ALICE, ballot);
    let tickets: Vec<Ticket> = (1..=4).map(|n| node.ticket(&format!("c.{n}"))).collect();
    node.queue(READ, 1, &tickets[0]);
    node.queue(READ, 2, &tickets[1]);
    node.queue(WRITE, 3, &tickets[2]);
    node.queue(READ, 4, &tickets[3]);
    node.ask_as(WRITE, ALICE, release(ballot));
    let expected = [wake("c.1", 0), wake("c.2", 0), wake("c.3", 2 * GRACE_MS)];
    assert_eq!(node.wakes, expected);
    // They acquire in any order, and the other waiter keeps its ticket.
    assert_eq!(
        node.queue(READ, 2, &reentered(&tickets[1])),
        Answer::Granted
    );
    assert_eq!(node.queue_ids("x"), ["c.1", "c.3", "c.4"]);
    assert_eq!(
        node.queue(READ, 1, &reentered(&tickets[0])),
        Answer::Granted
    );
}

#[test]
fn a_writer_that_cancels_lets_the_readers_behind_it_in() {
    let mut node = TestNode::new();
    node.read(ALICE, node.ballot(1));
    let (writer, reader) = (node.ticket("c.1"), node.ticket("c.2"));
    node.queue(WRITE, BOB, &writer);
    node.queue(READ, CAROL, &reader);
    let cancel = release_op(
        node.ballot(2),
        ReleaseKind::Undo,
        Some(&reentered(&writer)),
        false,
    );
    node.ask_as(WRITE, BOB, cancel);
    assert_eq!(node.wakes, [wake("c.2", 0)]);
    assert_eq!(
        node.queue(READ, CAROL, &reentered(&reader)),
        Answer::Granted
    );
}

#[test]
fn a_refresh_counts_only_conflicting_tickets_for_readers() {
    let mut node = TestNode::new();
    node.read(ALICE, node.ballot(1));
    let (one, two) = (node.ticket("c.1"), node.ticket("c.2"));
    let refresh = |node: &mut TestNode, wanted, ticket: &Ticket| {
        let tickets = Arc::from([reentered(ticket)]);
        node.ask_as(wanted, 0, Op::Refresh(Refresh { tickets })).0
    };
    let turn = |ahead, free| Answer::Turns(vec![Turn { ahead, free }]);
    assert_eq!(refresh(&mut node, READ, &one), turn(0, true));
    assert_eq!(refresh(&mut node, READ, &two), turn(0, true));
    assert_eq!(refresh(&mut node, WRITE, &two), turn(1, false));
}

#[test]
fn claims_of_several_names_may_mix_modes() {
    let mut node = TestNode::new();
    let both: &[WantedClaim<'_>] = &[("x", Mode::Shared), ("y", Mode::Exclusive)];
    let ballot = node.ballot(1);
    node.read(ALICE, ballot);
    assert_eq!(node.ask_as(both, BOB, acquire(ballot)).0, Answer::Granted);
    let (answer, _) = node.ask_as(both, CAROL, acquire(node.ballot(2)));
    assert!(matches!(answer, Answer::Held(holder) if holder.claim == 1));
    assert_eq!(node.read(CAROL, ballot), Answer::Granted);
    assert_eq!(
        node.ask_as(both, BOB, extend(ballot, 100)).0,
        Answer::Extended
    );
    assert_eq!(node.ask_as(both, BOB, release(ballot)).0, Answer::Released);
    assert_eq!(node.holder("y"), None);
    assert_eq!(node.entry("x").readers.len(), 2);
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

impl Step {
    fn op(&self, ballot: Ballot, clock_us: u64, who: u8) -> Op {
        let ttl_ms = self.ttl_ms;
        let label: Arc<str> = Arc::from("job");
        match self.what {
            0..=2 => acquire_for(ballot, ttl_ms),
            3 => Op::Acquire(Acquire {
                ballot,
                ttl_ms,
                label,
                ticket: Some(Ticket {
                    since_us: clock_us / 1_000_000,
                    id: Arc::from(format!("c.{who}")),
                    first: false,
                    label: Arc::from("waiter"),
                }),
                not_after_us: None,
            }),
            4 => extend(ballot, ttl_ms),
            5 => release(ballot),
            6 => undo(ballot),
            7 => undo_of_unknown_fate(ballot),
            8 => Op::Downgrade(Downgrade { ballot, ttl_ms }),
            _ => Op::Restore(Restore {
                ballot,
                ttl_ms,
                label,
            }),
        }
    }
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

    /// For any sequence: a writer never holds together with a reader or another writer, no lease is
    /// shortened, and of two grants, at least one of them exclusive, the later has the higher
    /// fence.
    #[test]
    fn the_invariants_hold_with_readers(steps in steps()) {
        let mut node = TestNode::new();
        // Which client was granted what, and until when.
        let mut held: Vec<(u8, bool, u64)> = Vec::new();
        let (mut written, mut granted) = (Ballot::default(), Ballot::default());
        for step in &steps {
            node.pass_ms(step.pass_ms);
            let now_ms = node.now().lease_ms;
            held.retain(|(_, _, until)| *until >= now_ms);
            let ballot = node.ballot(step.offset_us);
            // Readers and writers have different tokens. A writer that was downgraded keeps its
            // token.
            let downgraded = held.iter().any(|h| h.0 == step.who + 100 && h.1);
            let who = if step.shared && !downgraded { step.who } else { step.who + 100 };
            let shared = step.shared;
            let op = step.op(ballot, node.clock_us, who);
            let wanted = if shared { READ } else { WRITE };
            let answer = node.ask_as(wanted, who, op).0;
            let until = now_ms + step.ttl_ms;
            let mine = held.iter().position(|h| h.0 == who);
            match answer {
                Answer::Granted | Answer::Extended | Answer::Restored | Answer::Downgraded => {
                    let shared = shared || answer == Answer::Downgraded;
                    let until = mine.map_or(until, |at| held.remove(at).2.max(until));
                    let clash = held.iter().any(|h| !(h.1 && shared));
                    prop_assert!(!clash, "{who} holds together with {held:?}");
                    let again = mine.is_some();
                    if answer == Answer::Granted && !again {
                        let below = if shared { written } else { granted };
                        prop_assert!(ballot > below, "{ballot:?} after {below:?}");
                        granted = granted.max(ballot);
                        if !shared { written = written.max(ballot); }
                    }
                    held.push((who, shared, until));
                }
                Answer::Released | Answer::Gone | Answer::Held(_)
                    if (5..=7).contains(&step.what) =>
                {
                    held.retain(|h| h.0 != who);
                }
                _ => {}
            }
            let entry = node.entry("x");
            for (who, shared, until) in &held {
                let stands = match shared {
                    true => entry.ballot_of(Mode::Shared, token(*who).expose()).is_some(),
                    false => entry.is_held_by(token(*who).expose()),
                };
                prop_assert!(stands, "{who} was granted until {until}: {entry:?}");
            }
        }
    }
}

/// If the writer's own ticket stayed in the queue, it would be ahead of the reader's.
#[test]
fn a_writer_that_waited_and_downgrades_lets_the_next_reader_in() {
    let mut node = TestNode::new();
    let ballot = node.ballot(1);
    node.write_lock(ALICE, ballot);
    let (writer, reader) = (node.ticket("c.1"), node.ticket("c.2"));
    node.queue(WRITE, BOB, &writer);
    node.queue(READ, CAROL, &reader);
    node.ask_as(WRITE, ALICE, release(ballot));
    assert_eq!(node.queue(WRITE, BOB, &reentered(&writer)), Answer::Granted);
    let ballot = node.seated(&["x"]);
    let ttl_ms = TTL_MS;
    let (answer, _) = node.ask_as(WRITE, BOB, Op::Downgrade(Downgrade { ballot, ttl_ms }));
    assert_eq!(answer, Answer::Downgraded);
    assert_eq!(node.wakes, [wake("c.2", 0)]);
    assert_eq!(
        node.queue(READ, CAROL, &reentered(&reader)),
        Answer::Granted
    );
}
