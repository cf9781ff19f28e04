//! What comes after an attempt: at once again, later again, or the end, and which end.

use proptest::prelude::*;

use super::*;

const WAIT: Duration = Duration::from_secs(60);
const ROUND: Duration = Duration::from_millis(2);

fn terms(nodes: usize) -> Terms {
    Terms {
        nodes,
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        call_timeout: CALL_TIMEOUT,
        wait: Some(WAIT),
        attempts: None,
        no_quorum_after: Duration::from_secs(15),
        plain: false,
    }
}

/// One client on the way to a grant, and the time on its clock.
struct Way {
    acquisition: Acquisition,
    cluster: Cluster,
    now: Timestamp,
    tokens: u64,
    /// Token and ballot of every attempt so far.
    proposed: Vec<(Token, Ballot)>,
}

impl Way {
    fn new(terms: Terms) -> Self {
        Self::seeded(terms, 1)
    }

    fn seeded(terms: Terms, seed: u64) -> Self {
        let servers = vec![Server::new(0); terms.nodes];
        Self {
            acquisition: Acquisition::new(terms, at(0), seed),
            cluster: acquainted(&servers, at(0)),
            now: at(0),
            tokens: 0,
            proposed: Vec::new(),
        }
    }

    fn begin(&mut self) -> Attempt {
        self.tokens += 1;
        let fresh = token(self.tokens);
        let attempt = self.acquisition.begin(&mut self.cluster, self.now, fresh);
        self.proposed
            .push((attempt.token().clone(), attempt.ballot()));
        attempt
    }

    /// One attempt that every node answers with `outcomes` after `ROUND`, or never where there is
    /// `None`; then what comes next.
    fn round(&mut self, outcomes: &[Option<Outcome>]) -> Next {
        self.round_in_quarantine(outcomes, None)
    }

    fn round_in_quarantine(
        &mut self,
        outcomes: &[Option<Outcome>],
        quarantine: Option<Duration>,
    ) -> Next {
        let mut attempt = self.begin();
        let answers = outcomes.iter().enumerate();
        for (node, outcome) in answers.filter_map(|(node, o)| Some((node, o.clone()?))) {
            attempt.handle_reply(node, outcome, quarantine, self.now + ROUND);
        }
        match attempt.poll_timeout() {
            Some(timeout) => {
                self.now = timeout;
                attempt.handle_timeout(timeout);
            }
            None => self.now = self.now + ROUND,
        }
        self.acquisition.conclude(&attempt, &self.cluster, self.now)
    }

    /// Attempts with the same answers until it gives up: how many, when, and the failure.
    fn until_it_ends(&mut self, outcomes: &[Option<Outcome>]) -> (u32, Failure) {
        for attempts in 1..10_000 {
            match self.round(outcomes) {
                Next::Retry { at } => {
                    assert!(at >= self.now, "a retry in the past");
                    self.now = at;
                }
                Next::GiveUp(failure) => return (attempts, failure),
                Next::Granted { .. } => panic!("granted"),
            }
        }
        panic!("it never ends");
    }

    fn pause(&self, next: Next) -> Duration {
        match next {
            Next::Retry { at } => {
                assert!(at >= self.now, "a retry in the past");
                at.since(self.now)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn all(nodes: usize, answer: Answer) -> Vec<Option<Outcome>> {
    vec![Some(says(answer)); nodes]
}

fn no_wait(nodes: usize) -> Terms {
    Terms {
        wait: Some(Duration::ZERO),
        ..terms(nodes)
    }
}

fn for_ever(nodes: usize) -> Terms {
    Terms {
        wait: None,
        ..terms(nodes)
    }
}

// Grants

#[test]
fn a_majority_of_grants_is_granted_for_any_number_of_nodes() {
    for nodes in 1..=5 {
        let mut outcomes = all(nodes, Answer::Granted);
        for silent in outcomes.iter_mut().skip(quorum(nodes)) {
            *silent = None;
        }
        let next = Way::new(terms(nodes)).round(&outcomes);
        assert_eq!(
            next,
            Next::Granted {
                deadline: at(9_898)
            }
        );
    }
}

/// t0 is that of the attempt, not that of the first one.
#[test]
fn every_attempt_has_a_t0_of_its_own() {
    let mut way = Way::new(terms(1));
    way.round(&all(1, held(None)));
    way.now = at(5_000);
    let next = way.round(&all(1, Answer::Granted));
    assert_eq!(
        next,
        Next::Granted {
            deadline: at(5_000) + VALIDITY
        }
    );
}

/// The verdict was won, then the process was suspended.
#[test]
fn a_grant_that_aged_since_its_verdict_is_not_returned() {
    for (now, granted) in [
        (at(8_898), true),
        (at(8_899), false),
        (at(86_400_000), false),
    ] {
        let mut way = Way::new(for_ever(1));
        let mut attempt = way.begin();
        attempt.handle_reply(0, says(Answer::Granted), None, at(1));
        assert!(matches!(attempt.verdict(), Some(Verdict::Won { .. })));
        let next = way.acquisition.conclude(&attempt, &way.cluster, now);
        assert_eq!(matches!(next, Next::Granted { .. }), granted, "{next:?}");
        // It may still hold on the node, so it is taken back.
        assert_eq!(attempt.remains(), [Target::Holds]);
    }
}

#[test]
fn grants_that_are_always_too_late_end_as_expired() {
    let mut way = Way::new(no_wait(1));
    let mut attempt = way.begin();
    attempt.handle_reply(0, says(Answer::Granted), None, at(9_000));
    let next = way.acquisition.conclude(&attempt, &way.cluster, at(9_000));
    assert!(matches!(
        next,
        Next::GiveUp(Failure {
            kind: FailureKind::Expired,
            ..
        })
    ));
}

/// An hour of suspend in the middle of a round says nothing about how long rounds take.
#[test]
fn a_suspended_client_does_not_pause_for_as_long_as_it_slept() {
    for answer in [Answer::Granted, held(None), Answer::Stale] {
        let mut way = Way::new(for_ever(1));
        way.round(&all(1, Answer::Stale));
        let mut attempt = way.begin();
        let awake = at(3_600_000);
        attempt.handle_reply(0, says(answer.clone()), None, awake);
        way.now = awake;
        let next = way.acquisition.conclude(&attempt, &way.cluster, awake);
        assert!(way.pause(next) <= CALL_TIMEOUT * 2, "{answer:?}");
    }
}

// Ballots and tokens

#[test]
fn each_attempt_has_a_higher_ballot_under_the_same_token() {
    let mut way = Way::new(for_ever(3));
    for answer in [Answer::Stale, held(None), Answer::Ahead, Answer::Stale] {
        way.round(&all(3, answer));
    }
    assert!(way.proposed.windows(2).all(|two| two[0].1 < two[1].1));
    assert!(way.proposed.iter().all(|(who, _)| *who == token(1)));
}

#[test]
fn a_client_that_must_lower_its_ballot_takes_a_fresh_token() {
    let mut way = Way::new(for_ever(1));
    way.round(&all(1, Answer::Stale));
    way.cluster
        .observe_facts(0, &Server::new(-3_600_000_000).facts(way.now));
    way.round(&all(1, Answer::Stale));
    assert!(way.proposed[1].1 < way.proposed[0].1);
    assert_eq!(way.proposed[1].0, token(2));
    way.round(&all(1, Answer::Stale));
    assert_eq!(way.proposed[2].0, token(2), "rising again");
}

#[test]
fn every_plain_attempt_has_a_fresh_token() {
    let mut way = Way::new(Terms {
        plain: true,
        ..for_ever(1)
    });
    for n in 1..=3 {
        way.round(&all(1, held(None)));
        assert_eq!(way.proposed.last().unwrap().0, token(n));
    }
}

// Stale

#[test]
fn after_stale_it_goes_on_at_once_and_with_jitter_from_the_second_time() {
    let mut way = Way::new(terms(3));
    let next = way.round(&all(3, Answer::Stale));
    assert_eq!(way.pause(next), Duration::ZERO);
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let next = way.round(&all(3, Answer::Stale));
        let pause = way.pause(next);
        assert!((ROUND / 2..ROUND).contains(&pause), "{pause:?}");
        way.now = way.now + pause;
        pauses.push(pause);
    }
    pauses.dedup();
    assert_eq!(pauses.len(), 5, "jitter differs");
}

#[test]
fn after_a_held_lock_the_first_stale_is_at_once_again() {
    let mut way = Way::new(terms(1));
    way.round(&all(1, Answer::Stale));
    way.round(&all(1, held(None)));
    let next = way.round(&all(1, Answer::Stale));
    assert_eq!(way.pause(next), Duration::ZERO);
}

#[test]
fn stale_rounds_in_a_row_are_bounded() {
    let (attempts, failure) = Way::new(no_wait(3)).until_it_ends(&all(3, Answer::Stale));
    assert_eq!((attempts, failure.kind), (9, FailureKind::Held));
    assert_eq!(failure.votes, [Vote::Stale, Vote::Stale, Vote::Stale]);
}

#[test]
fn stale_rounds_do_not_outlast_the_wait_by_much() {
    let mut way = Way::new(terms(3));
    way.until_it_ends(&all(3, Answer::Stale));
    assert!(way.now >= at(0) + WAIT);
    assert!(way.now <= at(0) + WAIT + ms(100), "{:?}", way.now);
}

/// Clocks so far apart that no ballot pleases a majority: said so, and soon.
#[test]
fn clocks_too_far_apart_are_said_to_be_so() {
    let mut servers = [0, 20_000_000, 40_000_000].map(Server::new);
    let mut way = Way::new(for_ever(3));
    way.cluster = acquainted(&servers, at(0));
    for round in 1.. {
        let mut attempt = way.begin();
        for (node, server) in servers.iter_mut().enumerate() {
            let outcome = server.ask(way.now, attempt.token(), acquire(attempt.ballot()));
            way.cluster.observe(node, &outcome, way.now, way.now);
            attempt.handle_reply(node, outcome, None, way.now);
        }
        match way.acquisition.conclude(&attempt, &way.cluster, way.now) {
            Next::Retry { at } => way.now = at,
            Next::GiveUp(failure) => {
                assert_eq!(failure.kind, FailureKind::ClocksApart);
                assert_eq!(failure.votes, [Vote::Ahead, Vote::Granted, Vote::Stale]);
                assert_eq!(round, 3);
                return;
            }
            Next::Granted { .. } => panic!("granted"),
        }
    }
}

/// The first ballot pleases two of a majority and lifts their floors beyond the third: that takes
/// half a second to mend, and is no reason to say that the clocks are apart.
#[test]
fn a_floor_out_of_reach_is_no_clocks_apart() {
    let offsets = [2_851_827, 0, 4_500_001, 9_900_000, 11_851_827];
    let mut servers = offsets.map(Server::new);
    for server in &mut servers[3..] {
        let record = Ballot::new(server.clock_us(at(0)));
        server.ask(at(0), &token(9), undo(record, true)).unwrap();
    }
    let mut way = Way::new(for_ever(5));
    way.cluster = acquainted(&servers, at(0));
    way.now = at(1);
    loop {
        let mut attempt = way.begin();
        for (node, server) in servers.iter_mut().enumerate() {
            let outcome = server.ask(way.now, attempt.token(), acquire(attempt.ballot()));
            way.cluster.observe(node, &outcome, way.now, way.now);
            attempt.handle_reply(node, outcome, None, way.now);
            server
                .ask(way.now, attempt.token(), undo(attempt.ballot(), false))
                .unwrap();
        }
        way.now = way.now + ROUND;
        match way.acquisition.conclude(&attempt, &way.cluster, way.now) {
            Next::Retry { at } => way.now = at,
            Next::Granted { .. } => break,
            Next::GiveUp(failure) => panic!("{failure:?}"),
        }
    }
    assert!(way.now > at(400) && way.now < at(1_000), "{:?}", way.now);
}

#[test]
fn stale_ballots_alone_are_no_clocks_apart() {
    let (_, failure) = Way::new(no_wait(5)).until_it_ends(&all(5, Answer::Ahead));
    assert_eq!(failure.kind, FailureKind::Held);
}

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
        // Without a bound only contention is waited for.
        (None, false),
    ] {
        let mut way = Way::new(Terms { wait, ..terms(3) });
        let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(left));
        if waits {
            assert_eq!(way.pause(next), left + ms(1));
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
fn an_unbounded_wait_covers_a_quarantine_as_long_as_it_would_an_outage() {
    let mut way = Way::new(for_ever(3));
    let next = way.round_in_quarantine(&all(3, Answer::Granted), Some(ms(14_000)));
    assert_eq!(way.pause(next), ms(14_001));
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
                if let Next::Retry { at } = next {
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
                Next::Retry { at } => {
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
