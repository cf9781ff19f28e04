//! A semaphore's slots: how votes for them are counted, which one is asked for next, and why
//! permits are not only counted.

mod acquisition;

use super::super::attempt::Timing;
use super::*;
use crate::message::{Acquire, AcquireSlot, Permit, Release, ReleaseSlot, Slots};

const PERMITS: u32 = 2;

/// A node that only counts how many clients it admitted, as many semaphores do.
#[derive(Debug, Clone, Copy, Default)]
struct Counter(u32);

impl Counter {
    fn acquire(&mut self) -> bool {
        let free = self.0 < PERMITS;
        self.0 += u32::from(free);
        free
    }
}

/// Five nodes with two permits each, and three clients that reach three nodes each. No node admits
/// more than two clients, but every client has a majority, so three are admitted.
const REACHED: [[usize; 3]; 3] = [[0, 1, 2], [2, 3, 4], [0, 1, 3]];

#[test]
fn counting_permits_on_each_node_would_admit_three_clients_to_two_permits() {
    let mut nodes = [Counter::default(); 5];
    let inside = REACHED.iter().filter(|reached| {
        let granted = reached.iter().filter(|node| nodes[**node].acquire());
        granted.count() >= quorum(5)
    });
    assert_eq!(inside.count(), 3, "with two permits");
    assert!(nodes.iter().all(|node| node.0 <= PERMITS));
}

#[test]
fn with_slots_two_of_the_same_three_clients_are_admitted() {
    let mut nodes = vec![Semaphore::default(); 5];
    let mut inside = Vec::new();
    for (client, reached) in (1..).zip(REACHED) {
        let mut attempt = attempt(Asked::Any, client);
        for (node, server) in nodes.iter_mut().enumerate() {
            let outcome = match reached.contains(&node) {
                true => server.ask(&attempt),
                false => unknown(),
            };
            attempt.handle_reply(node, outcome, None, at(1));
        }
        if let Some(AttemptVerdict::Won { .. }) = attempt.verdict() {
            inside.push(attempt.slot());
        }
    }
    assert_eq!(
        inside,
        [Some(0), Some(1)],
        "the third has no majority for any slot"
    );
}

/// Whichever nodes each client reaches, in whatever order: no slot has two holders.
#[test]
fn no_two_of_any_four_clients_win_the_same_slot() {
    let reach: Vec<[usize; 3]> = (0..5usize)
        .flat_map(|a| (a + 1..5).flat_map(move |b| (b + 1..5).map(move |c| [a, b, c])))
        .collect();
    for (index, reaches) in words(&reach, 4) {
        let mut nodes = vec![Semaphore::default(); 5];
        let mut won = Vec::new();
        // All ask before any reply arrives, each node in another order.
        let mut attempts: Vec<Attempt> = (1..=4).map(|who| attempt(Asked::Any, who)).collect();
        for (node, server) in nodes.iter_mut().enumerate() {
            for turn in 0..4 {
                let client = (turn + node * (index % 4)) % 4;
                let outcome = match reaches[client].contains(&node) {
                    true => server.ask(&attempts[client]),
                    false => unknown(),
                };
                attempts[client].handle_reply(node, outcome, None, at(1));
            }
        }
        for attempt in &attempts {
            if let Some(AttemptVerdict::Won { .. }) = attempt.verdict() {
                won.push(attempt.slot().unwrap());
            }
        }
        let winners = won.len();
        won.sort_unstable();
        won.dedup();
        assert_eq!(won.len(), winners, "{reaches:?}");
        assert!(winners <= PERMITS as usize);
    }
}

/// One node's ledger of a semaphore with two slots.
#[derive(Debug, Clone)]
struct Semaphore {
    entries: Vec<Entry>,
}

impl Default for Semaphore {
    fn default() -> Self {
        Self {
            entries: vec![Entry::default(); PERMITS as usize + 1],
        }
    }
}

impl Semaphore {
    fn ask(&mut self, attempt: &Attempt) -> Outcome {
        let slot = match attempt.asked() {
            Some(Asked::Slot(slot)) => Some(slot),
            _ => None,
        };
        self.carry_out(
            attempt.token(),
            Op::AcquireSlot(AcquireSlot {
                slot,
                acquire: Acquire {
                    ballot: attempt.ballot(),
                    ttl_ms: TTL.as_millis() as u64,
                    label: Arc::from("job"),
                    ticket: None,
                    not_after_us: None,
                },
            }),
        )
    }

    fn carry_out(&mut self, token: &Token, op: Op) -> Outcome {
        let name = Name::new("", "s").unwrap();
        let names =
            std::iter::once(name.admission()).chain((0..PERMITS).map(|slot| name.slot(slot)));
        let claims = names.map(|name| Claim {
            name,
            mode: Mode::Exclusive,
        });
        let request = Request {
            claims: claims.collect(),
            token: token.clone(),
            op,
        };
        let rules = Rules {
            window_us: WINDOW_US,
            retention_ms: 60_000,
            grace_ms: 1_500,
            grants_from_us: 0,
        };
        let moment = Moment::of_clock(START_US);
        let outcome = apply(&rules, moment, &mut self.entries, &request);
        Ok(Reply {
            stamp: Some(outcome.stamp),
            standing: Standing::default(),
            answer: outcome.answer,
        })
    }
}

fn attempt(asked: Asked, who: u64) -> Attempt {
    attempt_at(asked, who, None)
}

fn attempt_at(asked: Asked, who: u64, ticket: Option<crate::message::Ticket>) -> Attempt {
    let timing = Timing {
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        timeout: at(100),
        reply_by: None,
    };
    let ballot = Ballot::new(START_US + who);
    let suspects = std::iter::repeat_n(false, 5);
    Attempt::new(token(who), ballot, ticket, at(0), timing, suspects)
        .asking(Kind::Slot, Some(asked))
}

/// A node's reply: the slot that it is about, the free slots, and how many waiters are ahead.
fn permit(answer: Answer, slot: u32, free: &[u32], ahead: u64) -> Outcome {
    reply(Answer::Permit(Permit {
        answer: Box::new(answer),
        slot: Some(slot),
        free: free.to_vec(),
        ahead,
        most: 3,
    }))
}

fn feed(asked: Asked, outcomes: [Outcome; 5]) -> Attempt {
    let mut attempt = attempt(asked, 1);
    for (node, outcome) in outcomes.into_iter().enumerate() {
        attempt.handle_reply(node, outcome, None, at(1));
    }
    attempt
}

#[test]
fn votes_for_different_slots_do_not_add_up() {
    let yes = |slot| permit(Answer::Granted, slot, &[0, 1, 2], 0);
    let split = feed(Asked::Any, [yes(0), yes(1), yes(2), yes(1), yes(0)]);
    assert_eq!(split.verdict(), Some(AttemptVerdict::Lost(Loss::Stale)));
    assert_eq!(split.remains(), [Target::Holds; 5]);
    let won = feed(Asked::Any, [yes(0), yes(1), yes(1), yes(2), yes(1)]);
    assert!(matches!(won.verdict(), Some(AttemptVerdict::Won { .. })));
    assert_eq!(won.slot(), Some(1));
    let (astray, nothing) = (Target::Holds, Target::Nothing);
    assert_eq!(
        won.surplus_slots(),
        [astray, nothing, nothing, astray, nothing]
    );
    let of_won = [nothing, astray, astray, nothing, astray];
    let remains = won.remains_of_won().map(|(target, _)| target);
    assert_eq!(remains.collect::<Vec<_>>(), of_won);
}

#[test]
fn a_grant_of_another_slot_than_the_wanted_one_does_not_count() {
    let yes = |slot| permit(Answer::Granted, slot, &[0, 1], 0);
    let attempt = feed(Asked::Slot(0), [yes(0), yes(1), yes(1), yes(1), yes(0)]);
    assert!(matches!(attempt.verdict(), Some(AttemptVerdict::Lost(_))));
}

#[test]
fn a_quarantined_node_s_slot_does_not_count() {
    let mut attempt = attempt(Asked::Any, 1);
    for node in 0..5 {
        let quarantine = (node > 1).then_some(ms(5_000));
        let yes = permit(Answer::Granted, 0, &[0], 0);
        attempt.handle_reply(node, yes, quarantine.map(quarantined), at(1));
    }
    assert_eq!(
        attempt.verdict(),
        Some(AttemptVerdict::Lost(Loss::NoQuorum))
    );
    assert_eq!(attempt.remains(), [Target::Holds; 5], "but it is released");
}

#[test]
fn a_node_that_has_not_answered_may_have_granted_any_slot() {
    let mut attempt = attempt(Asked::Any, 1);
    for node in 0..3 {
        attempt.handle_reply(node, permit(Answer::Granted, 2, &[2], 0), None, at(1));
    }
    assert!(matches!(
        attempt.verdict(),
        Some(AttemptVerdict::Won { .. })
    ));
    let (nothing, unknown) = (Target::Nothing, Target::Unknown);
    assert_eq!(
        attempt.surplus_slots(),
        [nothing, nothing, nothing, unknown, unknown]
    );
    attempt.handle_reply(3, permit(Answer::Granted, 2, &[2], 0), None, at(2));
    attempt.handle_reply(4, permit(Answer::Granted, 0, &[0], 0), None, at(2));
    assert_eq!(attempt.surplus_slots()[3..], [nothing, Target::Holds]);
    assert_eq!(attempt.slot(), Some(2), "late votes change nothing");
}

#[test]
fn after_a_loss_the_next_slot_is_free_on_a_majority_and_skips_the_waiters_ahead() {
    let no = |free: &[u32], ahead| permit(held(Some(500)), 0, free, ahead);
    // Slot 1 is free on three nodes only, slot 0 on two, slot 2 on four.
    let free = |ahead| {
        [
            no(&[0, 1, 2], ahead),
            no(&[0, 2], ahead),
            no(&[1, 2], ahead),
            no(&[1], ahead),
            no(&[2], ahead),
        ]
    };
    assert_eq!(feed(Asked::Slot(0), free(0)).next_slot(), Some(1));
    assert_eq!(feed(Asked::Slot(0), free(1)).next_slot(), Some(2));
    assert_eq!(
        feed(Asked::Slot(0), free(2)).next_slot(),
        None,
        "not our turn"
    );
    // A slot that some nodes granted to us is the best choice.
    let mut some = free(0);
    some[2] = permit(Answer::Granted, 2, &[1, 2], 0);
    assert_eq!(feed(Asked::Any, some).next_slot(), Some(2));
    // Too few answers decide nothing.
    let few = [no(&[0], 0), no(&[0], 0), unknown(), unknown(), not_sent()];
    assert_eq!(feed(Asked::Any, few).next_slot(), None);
}

#[test]
fn a_winner_leaves_the_queues_that_still_have_its_ticket() {
    let ticket = crate::message::Ticket {
        since_us: START_US,
        id: Arc::from("c.1"),
        first: true,
        label: Arc::from("waiter"),
    };
    let yes = || permit(Answer::Granted, 0, &[0], 0);
    let no = || permit(held(None), 0, &[], 0);
    let outcomes = || [yes(), yes(), no(), yes()];
    let (nothing, holds) = (Target::Nothing, Target::Holds);
    for (asked, silent) in [(Asked::Slot(0), holds), (Asked::Any, Target::Unknown)] {
        let mut waiting = attempt_at(asked, 1, Some(ticket.clone()));
        let mut passing = attempt_at(asked, 1, None);
        for (node, (one, other)) in outcomes().into_iter().zip(outcomes()).enumerate() {
            waiting.handle_reply(node, one, None, at(1));
            passing.handle_reply(node, other, None, at(1));
        }
        assert_eq!(
            waiting.surplus_slots(),
            [nothing, nothing, holds, nothing, silent]
        );
        assert_eq!(passing.surplus_slots()[..4], [nothing; 4]);
    }
}

/// The undo of an attempt for any slot, and the late arrival of the attempt, on one node.
#[test]
fn an_attempt_that_arrives_after_its_undo_takes_no_slot() {
    let mut node = Semaphore::default();
    let attempt = attempt(Asked::Any, 1);
    let undo = Op::ReleaseSlot(ReleaseSlot {
        slots: Slots::All,
        release: Release {
            ballot: attempt.ballot(),
            kind: ReleaseKind::Undo,
            fate_unknown: true,
            ticket: None,
            stays: false,
            keep_ms: None,
            delay_ms: 0,
        },
    });
    node.carry_out(attempt.token(), undo).unwrap();
    let Answer::Permit(late) = node.ask(&attempt).unwrap().answer else {
        panic!("unexpected answer");
    };
    assert_eq!(*late.answer, Answer::Stale);
    assert!(node.entries.iter().skip(1).all(|slot| slot.key.is_none()));
}
