//! The contract of the wait queue: the order of grants, tickets, and wakes.

use ringfence_core::message::PlainAcquire;

use super::*;

const CAROL: u8 = 0xcc;
const GRACE_MS: u64 = Group::DEFAULT_GRACE.as_millis() as u64;

/// Alice holds `x` under this ballot; Bob (`b.1`) and Carol (`c.1`) wait.
fn two_wait(node: &dyn Node) -> (Ballot, Ticket, Ticket) {
    let ballot = next_ballot(node, "x");
    ask(node, "x", ALICE, acquire(ballot, TTL_MS));
    let now_us = stamp(node, "x").clock_us;
    let (bob, carol) = (ticket(now_us, "b.1"), ticket(now_us + 1, "c.1"));
    held(acquire_in_queue(node, CAROL, &carol));
    held(acquire_in_queue(node, BOB, &bob));
    (ballot, bob, carol)
}

fn acquire_in_queue(node: &dyn Node, client: u8, ticket: &Ticket) -> Answer {
    let ballot = next_ballot(node, "x");
    ask(
        node,
        "x",
        client,
        acquire_with_ticket(ballot, TTL_MS, ticket),
    )
}

fn done(node: &dyn Node, client: u8, ticket: &Ticket) -> Answer {
    let op = leave(
        stamp(node, "x").floor,
        ReleaseKind::Final,
        Some(ticket),
        false,
    );
    ask(node, "x", client, op)
}

fn waiting(node: &dyn Node, name: &str) -> u64 {
    match ask(node, name, ALICE, Op::Inspect) {
        Answer::Views(views) => views[0].waiting,
        other => panic!("no views but {other:?}"),
    }
}

pub(super) fn waiters_are_granted_in_the_order_of_their_tickets(stage: &Stage) {
    let node = stage.node();
    let (ballot, bob, carol) = two_wait(node);
    assert_eq!(held(acquire_in_queue(node, CAROL, &carol)).ahead, 1);
    assert_eq!(ask(node, "x", ALICE, release(ballot)), Answer::Released);
    let answer = acquire_in_queue(node, CAROL, &carol);
    assert!(
        matches!(answer, Answer::Behind { ahead: 1, for_ms: Some(ms) } if ms <= GRACE_MS),
        "{answer:?}"
    );
    assert_eq!(acquire_in_queue(node, BOB, &bob), Answer::Granted);
    assert_eq!(waiting(node, "x"), 1, "a holder is not in the queue");
    assert_eq!(done(node, BOB, &bob), Answer::Released);
    assert_eq!(waiting(node, "x"), 1);
    assert_eq!(acquire_in_queue(node, CAROL, &carol), Answer::Granted);
    assert_eq!(done(node, CAROL, &carol), Answer::Released);
    assert_eq!(waiting(node, "x"), 0);
}

pub(super) fn a_caller_without_a_ticket_is_behind_the_queue(stage: &Stage) {
    let node = stage.node();
    let (ballot, ..) = two_wait(node);
    ask(node, "x", ALICE, release(ballot));
    let answer = ask(node, "x", ALICE, acquire(next_ballot(node, "x"), TTL_MS));
    let behind = Answer::Behind {
        ahead: 2,
        for_ms: None,
    };
    assert_eq!(answer, behind);
}

pub(super) fn a_new_ticket_with_an_old_time_is_refused(stage: &Stage) {
    let node = stage.node();
    let (_, bob, _) = two_wait(node);
    let old = Ticket {
        first: true,
        ..ticket(bob.since_us - 5_000_000, "s.1")
    };
    assert_eq!(acquire_in_queue(node, CAROL, &old), Answer::TicketOld);
    assert_eq!(waiting(node, "x"), 2);
    let known = Ticket {
        first: false,
        ..old
    };
    assert_eq!(held(acquire_in_queue(node, CAROL, &known)).ahead, 0);
    assert_eq!(waiting(node, "x"), 3);
    // Also if it waits for more than one name.
    let both = acquire_with_ticket(next_ballot(node, "x"), TTL_MS, &known);
    assert_eq!(held(reply(node, &["x", "y"], CAROL, both).answer).ahead, 0);
    assert_eq!(waiting(node, "y"), 1);
}

pub(super) fn a_ticket_that_is_not_refreshed_expires(stage: &Stage) {
    let node = stage.node();
    let (_, bob, _) = two_wait(node);
    stage.pass_ms(2_000);
    let turns = ask(node, "x", BOB, refresh(&[&bob]));
    let turn = Turn {
        ahead: 0,
        free: false,
    };
    assert_eq!(turns, Answer::Turns(vec![turn]));
    stage.pass_ms(1_100);
    assert_eq!(waiting(node, "x"), 1);
    stage.pass_ms(2_000);
    assert_eq!(waiting(node, "x"), 0);
}

pub(super) fn an_undo_keeps_the_ticket_and_a_cancel_removes_it(stage: &Stage) {
    let node = stage.node();
    let (ballot, bob, carol) = two_wait(node);
    ask(node, "x", ALICE, release(ballot));
    assert_eq!(acquire_in_queue(node, BOB, &bob), Answer::Granted);
    let floor = stamp(node, "x").floor;
    let undo = leave(floor, ReleaseKind::Undo, Some(&bob), true);
    assert_eq!(ask(node, "x", BOB, undo), Answer::Released);
    assert_eq!(waiting(node, "x"), 2);
    let cancel = leave(floor, ReleaseKind::Undo, Some(&bob), false);
    assert_eq!(ask(node, "x", BOB, cancel), Answer::Gone);
    assert_eq!(waiting(node, "x"), 1);
    assert_eq!(acquire_in_queue(node, CAROL, &carol), Answer::Granted);
}

pub(super) fn a_dead_head_of_the_queue_is_passed_after_the_grace_period(stage: &Stage) {
    let node = stage.node();
    let (ballot, bob, carol) = two_wait(node);
    stage.pass_ms(10);
    ask(node, "x", ALICE, release(ballot));
    stage.pass_ms(GRACE_MS + 1);
    assert_eq!(acquire_in_queue(node, CAROL, &carol), Answer::Granted);
    assert_eq!(waiting(node, "x"), 0, "one was granted, one was passed");
    assert_eq!(held(acquire_in_queue(node, BOB, &bob)).ahead, 0);
}

pub(super) fn the_head_of_the_queue_has_its_grace_period_after_a_plain_lock(stage: &Stage) {
    let node = stage.node();
    ask(
        node,
        "x",
        ALICE,
        Op::PlainAcquire(PlainAcquire { ttl_ms: TTL_MS }),
    );
    let now_us = stamp(node, "x").clock_us;
    let (bob, carol) = (ticket(now_us, "b.1"), ticket(now_us + 1, "c.1"));
    held(acquire_in_queue(node, BOB, &bob));
    assert_eq!(ask(node, "x", ALICE, Op::PlainRelease), Answer::Released);
    // A plain release does not record when the name became free: the time counts from the first
    // look.
    for _ in 0..2 {
        let answer = acquire_in_queue(node, CAROL, &carol);
        assert!(
            matches!(answer, Answer::Behind { ahead: 1, for_ms: Some(ms) } if ms <= GRACE_MS),
            "{answer:?}"
        );
    }
    stage.pass_ms(GRACE_MS);
    assert_eq!(acquire_in_queue(node, CAROL, &carol), Answer::Granted);
}

pub(super) fn one_ticket_waits_for_several_names(stage: &Stage) {
    let node = stage.node();
    let (ballot, bob, carol) = two_wait(node);
    // Bob also waits for a free name, where Carol must not pass him.
    let both = ["y", "x"];
    let answer = reply(
        node,
        &both,
        BOB,
        acquire_with_ticket(plus(ballot, 1), TTL_MS, &bob),
    )
    .answer;
    assert_eq!(held(answer).claim, 1);
    let answer = ask(
        node,
        "y",
        CAROL,
        acquire_with_ticket(plus(ballot, 1), TTL_MS, &carol),
    );
    let behind = Answer::Behind {
        ahead: 1,
        for_ms: None,
    };
    assert_eq!(answer, behind);
    ask(node, "x", ALICE, release(ballot));
    let answer = reply(
        node,
        &both,
        BOB,
        acquire_with_ticket(plus(ballot, 1), TTL_MS, &bob),
    )
    .answer;
    assert_eq!(answer, Answer::Granted);
    let op = leave(plus(ballot, 1), ReleaseKind::Final, Some(&bob), false);
    assert_eq!(reply(node, &both, BOB, op).answer, Answer::Released);
    assert_eq!((waiting(node, "x"), waiting(node, "y")), (1, 1));
}

pub(super) fn a_release_wakes_the_head_at_once_and_the_next_after_the_grace_period(stage: &Stage) {
    let node = stage.node();
    let (bobs, carols, others) = (
        WakeListener::at(node, "b"),
        WakeListener::at(node, "c"),
        WakeListener::at(node, "b.1"),
    );
    let (ballot, bob, _) = two_wait(node);
    ask(node, "x", ALICE, release(ballot));
    assert_eq!(bobs.wait(), wake("b.1", 0));
    assert_eq!(carols.wait(), wake("c.1", GRACE_MS));
    acquire_in_queue(node, BOB, &bob);
    done(node, BOB, &bob);
    assert_eq!(carols.wait(), wake("c.1", 0));
    assert_eq!((bobs.received(), others.received()), (vec![], vec![]));
}

pub(super) fn a_cancel_of_the_head_wakes_the_next(stage: &Stage) {
    let node = stage.node();
    let carols = WakeListener::at(node, "c");
    let (ballot, bob, _) = two_wait(node);
    ask(node, "x", ALICE, release(ballot));
    assert_eq!(carols.wait(), wake("c.1", GRACE_MS));
    let cancel = leave(plus(ballot, 1), ReleaseKind::Undo, Some(&bob), false);
    assert_eq!(ask(node, "x", BOB, cancel), Answer::Gone);
    assert_eq!(carols.wait(), wake("c.1", 0));
}

/// Acquires as soon as it is woken, from within the wake.
struct RetryInWake {
    node: Arc<dyn Node>,
    op: Op,
    answer: Mutex<Option<Pending<Reply>>>,
}

impl Hear for RetryInWake {
    fn hear(&self, _: Wake) {
        self.node.listen("another", Arc::new(IgnoreWakes));
        let pending = send(&*self.node, request(&["x"], BOB, self.op.clone()), NEVER);
        *self.answer.lock().unwrap() = Some(pending);
    }
}

struct IgnoreWakes;

impl Hear for IgnoreWakes {
    fn hear(&self, _: Wake) {}
}

pub(super) fn a_woken_waiter_may_acquire_from_within_the_wake(stage: &Stage) {
    let node = stage.node();
    let (ballot, bob, _) = two_wait(node);
    let waiter = Arc::new(RetryInWake {
        node: stage.share(),
        op: acquire_with_ticket(plus(ballot, 1), TTL_MS, &bob),
        answer: Mutex::default(),
    });
    node.listen("b", Arc::clone(&waiter) as Arc<dyn Hear>);
    assert_eq!(ask(node, "x", ALICE, release(ballot)), Answer::Released);
    wait_until("the woken waiter to acquire", PATIENCE, || {
        waiter.answer.lock().unwrap().is_some()
    });
    let pending = waiter.answer.lock().unwrap().take().unwrap();
    assert_eq!(pending.wait().unwrap().answer, Answer::Granted);
}

pub(super) fn a_thousand_callers_may_wait_for_one_name(stage: &Stage) {
    let node = stage.node();
    let (ballot, bob, _) = two_wait(node);
    let tickets: Vec<Ticket> = (0..1000)
        .map(|i| ticket(bob.since_us + 2, &format!("m.{i:03}")))
        .collect();
    let all: Vec<&Ticket> = tickets.iter().collect();
    let Answer::Turns(turns) = ask(node, "x", BOB, refresh(&all)) else {
        panic!("no turns");
    };
    let ahead: Vec<u64> = turns.iter().map(|turn| turn.ahead).collect();
    assert_eq!(ahead, (2..1002).collect::<Vec<_>>());
    ask(node, "x", ALICE, release(ballot));
    assert_eq!(waiting(node, "x"), 1002);
    assert_eq!(acquire_in_queue(node, BOB, &bob), Answer::Granted);
}
