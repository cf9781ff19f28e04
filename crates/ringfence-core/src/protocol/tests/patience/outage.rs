//! How long a client keeps trying while no majority answers or may vote.

use super::*;

#[test]
fn half_of_an_even_number_is_no_quorum() {
    for nodes in [2, 4] {
        let mut outcomes = all(nodes, Answer::Granted);
        outcomes[..nodes / 2].fill(Some(not_sent()));
        let (_, failure) = Way::new(no_wait(nodes)).until_it_ends(&outcomes);
        assert_eq!(failure.kind, FailureKind::NoQuorum);
    }
}

// No quorum

#[test]
fn without_a_majority_it_ends_after_the_shorter_of_wait_and_no_quorum_after() {
    let waits = [(None, 15_000), (Some(60_000), 15_000), (Some(3_000), 3_000)];
    for (wait, end_ms) in waits {
        for outcome in [None, Some(not_sent()), Some(unknown())] {
            let mut way = Way::new(AcquireTerms {
                wait: wait.map(ms),
                ..terms(3)
            });
            let (attempts, failure) = way.until_it_ends(&vec![outcome; 3]);
            assert_eq!(failure.kind, FailureKind::NoQuorum);
            assert!(attempts > 3 && attempts < 100, "{attempts}");
            assert!(way.now >= at(end_ms), "{:?}", way.now);
            assert!(way.now <= at(end_ms) + CALL_TIMEOUT, "{:?}", way.now);
        }
    }
}

#[test]
fn without_a_wait_a_missing_majority_fails_after_one_round() {
    let mut way = Way::new(no_wait(3));
    let outcomes = [Some(not_sent()), None, Some(reply(Answer::Granted))];
    let (attempts, failure) = way.until_it_ends(&outcomes);
    assert_eq!((attempts, failure.kind), (1, FailureKind::NoQuorum));
    assert_eq!(way.now, at(0) + CALL_TIMEOUT);
    assert!(matches!(
        failure.votes[..],
        [Vote::Failed(_), Vote::TimedOut, Vote::Granted]
    ));
}

/// Held for 55 of 60 seconds, then the nodes die: the caller gets its answer within the wait.
#[test]
fn an_outage_late_in_the_wait_does_not_prolong_it() {
    let mut way = Way::new(terms(3));
    way.now = at(55_000);
    way.until_it_ends(&[None, None, None]);
    assert!(way.now >= at(60_000), "{:?}", way.now);
    assert!(way.now <= at(60_000) + CALL_TIMEOUT, "{:?}", way.now);
}

#[test]
fn a_majority_that_comes_back_ends_the_outage() {
    let mut way = Way::new(for_ever(3));
    for _ in 0..10 {
        way.now = way.now + ms(10_000);
        let next = way.round(&[None, None, None]);
        way.pause(next);
        let next = way.round(&all(3, held(None)));
        way.pause(next);
    }
}

#[test]
fn the_number_of_attempts_bounds_an_outage_too() {
    let mut way = Way::new(AcquireTerms {
        attempts: Some(3),
        ..for_ever(3)
    });
    let (attempts, failure) = way.until_it_ends(&vec![Some(not_sent()); 3]);
    assert_eq!((attempts, failure.kind), (3, FailureKind::NoQuorum));
}

#[test]
fn a_misconfigured_majority_fails_at_once() {
    let wrong = || Some(refused(TroubleKind::Replica));
    for outcomes in [
        [wrong(), wrong(), Some(reply(Answer::Granted))],
        [wrong(), None, wrong()],
    ] {
        let (attempts, failure) = Way::new(for_ever(3)).until_it_ends(&outcomes);
        assert_eq!((attempts, failure.kind), (1, FailureKind::Misconfigured));
    }
}

#[test]
fn a_misconfigured_minority_costs_one_vote() {
    let outcomes = [
        Some(refused(TroubleKind::Denied)),
        Some(reply(Answer::Granted)),
        Some(reply(Answer::Granted)),
    ];
    let next = Way::new(terms(3)).round(&outcomes);
    assert!(matches!(next, Next::Granted { .. }));
}

// Quarantine

#[test]
fn a_new_cluster_fails_at_once_unless_the_wait_covers_the_quarantine() {
    let left = ms(30_000);
    for (wait, waits) in [
        (Some(Duration::ZERO), false),
        (Some(ms(29_999)), false),
        (Some(ms(30_010)), true),
        // Without a limit the client waits for the end of the quarantine.
        (None, true),
    ] {
        let mut way = Way::new(AcquireTerms { wait, ..terms(3) });
        let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(left));
        if waits {
            assert_eq!(way.pause(next), ms(1_000), "polled now and then");
        } else {
            let Next::GiveUp(failure) = next else {
                panic!("{next:?}");
            };
            assert_eq!(failure.kind, FailureKind::Quarantined { left });
            assert_eq!(failure.votes, vec![Vote::Quarantined { left }; 3]);
        }
    }
}

#[test]
fn an_unlimited_wait_covers_any_quarantine_unless_attempts_are_limited() {
    let mut way = Way::new(for_ever(3));
    let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(ms(3_600_000)));
    assert_eq!(way.pause(next), ms(1_000));
    let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(ms(700)));
    assert_eq!(way.pause(next), ms(701));
    let mut way = Way::new(AcquireTerms {
        attempts: Some(3),
        ..for_ever(3)
    });
    let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(ms(30_000)));
    assert!(matches!(next, Next::GiveUp(_)), "{next:?}");
}

/// Two of five nodes are dead and three are new. That is not an outage, although only three
/// answered.
#[test]
fn a_new_cluster_is_not_reported_as_an_outage() {
    let mut way = Way::new(no_wait(5));
    let mut outcomes = all(5, Answer::Granted);
    outcomes[..2].fill(Some(not_sent()));
    let next = way.round_in_quarantine(&outcomes, Some(ms(9_000)));
    let Next::GiveUp(failure) = next else {
        panic!("{next:?}");
    };
    assert_eq!(failure.kind, FailureKind::Quarantined { left: ms(9_000) });
}
