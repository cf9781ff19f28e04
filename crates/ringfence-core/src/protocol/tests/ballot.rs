//! Which ballot is proposed: close to the nodes' clocks and above their floors, whatever our clock
//! shows.

use proptest::prelude::*;

use super::*;

const HOUR_US: i64 = 3_600_000_000;

fn choose(cluster: &mut Cluster, now: Timestamp) -> Choice {
    let floors = vec![None; cluster.group().nodes];
    cluster.choose(&floors, now).unwrap()
}

/// Proposes to the answering nodes, as an attempt would. Returns how many grant, and their floors.
pub(super) fn propose(
    cluster: &mut Cluster,
    servers: &mut [Server],
    answering: &[usize],
    floors: &mut [Option<Ballot>],
    now: Timestamp,
) -> usize {
    let ballot = cluster.choose(floors, now).unwrap().ballot;
    let mut granted = 0;
    for &node in answering {
        let server = &mut servers[node];
        let outcome = server.ask(now, &token(1), acquire(ballot));
        cluster.observe(node, &outcome, now, now);
        let reply = outcome.unwrap();
        granted += usize::from(reply.answer == Answer::Granted);
        floors[node] = reply.stamp.map(|stamp| stamp.floor);
        // A lost attempt is undone.
        server.ask(now, &token(1), undo(ballot, false)).unwrap();
    }
    granted
}

#[test]
fn the_clients_clock_is_irrelevant() {
    for now in [at(0), at(1), at(3_600_000), Timestamp::from_nanos(u64::MAX)] {
        let mut cluster = cluster_of(3);
        for (node, ahead_us) in [0, 7, 5].into_iter().enumerate() {
            cluster.observe_facts(node, &facts(START_US + ahead_us, now));
        }
        let choice = choose(&mut cluster, now);
        assert_eq!(choice.ballot.get(), START_US + 5, "the median, at {now:?}");
        assert_eq!((choice.accepting, choice.answering), (3, 3));
    }
}

#[test]
fn a_node_an_hour_wrong_costs_only_its_own_vote() {
    for wrong in [HOUR_US, -HOUR_US] {
        for nodes in 3..=5 {
            for which in 0..nodes {
                let mut servers = vec![Server::new(0); nodes];
                servers[which].offset_us = wrong;
                let mut cluster = connected(&servers, at(0));
                let mut floors = vec![None; nodes];
                let all: Vec<usize> = (0..nodes).collect();
                let granted = propose(&mut cluster, &mut servers, &all, &mut floors, at(1));
                assert_eq!(granted, nodes - 1, "node {which} of {nodes}");
            }
        }
    }
}

#[test]
fn floors_that_were_learnt_win_the_second_round() {
    let mut servers = vec![Server::new(0); 3];
    let rival = Ballot::new(START_US + 3_000_000);
    for server in &mut servers {
        server.ask(at(0), &token(9), undo(rival, true)).unwrap();
    }
    let mut cluster = connected(&servers, at(0));
    let mut floors = vec![None; 3];
    let mut propose = |now| propose(&mut cluster, &mut servers, &[0, 1, 2], &mut floors, now);
    assert_eq!(propose(at(1)), 0);
    assert_eq!(propose(at(2)), 3);
}

#[test]
fn clocks_are_learnt_from_the_middle_of_the_round_trip() {
    let mut cluster = cluster_of(1);
    let mut answer = reply(Answer::Stale).unwrap();
    answer.stamp = Some(ReplyStamp {
        clock_us: START_US,
        floor: Ballot::default(),
    });
    cluster.observe(0, &Ok(answer), at(100), at(120));
    assert_eq!(choose(&mut cluster, at(110)).ballot.get(), START_US);
    assert_eq!(
        choose(&mut cluster, at(210)).ballot.get(),
        START_US + 100_000
    );
}

#[test]
fn nodes_that_no_longer_answer_are_not_counted() {
    let mut servers = vec![Server::new(0); 5];
    for server in &mut servers[..3] {
        server.offset_us = HOUR_US;
    }
    let mut cluster = connected(&servers, at(0));
    cluster.silent(0);
    cluster.observe(1, &unknown(), at(0), at(1));
    cluster.observe(2, &not_sent(), at(0), at(1));
    let choice = choose(&mut cluster, at(0));
    assert_eq!(choice.ballot.get(), START_US);
    assert_eq!((choice.accepting, choice.answering), (2, 2));
}

#[test]
fn a_node_that_answers_late_is_counted_again() {
    let servers = [Server::new(0)];
    let mut cluster = connected(&servers, at(0));
    cluster.silent(0);
    assert!(cluster.is_silent(0));
    cluster.observe(0, &reply(Answer::Gone), at(0), at(5_000));
    assert!(!cluster.is_silent(0));
    cluster.silent(0);
    cluster.observe(0, &refused(TroubleKind::Loading), at(0), at(5_000));
    assert!(!cluster.is_silent(0));
}

#[test]
fn without_any_clock_there_is_no_ballot() {
    assert_eq!(cluster_of(3).choose(&[None; 3], at(0)), None);
}

#[test]
fn old_clocks_are_used_while_no_node_answers() {
    let mut cluster = connected(&[Server::new(0)], at(0));
    cluster.silent(0);
    let choice = choose(&mut cluster, at(0));
    assert_eq!((choice.ballot.get(), choice.answering), (START_US, 0));
}

#[test]
fn each_ballot_is_higher_than_the_one_before() {
    let mut cluster = connected(&vec![Server::new(0); 3], at(0));
    let ballots: Vec<u64> = (0..4)
        .map(|_| choose(&mut cluster, at(0)).ballot.get())
        .collect();
    assert_eq!(ballots, [0, 1, 2, 3].map(|more| START_US + more));
}

#[test]
fn a_ballot_is_lowered_only_if_the_nodes_would_refuse_a_higher_one() {
    let mut cluster = connected(&[Server::new(HOUR_US)], at(0));
    let high = choose(&mut cluster, at(0)).ballot;
    // The clock is set back a little: the window still covers the next ballot.
    cluster.observe_facts(0, &Server::new(HOUR_US - 2_000_000).facts(at(0)));
    assert_eq!(choose(&mut cluster, at(0)).ballot.get(), high.get() + 1);
    cluster.observe_facts(0, &Server::new(0).facts(at(0)));
    assert_eq!(choose(&mut cluster, at(0)).ballot.get(), START_US);
}

/// Three nodes whose windows overlap only below the median clock.
#[test]
fn the_ballot_that_most_accept_may_lie_below_the_median() {
    let servers = [0, 8_000_000, 8_500_000].map(Server::new);
    let choice = choose(&mut connected(&servers, at(0)), at(0));
    assert_eq!(choice.accepting, 3);
    assert_eq!(choice.ballot.get(), START_US + 4_000_001);
}

/// Two clocks exactly as far apart as the windows less the margin allow, and one microsecond more.
#[test]
fn clocks_within_two_windows_less_the_margin_share_a_ballot() {
    for (apart_us, accepting) in [(8_999_999, 2), (9_000_000, 1)] {
        let servers = [0, apart_us].map(Server::new);
        let choice = choose(&mut connected(&servers, at(0)), at(0));
        assert_eq!(choice.accepting, accepting, "{apart_us} µs apart");
    }
}

/// The rule word by word: of the candidates, the one that most nodes accept; on a tie the smallest
/// not below the median, else the largest below it. If that is no majority, but a majority will
/// accept the lower end of some node later: the candidate with the shortest wait.
fn chosen(nodes: &[(u64, Option<Ballot>)]) -> (u64, usize) {
    let margin = WINDOW_US / 10;
    let ends: Vec<(u64, u64)> = nodes
        .iter()
        .map(|(clock, floor)| {
            let lower = clock.saturating_sub(WINDOW_US - margin);
            let floor = floor.map_or(0, Ballot::get);
            (lower.max(floor), clock + WINDOW_US - margin)
        })
        .collect();
    let mut clocks: Vec<u64> = nodes.iter().map(|node| node.0).collect();
    clocks.sort_unstable();
    let median = clocks[(clocks.len() - 1) / 2];
    let mut candidates: Vec<u64> = ends.iter().map(|end| end.0 + 1).collect();
    candidates.push(median);
    let pleased = |b: u64| ends.iter().filter(|end| end.0 < b && b <= end.1).count();
    let most = candidates.iter().map(|b| pleased(*b)).max().unwrap();
    if most < quorum(nodes.len()) {
        let grounds = nodes.iter().map(|node| node.0 - (WINDOW_US - margin));
        let ends: Vec<(u64, u64, u64)> = ends
            .iter()
            .zip(grounds)
            .map(|(e, g)| (e.0, e.1, g))
            .collect();
        let pleased_after = |b: u64, wait: u64| {
            let pleased = ends
                .iter()
                .filter(|(low, high, ground)| *low < b && b <= high + wait && ground + wait < b);
            pleased.count() >= quorum(nodes.len())
        };
        let mut waits = Vec::new();
        for b in ends.iter().map(|end| end.0 + 1) {
            let moments = ends.iter().map(|end| b.saturating_sub(end.1));
            waits.extend(
                moments
                    .filter(|wait| pleased_after(b, *wait))
                    .map(|wait| (wait, b)),
            );
        }
        if let Some((_, b)) = waits.into_iter().min() {
            return (b, pleased(b));
        }
    }
    candidates.retain(|b| pleased(*b) == most);
    let above = candidates.iter().filter(|b| **b >= median).min();
    let below = candidates.iter().filter(|b| **b < median).max();
    (*above.or(below).unwrap(), most)
}

prop_compose! {
    /// A node's clock offset, and the distance of its record from the clocks of the others.
    fn any_node()(
        offset in prop_oneof![
            4 => -9_000_000i64..9_000_000,
            1 => -2 * HOUR_US..2 * HOUR_US,
        ],
        floor in prop::option::of(-10_000_000i64..10_000_000),
    ) -> (u64, Option<Ballot>) {
        let clock = START_US.saturating_add_signed(offset);
        (clock, floor.map(|floor| Ballot::new(clock.saturating_add_signed(floor))))
    }
}

prop_compose! {
    /// N nodes. A majority has clocks within two windows less the margin, and records that leave a
    /// common ballot; the others are hours away. (A clock in between can pull the first ballot away
    /// from the majority, and only time resolves that.)
    fn servers_with_a_majority()(
        nodes in 1usize..=5,
    )(
        close in prop::collection::vec((0i64..8_900_000, -9_000_000i64..4_300_000), nodes / 2 + 1),
        wild in prop::collection::vec(
            (
                prop_oneof![-9 * HOUR_US..-HOUR_US, HOUR_US..9 * HOUR_US],
                -9_000_000i64..5_000_000,
            ),
            nodes - nodes / 2 - 1,
        ),
        turn in 0..nodes,
    ) -> Vec<Server> {
        let lowest = close.iter().map(|(offset, _)| *offset).min().unwrap();
        let record_of = |server: &mut Server, ballot_us: i64| {
            let ballot = Ballot::new(START_US.saturating_add_signed(ballot_us));
            server.ask(at(0), &token(9), undo(ballot, true)).unwrap();
        };
        let mut servers: Vec<Server> = Vec::new();
        for (offset, record) in close {
            let mut server = Server::new(offset);
            record_of(&mut server, lowest + record);
            servers.push(server);
        }
        for (offset, record) in wild {
            let mut server = Server::new(offset);
            record_of(&mut server, offset + record);
            servers.push(server);
        }
        servers.rotate_left(turn);
        servers
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_follows_the_rule(
        nodes in prop::collection::vec(any_node(), 1..=6),
    ) {
        let mut cluster = cluster_of(nodes.len());
        for (node, (clock_us, _)) in nodes.iter().enumerate() {
            cluster.observe_facts(node, &facts(*clock_us, at(0)));
        }
        let floors: Vec<Option<Ballot>> = nodes.iter().map(|node| node.1).collect();
        let choice = cluster.choose(&floors, at(0)).unwrap();
        prop_assert_eq!((choice.ballot.get(), choice.accepting), chosen(&nodes));
    }

    #[test]
    fn two_rounds_are_enough_for_a_majority_whose_clocks_are_close(
        mut servers in servers_with_a_majority(),
    ) {
        let nodes = servers.len();
        let mut cluster = connected(&servers, at(0));
        let mut floors = vec![None; nodes];
        let all: Vec<usize> = (0..nodes).collect();
        let mut propose = |now| propose(&mut cluster, &mut servers, &all, &mut floors, now);
        let first = propose(at(1));
        if first < quorum(nodes) {
            let second = propose(at(2));
            prop_assert!(second >= quorum(nodes), "{first}, then {second} of {nodes}");
        }
    }

    #[test]
    fn hostile_clocks_and_floors_cost_only_votes(
        clocks in prop::collection::vec(
            prop_oneof![Just(0), Just(u64::MAX), Just(1 << 53), any::<u64>(), Just(START_US)],
            1..=5,
        ),
        floor in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        sent in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
        now in prop_oneof![Just(0), Just(u64::MAX), any::<u64>()],
    ) {
        let nodes = clocks.len();
        let (sent, now) = (Timestamp::from_nanos(sent), Timestamp::from_nanos(now));
        let mut cluster = cluster_of(nodes);
        for (node, clock_us) in clocks.iter().enumerate() {
            let mut facts = facts(*clock_us, now);
            facts.sent = sent;
            cluster.observe_facts(node, &facts);
            let standing = Standing {
                incarnation: 1,
                born_us: *clock_us,
                clock_us: floor,
                server: 0,
                replicated: false,
                epoch: None,
            };
            let left = cluster.quarantine_left(node, standing, now);
            prop_assert!(left <= Some(cluster.quarantine()));
        }
        let floors = vec![Some(Ballot::new(floor)); nodes];
        for _ in 0..3 {
            if let Some(choice) = cluster.choose(&floors, now) {
                prop_assert!(choice.ballot <= Ballot::MAX);
                prop_assert!(choice.accepting <= choice.answering);
            }
        }
    }
}

/// Whatever the clocks of a minority show, the other nodes still grant.
#[test]
fn a_hostile_minority_does_not_stop_the_others() {
    for hostile in [0, 1, u64::MAX - 1, u64::MAX] {
        let mut cluster = cluster_of(3);
        cluster.observe_facts(0, &facts(START_US, at(0)));
        cluster.observe_facts(1, &facts(hostile, at(0)));
        cluster.observe_facts(2, &facts(START_US, at(0)));
        let choice = choose(&mut cluster, at(0));
        assert_eq!((choice.ballot.get(), choice.accepting), (START_US, 2));
    }
}

/// With two nodes 1.9 s apart, the slower clock is too old for a new ticket on the other node. A
/// waiter with that time was refused there for ever, although the lock was free.
#[test]
fn a_majority_accepts_a_new_ticket() {
    let ahead = |offsets: &[i64]| {
        let servers: Vec<Server> = offsets.iter().map(|us| Server::new(*us)).collect();
        let cluster = connected(&servers, at(0));
        cluster.ticket_time(at(0)).unwrap() as i64 - START_US as i64
    };
    assert_eq!(ahead(&[0, 7, 5]), 5, "the median where clocks are close");
    assert_eq!(ahead(&[0, 900_000, -4_000_000]), 0);
    assert_eq!(ahead(&[0, 1_900_000]), 1_400_000);
    assert_eq!(ahead(&[0, 0, 1_900_000, 1_900_000]), 1_400_000);
    assert_eq!(ahead(&[0, 0, 0, 1_900_000]), 0);
    // One of three does not answer.
    let servers = [0, 1_900_000, 0].map(Server::new);
    let mut cluster = connected(&servers, at(0));
    cluster.silent(2);
    let time = cluster.ticket_time(at(0));
    assert_eq!(time, Some(START_US + 1_400_000));
}
