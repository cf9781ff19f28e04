//! What follows an attempt: a grant, or another ballot at once. `patience` tests the rest.

use super::*;

pub(super) const WAIT: Duration = Duration::from_secs(60);
pub(super) const ROUND: Duration = Duration::from_millis(2);

pub(super) fn terms(nodes: usize) -> AcquireTerms {
    AcquireTerms {
        nodes,
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        call_timeout: CALL_TIMEOUT,
        wait: Some(WAIT),
        attempts: None,
        no_quorum_after: Duration::from_secs(15),
        kind: Kind::Exclusive,
    }
}

/// One client on the way to a grant, and the time on its clock.
pub(super) struct Way {
    pub(super) acquisition: Acquisition,
    pub(super) cluster: Cluster,
    pub(super) now: Timestamp,
    tokens: u64,
    /// Token and ballot of every attempt so far.
    pub(super) proposed: Vec<(Token, Ballot)>,
}

impl Way {
    pub(super) fn new(terms: AcquireTerms) -> Self {
        Self::seeded(terms, 1)
    }

    pub(super) fn seeded(terms: AcquireTerms, seed: u64) -> Self {
        let servers = vec![Server::new(0); terms.nodes];
        Self {
            acquisition: Acquisition::new(terms, at(0), seed),
            cluster: connected(&servers, at(0)),
            now: at(0),
            tokens: 0,
            proposed: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) -> Attempt {
        self.tokens += 1;
        let fresh = token(self.tokens);
        let attempt = self.acquisition.begin(&mut self.cluster, self.now, fresh);
        self.proposed
            .push((attempt.token().clone(), attempt.ballot()));
        attempt
    }

    /// One attempt that `servers` answer at once. Returns what follows.
    pub(super) fn round_on(&mut self, servers: &mut [Server]) -> Next {
        let mut attempt = self.begin();
        for (node, server) in servers.iter_mut().enumerate() {
            let outcome = server.ask(self.now, attempt.token(), acquire(attempt.ballot()));
            self.cluster.observe(node, &outcome, self.now, self.now);
            attempt.handle_reply(node, outcome, None, self.now);
        }
        self.acquisition.conclude(&attempt, &self.cluster, self.now)
    }

    /// One attempt that every node answers with `outcomes` after `ROUND`; `None`: the node does not
    /// answer. Returns what follows.
    pub(super) fn round(&mut self, outcomes: &[Option<Outcome>]) -> Next {
        self.round_in_quarantine(outcomes, None)
    }

    pub(super) fn round_in_quarantine(
        &mut self,
        outcomes: &[Option<Outcome>],
        quarantine: Option<Duration>,
    ) -> Next {
        let mut attempt = self.begin();
        let answers = outcomes.iter().enumerate();
        for (node, outcome) in answers.filter_map(|(node, o)| Some((node, o.clone()?))) {
            attempt.handle_reply(node, outcome, quarantine.map(quarantined), self.now + ROUND);
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

    /// Attempts with the same answers until the client gives up: how many, when, and the failure.
    pub(super) fn until_it_ends(&mut self, outcomes: &[Option<Outcome>]) -> (u32, AcquireFailure) {
        for attempts in 1..10_000 {
            match self.round(outcomes) {
                Next::Retry { at, .. } => {
                    assert!(at >= self.now, "a retry in the past");
                    self.now = at;
                }
                Next::GiveUp(failure) => return (attempts, failure),
                Next::Granted { .. } => panic!("granted"),
            }
        }
        panic!("still retrying after the limit");
    }

    pub(super) fn pause(&self, next: Next) -> Duration {
        match next {
            Next::Retry { at, .. } => {
                assert!(at >= self.now, "a retry in the past");
                at.since(self.now)
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn all(nodes: usize, answer: Answer) -> Vec<Option<Outcome>> {
    vec![Some(reply(answer)); nodes]
}

pub(super) fn no_wait(nodes: usize) -> AcquireTerms {
    AcquireTerms {
        wait: Some(Duration::ZERO),
        ..terms(nodes)
    }
}

pub(super) fn for_ever(nodes: usize) -> AcquireTerms {
    AcquireTerms {
        wait: None,
        ..terms(nodes)
    }
}

// Grants

#[test]
fn a_grant_of_an_earlier_ballot_does_not_count_for_this_one() {
    let mut way = Way::new(terms(3));
    let stale = || Some(reply(Answer::Stale));
    let lost = way.round(&[Some(reply(Answer::Granted)), stale(), stale()]);
    way.now = way.now + way.pause(lost);
    let next = way.round(&[None, Some(reply(Answer::Granted)), None]);
    assert!(matches!(next, Next::Retry { .. }), "{next:?}");
}

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

/// t0 is that of this attempt, not that of the first one.
#[test]
fn every_attempt_has_its_own_t0() {
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

/// The attempt was won, then the process was suspended.
#[test]
fn a_grant_that_lost_its_validity_since_the_verdict_is_not_returned() {
    for (now, granted) in [
        (at(8_898), true),
        (at(8_899), false),
        (at(86_400_000), false),
    ] {
        let mut way = Way::new(for_ever(1));
        let mut attempt = way.begin();
        attempt.handle_reply(0, reply(Answer::Granted), None, at(1));
        assert!(matches!(
            attempt.verdict(),
            Some(AttemptVerdict::Won { .. })
        ));
        let next = way.acquisition.conclude(&attempt, &way.cluster, now);
        assert_eq!(matches!(next, Next::Granted { .. }), granted, "{next:?}");
        // The node may still hold the grant, so it is undone.
        assert_eq!(attempt.remains(), [Target::Holds]);
    }
}

#[test]
fn grants_that_are_always_too_late_end_as_expired() {
    let mut way = Way::new(no_wait(1));
    let mut attempt = way.begin();
    attempt.handle_reply(0, reply(Answer::Granted), None, at(9_000));
    let next = way.acquisition.conclude(&attempt, &way.cluster, at(9_000));
    assert!(matches!(
        next,
        Next::GiveUp(AcquireFailure {
            kind: FailureKind::Expired,
            ..
        })
    ));
}

/// A suspend of an hour during a round says nothing about how long rounds take.
#[test]
fn a_suspended_client_does_not_pause_for_as_long_as_it_slept() {
    for answer in [Answer::Granted, held(None), Answer::Stale] {
        let mut way = Way::new(for_ever(1));
        way.round(&all(1, Answer::Stale));
        let mut attempt = way.begin();
        let awake = at(3_600_000);
        attempt.handle_reply(0, reply(answer.clone()), None, awake);
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
    let mut way = Way::new(AcquireTerms {
        kind: Kind::Plain,
        ..for_ever(1)
    });
    for n in 1..=3 {
        way.round(&all(1, held(None)));
        assert_eq!(way.proposed.last().unwrap().0, token(n));
    }
}

// Stale

#[test]
fn after_stale_it_retries_at_once_and_with_jitter_from_the_second_time() {
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
fn after_a_held_lock_the_first_stale_round_is_retried_at_once() {
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

/// Clocks so far apart that no majority accepts one ballot: the error says so, and soon.
#[test]
fn clocks_too_far_apart_are_reported() {
    let mut servers = [0, 20_000_000, 40_000_000].map(Server::new);
    let mut way = Way::new(for_ever(3));
    way.cluster = connected(&servers, at(0));
    for round in 1..=3 {
        match way.round_on(&mut servers) {
            Next::Retry { at, .. } => way.now = at,
            Next::GiveUp(failure) => {
                assert_eq!(failure.kind, FailureKind::ClocksApart);
                assert_eq!(failure.votes, [Vote::Ahead, Vote::Granted, Vote::Stale]);
                assert_eq!(round, 3);
                return;
            }
            Next::Granted { .. } => panic!("granted"),
        }
    }
    panic!("still trying");
}

/// The first ballot suits two nodes of a majority and raises their floors beyond the third. That
/// resolves itself within half a second, and must not be reported as clocks that are too far apart.
#[test]
fn a_floor_out_of_reach_is_not_reported_as_clocks_apart() {
    let offsets = [2_851_827, 0, 4_500_001, 9_900_000, 11_851_827];
    let mut servers = offsets.map(Server::new);
    for server in &mut servers[3..] {
        let record = Ballot::new(server.clock_us(at(0)));
        server.ask(at(0), &token(9), undo(record, true)).unwrap();
    }
    let mut way = Way::new(for_ever(5));
    way.cluster = connected(&servers, at(0));
    way.now = at(1);
    for _ in 0..1_000 {
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
            Next::Retry { at, .. } => way.now = at,
            Next::Granted { .. } => break,
            Next::GiveUp(failure) => panic!("{failure:?}"),
        }
    }
    assert!(way.now > at(400) && way.now < at(1_000), "{:?}", way.now);
}

#[test]
fn stale_ballots_alone_are_not_reported_as_clocks_apart() {
    let (_, failure) = Way::new(no_wait(5)).until_it_ends(&all(5, Answer::Ahead));
    assert_eq!(failure.kind, FailureKind::Held);
}
