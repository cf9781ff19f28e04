//! When the lock is restored on nodes that lost it, and when not.

use super::*;

/// A hold that was extended on two nodes while the third had lost it. Returns what it then sends.
fn lost_on_node_2(life: &mut Life) -> Vec<Transmit> {
    life.hold.extend(TTL, life.now);
    let sent = life.drain();
    life.answer(sent[0], 2, reply(Answer::Gone));
    assert!(life.answer(sent[0], 0, reply(Answer::Extended)).is_empty());
    life.answer(sent[0], 1, reply(Answer::Extended))
}

#[test]
fn a_lock_is_restored_on_a_node_that_lost_it_after_the_round() {
    let mut life = Life::won(policy());
    let sent = lost_on_node_2(&mut life);
    assert_eq!(asked(&sent), [(2, HoldAction::Restore)]);
    assert_eq!((sent[0].lease, sent[0].expires), (TTL, at(1) + VALIDITY));
    let op = sent[0].op(&grant_id(), &policy().label);
    let expected = Op::Restore(Restore {
        ballot: Ballot::new(7),
        ttl_ms: 10_000,
        label: Arc::from("job"),
    });
    assert_eq!(op, expected);
    // The node counts from the next round on.
    assert_eq!(life.hold.votes()[2], Vote::Gone);
}

#[test]
fn a_lock_is_also_restored_after_a_failed_round() {
    let mut life = Life::won(policy());
    let renewal = life.pass(at(0) + THIRD)[0];
    life.answer(renewal, 1, reply(Answer::Gone));
    let sent = life.pass(renewal.expires);
    assert_eq!(asked(&sent), [(1, HoldAction::Restore)]);
    // Also on a node that answers after the end of the round.
    let sent = life.answer(renewal, 0, reply(Answer::Gone));
    assert_eq!(asked(&sent), [(0, HoldAction::Restore)]);
}

#[test]
fn nothing_is_restored_once_the_loss_is_proved() {
    let mut life = Life::won(policy());
    life.hold.extend(TTL, life.now);
    let sent = life.drain();
    for node in 0..3 {
        assert!(life.answer(sent[0], node, reply(Answer::Gone)).is_empty());
    }
    assert_eq!(life.ends(), [Lost::Gone]);
}

#[test]
fn nothing_is_restored_after_the_deadline() {
    // No timer has run, and `check` was not called.
    let mut life = Life::won(policy());
    let renewal = life.pass(at(0) + THIRD)[0];
    life.pass(renewal.expires);
    life.now = at(0) + VALIDITY - ms(1);
    assert_eq!(life.answer(renewal, 1, reply(Answer::Gone)).len(), 1);
    life.now = at(0) + VALIDITY;
    assert!(life.answer(renewal, 2, reply(Answer::Gone)).is_empty());
    assert_eq!(life.ends(), [Lost::Expired]);
}

/// The decision is made when the restore is about to be sent.
#[test]
fn nothing_is_restored_once_a_release_has_begun() {
    let mut life = Life::won(policy());
    life.hold.extend(TTL, life.now);
    let sent = life.drain();
    let clock = life.clock();
    let mut reply = |node, answer| {
        life.hold
            .handle_reply(sent[0].round, node, reply(answer), None, clock);
    };
    reply(2, Answer::Gone);
    reply(0, Answer::Extended);
    reply(1, Answer::Extended);
    let release = life.release().unwrap();
    assert!(life.drain().is_empty());
    assert_eq!(
        release.targets,
        [Target::Holds, Target::Holds, Target::Nothing]
    );
}

#[test]
fn a_release_knows_of_a_restore_whatever_was_answered() {
    let answered = reply(Answer::Restored);
    for outcome in [None, Some(answered), Some(not_sent()), Some(unknown())] {
        let mut life = Life::won(policy());
        assert_eq!(lost_on_node_2(&mut life).len(), 1);
        if let Some(outcome) = &outcome {
            life.hold.handle_restored(2, outcome);
        }
        let targets = life.release().unwrap().targets;
        assert_eq!(targets, [Target::Unknown; 3], "{outcome:?}");
    }
}

#[test]
fn nothing_is_restored_on_a_node_with_another_holder() {
    let mut life = Life::won(policy());
    life.hold.extend(TTL, life.now);
    let sent = life.drain();
    life.answer(sent[0], 0, reply(Answer::Extended));
    life.answer(sent[0], 2, reply(held(Some(5))));
    assert!(life.answer(sent[0], 1, reply(Answer::Extended)).is_empty());
}

/// A process with a receipt does not know whether the lock is still valid.
#[test]
fn a_receipt_restores_nothing() {
    let hold = Hold::resume(Arc::new(policy()), 3, Kind::Exclusive, at(1));
    let mut life = Life::with(hold, at(1));
    assert!(lost_on_node_2(&mut life).is_empty());
    assert_eq!(life.check(), Ok(()));
}

#[test]
fn a_plain_lock_is_not_restored() {
    let granted = || Some(reply(Answer::Granted));
    let won = attempt([granted(), granted(), granted()]);
    let mut life = Life::of(&won, policy(), Kind::Plain);
    assert!(lost_on_node_2(&mut life).is_empty());
    assert_eq!(life.check(), Ok(()));
}

/// A receipt does not know whether its lock is still valid, and a plain lock has no ballot.
#[test]
fn neither_a_receipt_nor_a_plain_lock_is_carried_through_a_failover() {
    let granted = || Some(reply(Answer::Granted));
    let won = attempt([granted(), granted(), granted()]);
    let of_kind = |kind| Life::of(&won, policy(), kind).hold;
    for kind in [Kind::Exclusive, Kind::Shared, Kind::Slot] {
        assert_eq!(of_kind(kind).carried_until(), Some(at(0) + VALIDITY));
        let of_receipt = Hold::resume(Arc::new(policy()), 3, kind, at(1));
        assert_eq!(of_receipt.carried_until(), None);
    }
    assert_eq!(of_kind(Kind::Plain).carried_until(), None);
}
