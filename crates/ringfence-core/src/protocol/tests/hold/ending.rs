//! How a hold ends: at its deadline, by `max_hold`, by proof of loss, or by a freeze of our clock.

use super::*;

#[test]
fn a_hold_is_lost_at_its_deadline_and_reports_it_once() {
    let mut life = Life::won(HoldPolicy {
        renew: false,
        ..policy()
    });
    life.now = at(0) + VALIDITY - ms(1);
    assert_eq!(life.check(), Ok(()));
    let clock = life.clock();
    assert_eq!(life.hold.remaining(clock), ms(1));
    life.now = at(0) + VALIDITY;
    // The caller notices it before any timer.
    assert_eq!(life.check(), Err(Lost::Expired));
    life.pass(at(20_000));
    assert_eq!(life.check(), Err(Lost::Expired));
    let clock = life.clock();
    assert_eq!(life.hold.remaining(clock), Duration::ZERO);
    life.drain();
    assert_eq!(life.ends(), [Lost::Expired]);
    assert_eq!(life.hold.poll_timeout(), None);
}

#[test]
fn max_hold_limits_the_deadline_of_a_renewal() {
    let mut life = Life::won(HoldPolicy {
        max_hold: Some(ms(12_000)),
        ..policy()
    });
    let renewal = life.pass(at(0) + THIRD)[0];
    life.all_answer(renewal, &Answer::Extended);
    assert_eq!(life.hold.deadline(), at(12_000));
    life.now = at(11_999);
    assert_eq!(life.check(), Ok(()));
    life.now = at(12_000);
    assert_eq!(life.check(), Err(Lost::MaxHold));
}

#[test]
fn max_hold_limits_the_deadline_of_the_grant() {
    let mut life = Life::won(HoldPolicy {
        max_hold: Some(ms(5_000)),
        ..policy()
    });
    assert_eq!(life.hold.deadline(), at(5_000));
    life.now = at(5_000);
    assert_eq!(life.check(), Err(Lost::MaxHold));
}

#[test]
fn a_lock_that_expires_before_max_hold_is_expired() {
    let mut life = Life::won(HoldPolicy {
        max_hold: Some(ms(12_000)),
        ..policy()
    });
    life.now = at(13_000);
    assert_eq!(life.check(), Err(Lost::Expired));
}

#[test]
fn proof_of_loss_ends_a_hold_before_its_deadline() {
    let mut life = Life::won(policy());
    let renewal = life.pass(at(0) + THIRD)[0];
    life.answer(renewal, 0, reply(held(None)));
    assert_eq!(life.check(), Ok(()));
    life.answer(renewal, 1, reply(Answer::Gone));
    assert_eq!(life.check(), Err(Lost::Gone));
    assert_eq!(life.ends(), [Lost::Gone]);
    life.answer(renewal, 2, reply(Answer::Extended));
    assert_eq!(life.ends(), [Lost::Gone]);
}

#[test]
fn a_failed_round_ends_nothing() {
    let mut life = Life::won(HoldPolicy {
        renew: false,
        ..policy()
    });
    life.hold.extend(TTL, life.now);
    let sent = life.drain();
    for node in 0..3 {
        life.answer(sent[0], node, unknown());
    }
    assert_eq!(life.check(), Ok(()));
    assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
    assert!(life.ends().is_empty());
}

#[test]
fn a_hold_is_lost_if_our_clock_froze_since_it_was_won() {
    let mut life = Life::won(policy());
    life.now = at(50);
    // The freeze was found before the winning round began, so that round measured time correctly.
    life.froze = Some(at(0) - Duration::from_nanos(1)).filter(|froze| *froze < at(0));
    assert_eq!(life.check(), Ok(()));
    life.froze = Some(at(0));
    assert_eq!(life.check(), Err(Lost::ClockFroze));
    life.drain();
    assert_eq!(life.ends(), [Lost::ClockFroze]);
}

/// The verdict of a round that spans a clock freeze does not count.
#[test]
fn no_round_outlives_a_freeze_of_our_clock() {
    let mut life = Life::won(policy());
    let renewal = life.pass(at(0) + THIRD)[0];
    life.froze = Some(at(3_400));
    life.all_answer(renewal, &Answer::Extended);
    assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
    assert_eq!(life.ends(), [Lost::ClockFroze]);
}

/// A receipt does not know the remaining validity, so no timer watches it. The clock check does.
#[test]
fn a_receipt_has_no_timer() {
    let hold = Hold::resume(Arc::new(policy()), 3, Kind::Exclusive, at(1));
    let mut life = Life::with(hold, at(1));
    assert_eq!(life.hold.poll_timeout(), None);
    let round = life.hold.extend(TTL, life.now);
    let sent = life.drain();
    assert_eq!(life.hold.poll_timeout(), Some(at(101)));
    life.all_answer(sent[0], &Answer::Extended);
    assert_eq!(life.hold.poll_timeout(), None);
    let deadline = at(1) + VALIDITY;
    assert_eq!(
        life.hold.verdict(round),
        Some(ExtensionVerdict::Extended { deadline })
    );
    life.now = at(1) + TTL;
    assert_eq!(life.check(), Err(Lost::Expired));
}
