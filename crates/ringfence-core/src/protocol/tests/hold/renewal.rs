//! When a hold is renewed, and what a round does to its deadline.

use super::*;

#[test]
fn a_hold_is_renewed_at_a_third_of_the_ttl_from_t0() {
    let mut life = Life::won(policy());
    assert_eq!(life.hold.poll_timeout(), Some(at(0) + THIRD));
    assert!(life.pass(at(3_333)).is_empty());
    let sent = life.pass(at(0) + THIRD);
    assert_eq!(asked(&sent), to_all(HoldAction::Extend));
    assert_eq!((sent[0].t0, sent[0].lease), (at(0) + THIRD, TTL));
    assert_eq!(sent[0].expires, at(0) + THIRD + CALL_TIMEOUT);
    assert_eq!(
        life.hold.deadline(),
        at(0) + VALIDITY,
        "nothing is confirmed yet"
    );
    // The nodes answer slowly. The deadline counts from when they were asked.
    life.now = at(3_400);
    life.answer(sent[0], 0, reply(Answer::Extended));
    assert_eq!(
        life.hold.deadline(),
        at(0) + VALIDITY,
        "one node is no majority"
    );
    life.answer(sent[0], 2, reply(Answer::Extended));
    assert_eq!(life.hold.deadline(), at(0) + THIRD + VALIDITY);
    assert_eq!(life.hold.poll_timeout(), Some(at(0) + THIRD * 2));
}

#[test]
fn a_hold_that_does_not_renew_itself_wakes_at_its_deadline_only() {
    let mut life = Life::won(HoldPolicy {
        renew: false,
        ..policy()
    });
    assert_eq!(life.hold.poll_timeout(), Some(at(0) + VALIDITY));
    assert!(life.pass(at(0) + VALIDITY).is_empty());
    assert_eq!(life.ends(), [Lost::Expired]);
}

/// If the client has no capacity, the deadline is still watched.
#[test]
fn a_renewal_waits_for_capacity() {
    let mut life = Life::won(policy());
    life.now = at(4_000);
    let clock = life.clock();
    life.hold.handle_timeout(clock, &mut life.cluster);
    assert!(life.drain().is_empty());
    assert_eq!(life.events, [HoldEvent::RenewalDue]);
    assert_eq!(life.hold.poll_timeout(), Some(at(0) + VALIDITY));
    life.now = at(5_000);
    assert!(life.hold.renew(life.clock(), Line::First));
    let sent = life.drain();
    assert_eq!(sent[0].t0, at(5_000), "t0 is read when it is sent");
    assert!(!life.hold.renew(life.clock(), Line::First), "one at a time");
    assert_eq!(life.hold.poll_timeout(), Some(at(5_100)));
}

#[test]
fn a_renewal_does_not_begin_if_it_is_no_longer_needed() {
    let mut life = Life::won(policy());
    life.now = at(4_000);
    let clock = life.clock();
    life.hold.handle_timeout(clock, &mut life.cluster);
    // The caller extends the lock meanwhile.
    life.hold.extend(TTL, life.now);
    let sent = life.drain();
    life.all_answer(sent[0], &Answer::Extended);
    assert!(!life.hold.renew(life.clock(), Line::First));
    assert_eq!(life.hold.poll_timeout(), Some(at(4_000) + THIRD));
    life.release();
    life.now = at(8_000);
    assert!(!life.hold.renew(life.clock(), Line::First));
}

#[test]
fn a_failed_round_is_retried_after_pauses_that_grow_and_then_shrink() {
    let mut life = Life::won(policy());
    let mut begun = Vec::new();
    while life.check().is_ok() {
        let next = life.hold.poll_timeout().unwrap();
        let sent = life.pass(next);
        begun.extend(sent.first().map(|one| one.t0));
    }
    let pauses: Vec<u64> = begun
        .windows(2)
        // Each round takes its whole time.
        .map(|two| (two[1] - CALL_TIMEOUT).since(two[0]).as_millis() as u64)
        .collect();
    assert_eq!(
        pauses[..10],
        [25, 50, 75, 100, 125, 150, 175, 200, 200, 200]
    );
    assert!(*pauses.last().unwrap() < 50, "{pauses:?}");
    assert!(pauses[9..].is_sorted_by(|one, other| one >= other));
    assert_eq!(life.ends(), [Lost::Expired]);
    assert_eq!(
        life.now,
        at(0) + VALIDITY,
        "failed rounds do not shorten the grant"
    );
}

#[test]
fn a_round_that_succeeds_ends_the_pauses() {
    let mut life = Life::won(policy());
    let first = life.pass(at(0) + THIRD)[0];
    life.pass(first.expires);
    assert_eq!(life.events.len(), 1);
    let HoldEvent::Concluded {
        verdict,
        renewal,
        failures,
        ..
    } = life.events[0]
    else {
        panic!("{:?}", life.events);
    };
    assert_eq!(
        (verdict, renewal, failures),
        (ExtensionVerdict::Unsure, true, 1)
    );
    let next = life.hold.poll_timeout().unwrap();
    assert_eq!(next, first.expires + ms(25));
    let again = life.pass(next)[0];
    life.all_answer(again, &Answer::Extended);
    assert_eq!(life.hold.poll_timeout(), Some(again.t0 + THIRD));
    assert!(matches!(
        life.events[..],
        [_, HoldEvent::Concluded { failures: 0, .. }, ..]
    ));
}

/// On a busy machine every round may be late.
#[test]
fn a_majority_that_confirms_after_the_timeout_still_extends() {
    let mut life = Life::won(policy());
    let late = life.pass(at(0) + THIRD)[0];
    life.pass(late.expires);
    life.answer(late, 0, reply(Answer::Extended));
    assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
    life.answer(late, 1, reply(Answer::Extended));
    assert_eq!(life.hold.deadline(), late.t0 + VALIDITY);
    assert_eq!(
        life.hold.poll_timeout(),
        Some(late.t0 + THIRD),
        "as after any round"
    );
    assert_eq!(life.events.len(), 1, "the reported verdict does not change");
}

#[test]
fn a_majority_that_confirms_after_the_deadline_does_not_revive_the_hold() {
    // No timer has run, and `check` was not called.
    for looked in [false, true] {
        let mut life = Life::won(policy());
        let late = life.pass(at(0) + THIRD)[0];
        life.pass(late.expires);
        life.answer(late, 0, reply(Answer::Extended));
        life.now = at(0) + VALIDITY;
        assert!(!looked || life.check().is_err());
        life.answer(late, 1, reply(Answer::Extended));
        assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
        assert_eq!(life.check(), Err(Lost::Expired));
        assert_eq!(life.ends(), [Lost::Expired]);
    }
}

/// The caller knows of the loss, or should.
#[test]
fn a_verdict_that_is_read_after_the_deadline_moves_nothing() {
    let mut life = Life::won(HoldPolicy {
        renew: false,
        ..policy()
    });
    life.now = at(9_890);
    let round = life.hold.extend(TTL, life.now);
    let sent = life.drain();
    life.answer(sent[0], 0, reply(Answer::Extended));
    life.now = at(0) + VALIDITY;
    life.answer(sent[0], 1, reply(Answer::Extended));
    let verdict = life.hold.verdict(round).unwrap();
    assert!(matches!(verdict, ExtensionVerdict::Extended { .. }));
    assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
    assert_eq!(life.check(), Err(Lost::Expired));
}

#[test]
fn the_deadline_never_moves_back() {
    let mut life = Life::won(policy());
    life.now = at(1_000);
    life.hold.extend(ms(500), life.now);
    let short = life.drain();
    life.all_answer(short[0], &Answer::Extended);
    assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
    life.hold.extend(TTL * 2, life.now);
    let long = life.drain();
    assert_eq!(long[0].lease, TTL * 2);
    life.all_answer(long[0], &Answer::Extended);
    assert_eq!(life.hold.deadline(), at(1_000) + ms(20_000 - 202));
}

#[test]
fn a_verdict_is_reported_once_and_kept_until_its_caller_has_read_it() {
    let mut life = Life::won(HoldPolicy {
        renew: false,
        ..policy()
    });
    let round = life.hold.extend(TTL, life.now);
    let sent = life.drain();
    assert_eq!(life.hold.timeout_of(round), Some(at(101)));
    life.all_answer(sent[0], &Answer::Extended);
    let deadline = at(1) + VALIDITY;
    let verdict = ExtensionVerdict::Extended { deadline };
    let told = HoldEvent::Concluded {
        round,
        verdict,
        renewal: false,
        failures: 0,
        awaited: true,
        silent: false,
    };
    assert_eq!(life.events, [told]);
    assert_eq!(life.hold.verdict(round), Some(verdict));
    assert_eq!(life.hold.votes_in(round), vec![Vote::Granted; 3]);
    life.hold.close_round(round);
    assert!(life.drain().is_empty());
    assert_eq!(life.hold.verdict(round), None);
    assert_eq!(life.events.len(), 1);
}

#[test]
fn nodes_that_did_not_answer_in_time_are_reported_to_the_cluster() {
    let mut life = Life::won(policy());
    let sent = life.pass(at(0) + THIRD);
    life.answer(sent[0], 0, reply(Answer::Extended));
    let before = format!("{:?}", life.cluster);
    life.pass(sent[0].expires);
    assert_ne!(format!("{:?}", life.cluster), before);
    assert_eq!(
        life.hold.votes(),
        [Vote::Granted, Vote::TimedOut, Vote::TimedOut]
    );
    life.answer(sent[0], 1, reply(Answer::Extended));
    assert_eq!(
        life.hold.votes(),
        [Vote::Granted, Vote::Granted, Vote::TimedOut]
    );
}

/// A caller that waits for the verdict gets it even if the hold has ended.
#[test]
fn an_awaited_round_ends_in_time_even_if_the_hold_has_ended() {
    let mut life = Life::won(policy());
    let round = life.hold.extend(TTL, life.now);
    life.drain();
    life.release();
    life.drain();
    assert_eq!(life.hold.poll_timeout(), Some(at(101)));
    life.pass(at(101));
    assert_eq!(life.hold.verdict(round), Some(ExtensionVerdict::Unsure));
    assert_eq!(life.hold.poll_timeout(), None);
}

/// The connections of one line may be stuck.
#[test]
fn after_a_failure_the_lines_take_turns() {
    let mut life = Life::won(policy());
    assert_eq!(life.hold.next_line(), Line::First);
    let renewal = life.pass(at(0) + THIRD)[0];
    assert_eq!(renewal.line, Line::First);
    // A node may be silent in a round that succeeds.
    life.answer(renewal, 0, reply(Answer::Extended));
    life.answer(renewal, 1, reply(Answer::Extended));
    assert!(matches!(
        life.events[..],
        [HoldEvent::Concluded { silent: false, .. }]
    ));
    let renewal = life.pass(at(0) + THIRD * 2)[0];
    life.answer(renewal, 1, unknown());
    life.pass(renewal.expires);
    let failed = life.events.last();
    assert!(matches!(
        failed,
        Some(HoldEvent::Concluded { silent: true, .. })
    ));
    assert_eq!(life.hold.next_line(), Line::Second);
    // Calls that failed at once are no silence.
    let retry = life.pass(life.hold.poll_timeout().unwrap())[0];
    for node in 0..3 {
        life.answer(retry, node, not_sent());
    }
    let failed = life.events.last();
    assert!(matches!(
        failed,
        Some(HoldEvent::Concluded { silent: false, .. })
    ));
    assert_eq!(life.hold.next_line(), Line::First);
}

#[test]
fn all_requests_of_a_round_and_its_restores_go_over_one_line() {
    let mut life = Life::won(policy());
    life.now = at(0) + THIRD;
    let clock = life.clock();
    life.hold.handle_timeout(clock, &mut life.cluster);
    life.drain();
    assert!(life.hold.renew(clock, Line::Second));
    let sent = life.drain();
    assert_eq!(asked(&sent), to_all(HoldAction::Extend));
    life.answer(sent[0], 2, reply(Answer::Gone));
    life.answer(sent[0], 0, reply(Answer::Extended));
    let restore = life.answer(sent[0], 1, reply(Answer::Extended));
    assert_eq!(asked(&restore), [(2, HoldAction::Restore)]);
    let all = sent.iter().chain(&restore);
    assert!(all.into_iter().all(|one| one.line == Line::Second));
}
