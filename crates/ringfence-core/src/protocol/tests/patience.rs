//! How long a client keeps trying, and how it ends: the lock is held, no majority answers, or the
//! nodes are in quarantine.

mod outage;
mod wakes;

use proptest::prelude::*;

use super::acquisition::*;
use super::*;

// Held

#[test]
fn after_held_it_retries_when_the_lease_ends() {
    let mut way = Way::new(terms(3));
    let outcomes = [Some(3), Some(1), None].map(|for_ms| Some(reply(held(for_ms))));
    let next = way.round(&outcomes);
    // One more millisecond, because a key still exists in its last one.
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

/// A round took 100 ms because a node did not answer: pauses are longer than that.
#[test]
fn a_pause_is_longer_than_the_slowest_round() {
    let mut way = Way::new(for_ever(3));
    let outcomes = [Some(reply(Answer::Granted)), Some(reply(held(None))), None];
    let next = way.round(&outcomes);
    let pause = way.pause(next);
    assert_eq!(way.now, at(100));
    assert!(
        pause >= CALL_TIMEOUT && pause < CALL_TIMEOUT * 2,
        "{pause:?}"
    );
}

#[test]
fn a_held_lock_is_awaited_until_the_wait_is_over() {
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
fn a_last_round_that_is_cut_short_does_not_turn_a_held_lock_into_an_outage() {
    let mut way = Way::new(terms(3));
    way.round(&all(3, held(None)));
    way.now = at(0) + WAIT;
    let next = way.round(&[None, None, None]);
    assert!(
        matches!(&next, Next::GiveUp(failure) if failure.kind == FailureKind::Held
            && matches!(failure.votes[0], Vote::Held(_))),
        "{next:?}"
    );
    // Two rounds in a row without a majority are an outage.
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

/// One node finds the ticket too old, another accepts it, and the third does not answer. A caller
/// that took a new ticket after each wake was behind its own earlier ticket, and every undo woke it
/// again: thirty thousand attempts, until the lease of the old ticket ended.
#[test]
fn a_ticket_that_some_node_accepted_is_kept_in_the_end() {
    let mut way = Way::new(for_ever(3));
    way.acquisition = Acquisition::new(for_ever(3), at(0), 1)
        .in_queue(QueueHint::Unknown)
        .with_ticket("c.1".into(), "job".into());
    let outcomes = [reply(Answer::TicketOld), reply(held(None)), not_sent()].map(Some);
    let mut tickets = Vec::new();
    for _ in 0..30 {
        way.round(&outcomes);
        tickets.extend(way.begin().ticket().cloned());
    }
    let kept = &tickets[12..];
    assert!(kept.iter().all(|ticket| !ticket.first), "{tickets:?}");
    let times = kept.iter().map(|ticket| ticket.since_us);
    assert!(
        times.clone().all(|time| Some(time) == times.clone().next()),
        "{tickets:?}"
    );
}

#[test]
fn a_caller_that_knows_of_others_sends_its_ticket_at_once() {
    let mut way = Way::new(for_ever(3));
    for (line, shows) in [(QueueHint::Unknown, false), (QueueHint::Awaited, true)] {
        way.acquisition = Acquisition::new(for_ever(3), at(0), 1)
            .in_queue(line)
            .with_ticket("c.1".into(), "job".into());
        assert_eq!(way.begin().ticket().is_some(), shows, "{line:?}");
        way.round(&all(3, held(None)));
        assert!(way.begin().ticket().is_some(), "{line:?}");
    }
}

#[test]
fn a_ticket_is_given_up_after_two_rounds_without_a_majority() {
    let mut way = Way::new(for_ever(3));
    let acquisition = Acquisition::new(for_ever(3), at(0), 1);
    way.acquisition = acquisition
        .in_queue(QueueHint::Unknown)
        .with_ticket("c.1".into(), "job".into());
    way.round(&all(3, held(None)));
    way.round(&all(3, held(None)));
    for kept in [true, false, false] {
        let next = way.round(&[Some(reply(held(None))), None, None]);
        assert!(
            matches!(next, Next::Retry { stays, .. } if stays == kept),
            "{next:?}"
        );
        way.now = way.now + way.pause(next);
    }
}

#[test]
fn a_held_lock_is_awaited_without_limit() {
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
        let mut way = Way::new(AcquireTerms {
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
fn without_a_wait_a_stale_ballot_is_retried() {
    let mut way = Way::new(no_wait(3));
    let next = way.round(&all(3, Answer::Stale));
    assert_eq!(way.pause(next), Duration::ZERO);
    let next = way.round(&all(3, Answer::Granted));
    assert!(matches!(next, Next::Granted { .. }));
}

/// Half of the nodes for us and half for a rival, again and again.
#[test]
fn a_tie_between_two_clients_ends() {
    for nodes in [2, 4] {
        let mut outcomes = all(nodes, Answer::Granted);
        outcomes[..nodes / 2].fill(Some(reply(held(None))));
        let (attempts, failure) = Way::new(no_wait(nodes)).until_it_ends(&outcomes);
        assert_eq!((attempts, failure.kind), (1, FailureKind::Held));
        let mut way = Way::new(terms(nodes));
        let (_, failure) = way.until_it_ends(&outcomes);
        assert_eq!(failure.kind, FailureKind::Held);
    }
}

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
fn a_node_that_timed_out_is_a_suspect_in_the_next_attempt() {
    let mut way = Way::new(for_ever(3));
    way.cluster.silent(2);
    let mut attempt = way.begin();
    attempt.handle_reply(0, reply(held(None)), None, at(1));
    attempt.handle_reply(1, reply(Answer::Granted), None, at(1));
    assert_eq!(attempt.verdict(), Some(AttemptVerdict::Lost(Loss::Held)));
}

// Invariants

/// What a node may do in a round.
fn any_outcome() -> impl Strategy<Value = Option<Outcome>> {
    prop_oneof![
        Just(None),
        Just(Some(not_sent())),
        Just(Some(unknown())),
        Just(Some(refused(TroubleKind::Loading))),
        Just(Some(reply(Answer::Stale))),
        Just(Some(reply(Answer::Ahead))),
        Just(Some(reply(Answer::Granted))),
        prop::option::of(0u64..100_000).prop_map(|for_ms| Some(reply(held(for_ms)))),
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

    /// The same seed and the same answers give the same run, to the nanosecond.
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

    /// However the nodes behave, a bounded wait ends about in time, no retry is in the past, and no
    /// grant has too little remaining validity.
    #[test]
    fn a_bounded_wait_ends_in_time((nodes, rounds) in any_run(), seed: u64, wait in 0u64..5_000) {
        let mut way = Way::seeded(AcquireTerms { wait: Some(ms(wait)), ..terms(nodes) }, seed);
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
        // At most nine stale rounds, each as long as a call timeout, with pauses of the same
        // length.
        prop_assert!(way.now <= at(wait) + CALL_TIMEOUT * 20, "{:?}", way.now);
    }
}
