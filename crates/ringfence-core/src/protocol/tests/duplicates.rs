//! A server behind two nodes has one vote, in whatever order the replies come and whatever the
//! client knew before.

use std::collections::BTreeSet;

use super::*;
use crate::message::Arrivals;

const SERVER_A: u64 = 1;
const SERVER_B: u64 = 2;
const SERVER_C: u64 = 3;
const SECOND_US: u64 = 1_000_000;

/// The server with this number. It has no quarantine.
fn standing(server: u64) -> Standing {
    Standing {
        incarnation: server,
        server,
        ..Standing::default()
    }
}

fn from(server: u64, answer: Answer) -> Outcome {
    reply(answer).map(|reply| Reply {
        standing: standing(server),
        ..reply
    })
}

/// The reply of `server` while its clock shows `clock_us`.
fn timed(server: u64, clock_us: u64) -> Outcome {
    let floor = Ballot::default();
    from(server, Answer::Granted).map(|reply| Reply {
        stamp: Some(ReplyStamp { clock_us, floor }),
        ..reply
    })
}

fn observe(cluster: &mut Cluster, node: usize, server: u64, now: Timestamp) -> Option<Vote> {
    cluster.observe(node, &from(server, Answer::Granted), now, now);
    cluster.discount(node, standing(server), now, now)
}

/// A client that knows its three nodes as three servers.
fn three() -> Cluster {
    let mut cluster = cluster_of(3);
    for (node, server) in [SERVER_A, SERVER_B, SERVER_C].into_iter().enumerate() {
        assert_eq!(observe(&mut cluster, node, server, at(0)), None);
    }
    cluster
}

/// The same, but the second node has never answered.
fn three_but_one() -> Cluster {
    let mut cluster = cluster_of(3);
    observe(&mut cluster, 0, SERVER_A, at(0));
    observe(&mut cluster, 2, SERVER_C, at(0));
    cluster
}

/// Every way in which `nodes` addresses may lead to servers, and some orders of their answers.
fn routes(nodes: usize) -> impl Iterator<Item = (Vec<u64>, Vec<usize>)> {
    let servers: Vec<u64> = (1..=nodes as u64).collect();
    let count = nodes.pow(nodes as u32);
    let routes = (0..count).map(move |index| word(&servers, nodes, index));
    routes.flat_map(move |route| orders(nodes).map(|order| (route.clone(), order)))
}

#[test]
fn an_attempt_counts_every_server_once() {
    for nodes in 1..=5 {
        for (route, order) in routes(nodes) {
            let mut attempt = super::attempt::attempt(&vec![false; nodes], at(100));
            let mut heard = BTreeSet::new();
            for node in order {
                attempt.handle_reply(node, from(route[node], Answer::Granted), None, at(1));
                heard.insert(route[node]);
                let won = matches!(attempt.verdict(), Some(AttemptVerdict::Won { .. }));
                assert_eq!(won, heard.len() >= quorum(nodes), "{route:?}");
            }
            let granted = attempt.votes().filter(|vote| **vote == Vote::Granted);
            assert_eq!(granted.count(), heard.len(), "{route:?}");
        }
    }
}

#[test]
fn an_extension_counts_every_server_once() {
    for nodes in 1..=5 {
        for (route, order) in routes(nodes) {
            let mut round = Extension::new(nodes, at(0), TTL, Drift::default(), CALL_TIMEOUT);
            let mut heard = BTreeSet::new();
            for node in order {
                round.handle_reply(node, from(route[node], Answer::Extended), None, at(1));
                heard.insert(route[node]);
                let kept = matches!(round.verdict(), Some(ExtensionVerdict::Extended { .. }));
                assert_eq!(kept, heard.len() >= quorum(nodes), "{route:?}");
            }
        }
    }
}

#[test]
fn a_server_without_our_token_counts_once_as_proof_of_loss() {
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let mut round = Extension::new(3, at(0), TTL, Drift::default(), CALL_TIMEOUT);
        let outcomes = [
            from(SERVER_A, Answer::Gone),
            from(SERVER_A, Answer::Gone),
            from(SERVER_C, Answer::Extended),
        ];
        for node in order {
            round.handle_reply(node, outcomes[node].clone(), None, at(1));
        }
        // The server to which node 1 led before may still have the token.
        assert_eq!(round.verdict(), Some(ExtensionVerdict::Unsure), "{order:?}");
    }
}

#[test]
fn a_late_confirmation_counts_every_server_once() {
    let mut round = Extension::new(3, at(0), TTL, Drift::default(), CALL_TIMEOUT);
    round.handle_timeout(at(0) + CALL_TIMEOUT);
    for node in [1, 0] {
        round.handle_reply(node, from(SERVER_A, Answer::Extended), None, at(200));
        assert_eq!(round.late_deadline(), None);
    }
    round.handle_reply(2, from(SERVER_C, Answer::Extended), None, at(200));
    assert!(round.late_deadline().is_some());
}

#[test]
fn the_later_node_loses_its_vote_whichever_answers_first() {
    for order in [[0, 1], [1, 0]] {
        let mut attempt = super::attempt::attempt(&[false; 3], at(100));
        for node in order {
            attempt.handle_reply(node, from(SERVER_A, Answer::Granted), None, at(1));
        }
        let votes: Vec<Vote> = attempt.votes().cloned().collect();
        let duplicate = Vote::Duplicate { of: 0 };
        assert_eq!(
            votes,
            [Vote::Granted, duplicate, Vote::Pending],
            "{order:?}"
        );
        // Its grant must be undone, too.
        assert_eq!(attempt.remains()[..2], [Target::Holds, Target::Holds]);
        attempt.handle_reply(2, not_sent(), None, at(2));
        assert_eq!(
            attempt.verdict(),
            Some(AttemptVerdict::Lost(Loss::NoQuorum))
        );
        let wrong = attempt.votes().filter(|vote| vote.is_misconfigured());
        assert_eq!(wrong.count(), 1);
    }
}

#[test]
fn a_latch_counts_every_server_once() {
    let call = |servers: [u64; 3]| {
        let mut cluster = cluster_of(3);
        for node in 0..3 {
            cluster.observe_facts(node, &facts(START_US, at(0)));
        }
        let (life, timeout) = (Duration::from_secs(60), at(100));
        let look = Question::Look;
        let mut round = LatchRound::new(look, &cluster, life, at(0), timeout, 3);
        for node in [1, 0] {
            let arrivals = Answer::Arrivals(Arrivals {
                since_us: Some(START_US),
                ..Arrivals::default()
            });
            round.handle_reply(node, from(servers[node], arrivals), None, at(1));
        }
        round.tally(at(1))
    };
    assert!(call([SERVER_A, SERVER_B, SERVER_C]).speaks);
    let twice = call([SERVER_A, SERVER_A, SERVER_C]);
    assert!(!twice.speaks);
    assert_eq!(twice.votes[..2], [Vote::Granted, Vote::Duplicate { of: 0 }]);
}

#[test]
fn a_release_counts_every_server_once() {
    let release = |servers: [u64; 3], said: [Answer; 2]| {
        let targets = vec![Target::Holds; 3];
        let until = at(10_000);
        let mut release =
            PendingRelease::new(ReleaseKind::Final, targets, at(0), until, CALL_TIMEOUT);
        while release.poll_send(at(0)).is_some() {}
        for (node, answer) in said.into_iter().enumerate() {
            release.handle_reply(node, from(servers[node], answer), None, at(1));
        }
        release.verdict()
    };
    let (one, two) = (
        [SERVER_A, SERVER_B, SERVER_C],
        [SERVER_A, SERVER_A, SERVER_C],
    );
    let released = || [Answer::Released, Answer::Released];
    assert_eq!(release(one, released()), Some(ReleaseVerdict::Released));
    assert_eq!(release(two, released()), None);
    let gone = || [Answer::Gone, Answer::Gone];
    assert_eq!(release(one, gone()), Some(ReleaseVerdict::Expired));
    assert_eq!(release(two, gone()), None);
}

/// The server may execute the release through the second node first, and its reply may be read
/// last.
#[test]
fn a_release_that_one_server_confirms_through_its_second_node_counts() {
    let mut release = PendingRelease::new(
        ReleaseKind::Final,
        vec![Target::Holds; 3],
        at(0),
        at(10_000),
        CALL_TIMEOUT,
    );
    while release.poll_send(at(0)).is_some() {}
    release.handle_reply(0, from(SERVER_A, Answer::Gone), None, at(1));
    release.handle_reply(2, from(SERVER_C, Answer::Released), None, at(1));
    assert_eq!(release.verdict(), None);
    release.handle_reply(1, from(SERVER_A, Answer::Released), None, at(1));
    assert_eq!(release.verdict(), Some(ReleaseVerdict::Released));
}

#[test]
fn a_node_that_leads_to_the_server_of_an_earlier_node_has_no_vote() {
    let mut cluster = three();
    let duplicate = Some(Vote::Duplicate { of: 0 });
    assert_eq!(observe(&mut cluster, 1, SERVER_A, at(1)), duplicate);
    assert_eq!(cluster.take_duplicates(), Some((0, 1)));
    assert_eq!(cluster.take_duplicates(), None, "reported once");
    assert_eq!(observe(&mut cluster, 0, SERVER_A, at(2)), None);
    assert_eq!(observe(&mut cluster, 1, SERVER_A, at(2)), duplicate);
    observe(&mut cluster, 1, SERVER_B, at(3));
    assert_eq!(observe(&mut cluster, 1, SERVER_B, at(4)), None);
}

#[test]
fn the_later_node_votes_again_when_the_earlier_one_is_another_server_or_gone() {
    let settle = |change: &dyn Fn(&mut Cluster)| {
        let mut cluster = three();
        observe(&mut cluster, 1, SERVER_A, at(1));
        change(&mut cluster);
        observe(&mut cluster, 1, SERVER_A, at(3))
    };
    assert!(settle(&|_| {}).is_some());
    let moves = |cluster: &mut Cluster| {
        observe(cluster, 0, SERVER_B, at(2));
    };
    assert_eq!(settle(&moves), None);
    assert_eq!(settle(&|cluster| cluster.silent(0)), None);
    let fails = |outcome: Outcome| {
        move |cluster: &mut Cluster| {
            cluster.observe(0, &outcome, at(2), at(2));
        }
    };
    assert_eq!(settle(&fails(not_sent())), None);
    assert_eq!(settle(&fails(unknown())), None);
    assert_eq!(settle(&fails(refused(TroubleKind::Replica))), None);
}

/// A durable server keeps its locks across a restart and gets another run id. If two nodes lead to
/// it, and one answered before the restart and the other after it, both votes are from one server.
#[test]
fn a_server_that_is_restarted_between_the_answers_of_two_nodes_has_one_vote() {
    let restarted = |of: u64| Standing {
        incarnation: of,
        ..standing(9)
    };
    let discount = |cluster: &mut Cluster, standing, sent| {
        let reply = reply(Answer::Granted).map(|reply| Reply { standing, ..reply });
        cluster.observe(1, &reply, sent, at(5));
        cluster.discount(1, standing, sent, at(5))
    };
    let (a, b) = (restarted(SERVER_A), restarted(SERVER_B));
    for known in [three(), three_but_one()] {
        let mut cluster = known;
        assert_eq!(discount(&mut cluster, a, at(1)), Some(Vote::Moved));
        // By then the first node has answered again, or has failed.
        assert_eq!(discount(&mut cluster, a, at(6)), None);
    }
    assert_eq!(
        discount(&mut three(), b, at(1)),
        None,
        "its own restart costs nothing"
    );
}

#[test]
fn a_jump_of_one_server_behind_two_nodes_is_not_a_freeze_of_our_clock() {
    let mut cluster = cluster_of(3);
    for (node, server) in [SERVER_A, SERVER_A, SERVER_C].into_iter().enumerate() {
        cluster.observe(node, &timed(server, START_US), at(0), at(0));
    }
    let later_us = START_US + 20 * SECOND_US;
    for node in [0, 1] {
        let event = cluster.observe(node, &timed(SERVER_A, later_us), at(1), at(1));
        assert!(
            matches!(event, Some(ClockEvent::Jumped { .. })),
            "{event:?}"
        );
    }
    assert!(!cluster.froze_since(at(0)));
}

#[test]
fn a_clock_jump_costs_the_vote_of_the_server_at_every_address() {
    let mut cluster = three();
    for (node, server) in [SERVER_A, SERVER_B, SERVER_C].into_iter().enumerate() {
        cluster.observe(node, &timed(server, START_US), at(0), at(0));
    }
    let later_us = START_US + 20 * SECOND_US;
    let event = cluster.observe(0, &timed(SERVER_A, later_us), at(1), at(1));
    assert!(matches!(event, Some(ClockEvent::Jumped { node: 0, .. })));
    // Its address leads to another server, then another address leads to it.
    let event = cluster.observe(0, &timed(9, START_US), at(2), at(2));
    assert_eq!(event, None, "clocks of two servers are not compared");
    assert_eq!(cluster.discount(0, standing(9), at(3), at(3)), None);
    cluster.observe(1, &timed(SERVER_A, later_us), at(4), at(4));
    let discount = cluster.discount(1, standing(SERVER_A), at(5), at(5));
    assert!(
        matches!(discount, Some(Vote::ClockJumped { .. })),
        "{discount:?}"
    );
}

#[test]
fn a_jump_is_noticed_after_another_address_leads_to_the_server() {
    let mut cluster = three();
    for (node, server) in [SERVER_A, SERVER_B, SERVER_C].into_iter().enumerate() {
        cluster.observe(node, &timed(server, START_US), at(0), at(0));
    }
    let later_us = START_US + 20 * SECOND_US;
    let event = cluster.observe(1, &timed(SERVER_A, later_us), at(1), at(1));
    assert!(
        matches!(event, Some(ClockEvent::Jumped { node: 1, .. })),
        "{event:?}"
    );
}

#[test]
fn nodes_with_unknown_servers_count_separately() {
    let mut attempt = super::attempt::attempt(&[false; 3], at(100));
    for node in [0, 1] {
        attempt.handle_reply(node, reply(Answer::Granted), None, at(1));
    }
    assert!(matches!(
        attempt.verdict(),
        Some(AttemptVerdict::Won { .. })
    ));
}

#[test]
fn run_ids_are_hashed_to_numbers() {
    assert_eq!(Standing::server_of(""), 0);
    assert_ne!(Standing::server_of("a"), 0);
    assert_ne!(Standing::server_of("ab"), Standing::server_of("ba"));
}
