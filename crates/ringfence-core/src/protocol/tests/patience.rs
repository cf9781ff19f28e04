//! How long a client goes on, and with what it ends: somebody holds, nobody answers, too young.

use proptest::prelude::*;

use super::acquisition::*;
use super::*;

// Held

#[test]
fn after_held_it_goes_on_when_the_lease_ends() {
    let mut way = Way::new(terms(3));
    let outcomes = [Some(3), Some(1), None].map(|for_ms| Some(says(held(for_ms))));
    let next = way.round(&outcomes);
    // One more millisecond: a key still stands in its last.
    assert_eq!(way.pause(next), ms(2));
}

#[test]
fn after_held_it_polls_with_growing_jittered_pauses_longer_than_a_round() {
    let mut way = Way::new(for_ever(3));
    let mut pauses = Vec::new();
    for n in 0..12 {
        let next = way.round(&all(3, held(None)));
        let pause = way.pause(next);
        let most = (ms(4) * (1 << n)).min(ms(200));
        assert!((most / 2..most).contains(&pause), "{n}: {pause:?}");
        assert!(pause >= ROUND);
        way.now = way.now + pause;
        pauses.push(pause);
    }
    pauses.dedup();
    assert_eq!(pauses.len(), 12, "jitter differs");
}

/// A round that took 100 ms because of a silent node: pauses are longer than that.
#[test]
fn a_pause_is_longer_than_the_slowest_round() {
    let mut way = Way::new(for_ever(3));
    let outcomes = [Some(says(Answer::Granted)), Some(says(held(None))), None];
    let next = way.round(&outcomes);
    let pause = way.pause(next);
    assert_eq!(way.now, at(100));
    assert!(
        pause >= CALL_TIMEOUT && pause < CALL_TIMEOUT * 2,
        "{pause:?}"
    );
}

#[test]
fn a_held_lock_is_waited_for_until_the_wait_is_over() {
    for for_ms in [None, Some(5), Some(3_600_000)] {
        let mut way = Way::new(terms(3));
        let (attempts, failure) = way.until_it_ends(&all(3, held(for_ms)));
        assert_eq!(failure.kind, FailureKind::Held);
        assert!(attempts > 100);
        assert_eq!(
            way.now,
            at(0) + WAIT + ROUND,
            "the last attempt is at the very end"
        );
    }
}

#[test]
fn a_last_round_that_is_cut_short_does_not_make_an_outage_of_a_held_lock() {
    let mut way = Way::new(terms(3));
    way.round(&all(3, held(None)));
    way.now = at(0) + WAIT;
    let next = way.round(&[None, None, None]);
    assert!(
        matches!(&next, Next::GiveUp(failure) if failure.kind == FailureKind::Held
            && matches!(failure.votes[0], Vote::Held(_))),
        "{next:?}"
    );
    // Two silent rounds in a row are one.
    let mut way = Way::new(terms(3));
    way.round(&all(3, held(None)));
    way.round(&[None, None, None]);
    way.now = at(0) + WAIT;
    let next = way.round(&[None, None, None]);
    assert!(
        matches!(&next, Next::GiveUp(failure) if failure.kind == FailureKind::NoQuorum),
        "{next:?}"
    );
}

/// A node finds the place too old, another takes it, and the third does not answer. A place that was
/// taken once the caller was woken again stood behind its own predecessor, and every undo woke it
/// anew: thirty thousand attempts, until the lease of the old one was over.
#[test]
fn a_place_that_was_taken_somewhere_is_kept_in_the_end() {
    let mut way = Way::new(for_ever(3));
    way.acquisition = Acquisition::new(for_ever(3), at(0), 1).in_line("c.1".into(), Line::Unknown);
    let outcomes = [says(Answer::TicketOld), says(held(None)), not_sent()].map(Some);
    let mut places = Vec::new();
    for _ in 0..30 {
        way.round(&outcomes);
        places.extend(way.begin().place().cloned());
    }
    let kept = &places[12..];
    assert!(kept.iter().all(|place| !place.first), "{places:?}");
    let times = kept.iter().map(|place| place.since_us);
    assert!(
        times.clone().all(|time| Some(time) == times.clone().next()),
        "{places:?}"
    );
}

#[test]
fn whoever_knows_of_others_shows_its_place_at_once() {
    let mut way = Way::new(for_ever(3));
    for (line, shows) in [(Line::Unknown, false), (Line::Awaited, true)] {
        way.acquisition = Acquisition::new(for_ever(3), at(0), 1).in_line("c.1".into(), line);
        assert_eq!(way.begin().place().is_some(), shows, "{line:?}");
        way.round(&all(3, held(None)));
        assert!(way.begin().place().is_some(), "{line:?}");
    }
}

#[test]
fn a_place_is_given_up_after_two_rounds_without_a_majority() {
    let mut way = Way::new(for_ever(3));
    let acquisition = Acquisition::new(for_ever(3), at(0), 1);
    way.acquisition = acquisition.in_line("c.1".into(), Line::Unknown);
    way.round(&all(3, held(None)));
    way.round(&all(3, held(None)));
    for kept in [true, false, false] {
        let next = way.round(&[Some(says(held(None))), None, None]);
        assert!(
            matches!(next, Next::Retry { stays, .. } if stays == kept),
            "{next:?}"
        );
        way.now = way.now + way.pause(next);
    }
}

#[test]
fn a_held_lock_without_a_bound_is_waited_for() {
    let mut way = Way::new(for_ever(3));
    for _ in 0..1_000 {
        let next = way.round(&all(3, held(None)));
        way.now = way.now + way.pause(next);
    }
    assert!(way.now > at(90_000));
}

#[test]
fn the_number_of_attempts_bounds_the_wait() {
    for most in 1..=4 {
        let mut way = Way::new(Terms {
            attempts: Some(most),
            ..for_ever(3)
        });
        let (attempts, failure) = way.until_it_ends(&all(3, held(None)));
        assert_eq!((attempts, failure.kind), (most, FailureKind::Held));
    }
}

#[test]
fn without_a_wait_a_held_lock_is_tried_once() {
    for nodes in 1..=5 {
        let mut way = Way::new(no_wait(nodes));
        let (attempts, failure) = way.until_it_ends(&all(nodes, held(Some(1))));
        assert_eq!((attempts, failure.kind), (1, FailureKind::Held));
        assert_eq!(failure.votes.len(), nodes);
        assert_eq!(way.now, at(0) + ROUND);
    }
}

#[test]
fn without_a_wait_a_stale_ballot_is_mended() {
    let mut way = Way::new(no_wait(3));
    let next = way.round(&all(3, Answer::Stale));
    assert_eq!(way.pause(next), Duration::ZERO);
    let next = way.round(&all(3, Answer::Granted));
    assert!(matches!(next, Next::Granted { .. }));
}

/// Half for us, half for a rival, again and again.
#[test]
fn ties_end() {
    for nodes in [2, 4] {
        let mut outcomes = all(nodes, Answer::Granted);
        outcomes[..nodes / 2].fill(Some(says(held(None))));
        let (attempts, failure) = Way::new(no_wait(nodes)).until_it_ends(&outcomes);
        assert_eq!((attempts, failure.kind), (1, FailureKind::Held));
        let mut way = Way::new(terms(nodes));
        let (_, failure) = way.until_it_ends(&outcomes);
        assert_eq!(failure.kind, FailureKind::Held);
    }
}

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
            let mut way = Way::new(Terms {
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
fn without_a_wait_a_missing_majority_is_told_after_one_round() {
    let mut way = Way::new(no_wait(3));
    let outcomes = [Some(not_sent()), None, Some(says(Answer::Granted))];
    let (attempts, failure) = way.until_it_ends(&outcomes);
    assert_eq!((attempts, failure.kind), (1, FailureKind::NoQuorum));
    assert_eq!(way.now, at(0) + CALL_TIMEOUT);
    assert!(matches!(
        failure.votes[..],
        [Vote::Failed(_), Vote::Silent, Vote::Granted]
    ));
}

/// Held for 55 of 60 seconds, then the nodes die: the caller is told within its wait.
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
    let mut way = Way::new(Terms {
        attempts: Some(3),
        ..for_ever(3)
    });
    let (attempts, failure) = way.until_it_ends(&vec![Some(not_sent()); 3]);
    assert_eq!((attempts, failure.kind), (3, FailureKind::NoQuorum));
}

#[test]
fn a_misconfigured_majority_is_told_at_once() {
    let wrong = || Some(refused(TroubleKind::Replica));
    for outcomes in [
        [wrong(), wrong(), Some(says(Answer::Granted))],
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
        Some(says(Answer::Granted)),
        Some(says(Answer::Granted)),
    ];
    let next = Way::new(terms(3)).round(&outcomes);
    assert!(matches!(next, Next::Granted { .. }));
}

// Quarantine

#[test]
fn a_new_cluster_is_told_at_once_unless_the_wait_covers_it() {
    let left = ms(30_000);
    for (wait, waits) in [
        (Some(Duration::ZERO), false),
        (Some(ms(29_999)), false),
        (Some(ms(30_010)), true),
        // Without a limit it is waited for as long as it takes.
        (None, true),
    ] {
        let mut way = Way::new(Terms { wait, ..terms(3) });
        let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(left));
        if waits {
            assert_eq!(way.pause(next), ms(1_000), "looked at now and then");
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
fn an_unbounded_wait_covers_any_quarantine_but_a_number_of_attempts_is_a_bound() {
    let mut way = Way::new(for_ever(3));
    let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(ms(3_600_000)));
    assert_eq!(way.pause(next), ms(1_000));
    let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(ms(700)));
    assert_eq!(way.pause(next), ms(701));
    let mut way = Way::new(Terms {
        attempts: Some(3),
        ..for_ever(3)
    });
    let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(ms(30_000)));
    assert!(matches!(next, Next::GiveUp(_)), "{next:?}");
}

/// Two of five dead, three new: not an outage, although fewer than three answered.
#[test]
fn a_new_cluster_is_told_from_an_outage() {
    let mut way = Way::new(no_wait(5));
    let mut outcomes = all(5, Answer::Granted);
    outcomes[..2].fill(Some(not_sent()));
    let next = way.round_in_quarantine(&outcomes, Some(ms(9_000)));
    let Next::GiveUp(failure) = next else {
        panic!("{next:?}");
    };
    assert_eq!(failure.kind, FailureKind::Quarantined { left: ms(9_000) });
}

// Rounds

#[test]
fn a_round_does_not_outlast_the_wait() {
    for (now, timeout) in [
        (0, 100),
        (59_950, 60_000),
        (59_990, 60_010),
        (60_000, 60_020),
    ] {
        let mut way = Way::new(terms(3));
        way.now = at(now);
        assert_eq!(way.begin().poll_timeout(), Some(at(timeout)));
    }
    assert_eq!(Way::new(no_wait(3)).begin().poll_timeout(), Some(at(100)));
}

#[test]
fn a_node_that_was_silent_is_a_suspect_in_the_next_attempt() {
    let mut way = Way::new(for_ever(3));
    way.cluster.silent(2);
    let mut attempt = way.begin();
    attempt.handle_reply(0, says(held(None)), None, at(1));
    attempt.handle_reply(1, says(Answer::Granted), None, at(1));
    assert_eq!(attempt.verdict(), Some(Verdict::Lost(Loss::Held)));
}

// Whatever happens

/// What a node may do in a round.
fn any_outcome() -> impl Strategy<Value = Option<Outcome>> {
    prop_oneof![
        Just(None),
        Just(Some(not_sent())),
        Just(Some(unknown())),
        Just(Some(refused(TroubleKind::Loading))),
        Just(Some(says(Answer::Stale))),
        Just(Some(says(Answer::Ahead))),
        Just(Some(says(Answer::Granted))),
        prop::option::of(0u64..100_000).prop_map(|for_ms| Some(says(held(for_ms)))),
    ]
}

fn any_run() -> impl Strategy<Value = (usize, Vec<Vec<Option<Outcome>>>)> {
    (1usize..=5).prop_flat_map(|nodes| {
        let round = prop::collection::vec(any_outcome(), nodes);
        (Just(nodes), prop::collection::vec(round, 1..12))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// The same seed and the same answers: the same run, to the nanosecond.
    #[test]
    fn the_same_seed_gives_the_same_run((nodes, rounds) in any_run(), seed: u64) {
        let run = || {
            let mut way = Way::seeded(terms(nodes), seed);
            let mut nexts = Vec::new();
            for outcomes in &rounds {
                let next = way.round(outcomes);
                if let Next::Retry { at, .. } = next {
                    way.now = at;
                }
                nexts.push(next);
            }
            nexts
        };
        prop_assert_eq!(run(), run());
    }

    /// However the nodes come and go, a bounded wait ends about when it is over, no retry lies in
    /// the past, and no grant has too little left.
    #[test]
    fn a_bounded_wait_ends_in_time((nodes, rounds) in any_run(), seed: u64, wait in 0u64..5_000) {
        let mut way = Way::seeded(Terms { wait: Some(ms(wait)), ..terms(nodes) }, seed);
        let mut ended = false;
        for outcomes in rounds.iter().cycle().take(5_000) {
            match way.round(outcomes) {
                Next::Retry { at, .. } => {
                    prop_assert!(at >= way.now);
                    way.now = at;
                }
                Next::Granted { deadline } => {
                    prop_assert!(deadline >= way.now + MIN_VALIDITY);
                    ended = true;
                }
                Next::GiveUp(failure) => {
                    prop_assert_eq!(failure.votes.len(), nodes);
                    ended = true;
                }
            }
            if ended {
                break;
            }
        }
        prop_assert!(ended, "still trying at {:?}", way.now);
        // Nine stale rounds at the most, each as long as a call may take, with as long a pause.
        prop_assert!(way.now <= at(wait) + CALL_TIMEOUT * 20, "{:?}", way.now);
    }
}

// Wakes

/// A way on which a caller waits in line, shown to the nodes.
fn in_line() -> Way {
    let mut way = Way::new(for_ever(3));
    let acquisition = Acquisition::new(for_ever(3), at(0), 1);
    way.acquisition = acquisition.in_line("c.1".into(), Line::Awaited);
    way
}

/// When a wake may bring the next attempt forward.
fn wake_at(next: &Next) -> Timestamp {
    match next {
        Next::Retry { at, wake_at, .. } => {
            assert!(wake_at <= at, "{next:?}: a poll is never put off by a wake");
            *wake_at
        }
        other => panic!("{other:?}"),
    }
}

/// A node that pushes wakes without end, while another holds: one waiter sends a few attempts a
/// second, not as many as the nodes can answer.
#[test]
fn wakes_that_bring_nothing_bring_fewer_and_fewer_attempts() {
    let mut way = in_line();
    let began = way.now;
    let mut pauses = Vec::new();
    while way.now.since(began) < ms(10_000) {
        let next = way.round(&all(3, held(Some(3_600_000))));
        let at = wake_at(&next);
        pauses.push(at.since(way.now));
        way.now = at;
        way.acquisition.woken_for(None);
    }
    // The first was no wake's, and the first that is may have come a moment too early.
    assert_eq!(pauses[..2], [Duration::ZERO; 2]);
    assert!(
        pauses[2] > Duration::ZERO && pauses[2] <= ms(2),
        "{pauses:?}"
    );
    assert!(pauses.iter().all(|pause| *pause <= ms(100)), "{pauses:?}");
    assert!(
        pauses[9..].iter().all(|pause| *pause >= ms(50)),
        "{pauses:?}"
    );
    assert!(
        pauses.len() < 220,
        "{} attempts in ten seconds",
        pauses.len()
    );
}

/// After a storm, too: what matters is how long ago the last fruitless attempt was.
#[test]
fn a_wake_that_comes_later_than_the_pause_is_followed_at_once() {
    let mut way = in_line();
    for _ in 0..20 {
        let next = way.round(&all(3, held(Some(3_600_000))));
        way.now = wake_at(&next);
        way.acquisition.woken_for(None);
    }
    let next = way.round(&all(3, held(Some(3_600_000))));
    let earliest = wake_at(&next);
    assert!(earliest <= way.now + ms(100));
    // A second later the storm is forgotten.
    way.now = way.now + ms(1_000);
    way.acquisition.woken_for(None);
    let next = way.round(&all(3, held(Some(3_600_000))));
    assert_eq!(wake_at(&next), way.now);
}

/// Attempts of its own accord are no reason to distrust the next wake.
#[test]
fn polls_do_not_put_off_a_wake() {
    let mut way = in_line();
    for _ in 0..20 {
        let next = way.round(&all(3, held(Some(5))));
        assert_eq!(wake_at(&next), way.now);
        way.now = way.now + way.pause(next);
    }
}

/// Without a majority, and where ballots are refused, wakes are as fruitless.
#[test]
fn no_storm_of_wakes_where_no_majority_can_be_had() {
    let skewed = [
        Some(says(Answer::Granted)),
        Some(says(Answer::Granted)),
        Some(says(Answer::Ahead)),
        None,
    ];
    let mut way = Way::new(for_ever(4));
    let acquisition = Acquisition::new(for_ever(4), at(0), 1);
    way.acquisition = acquisition.in_line("c.1".into(), Line::Awaited);
    let began = way.now;
    let mut attempts = 0;
    while way.now.since(began) < ms(10_000) {
        let mut attempt = way.begin();
        for (node, outcome) in skewed.iter().enumerate() {
            match outcome {
                Some(outcome) => attempt.handle_reply(node, outcome.clone(), None, way.now),
                // In quarantine: it answers, and does not count.
                None => {
                    let granted = says(Answer::Granted);
                    attempt.handle_reply(node, granted, Some(young(ms(35_000))), way.now);
                }
            }
        }
        way.now = way.now + ROUND;
        let next = way.acquisition.conclude(&attempt, &way.cluster, way.now);
        attempts += 1;
        if let Next::Retry { at, wake_at, .. } = next {
            let woken = wake_at < at;
            way.now = wake_at.min(at);
            if woken {
                way.acquisition.woken_for(None);
            }
        } else {
            panic!("{next:?}");
        }
    }
    assert!(attempts < 700, "{attempts} attempts in ten seconds");
}
