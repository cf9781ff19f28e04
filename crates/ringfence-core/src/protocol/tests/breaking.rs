//! A break on a majority: which answers count, and when another ballot is tried.

use super::*;
use crate::message::Break;

const PATIENCE: Duration = Duration::from_secs(1);

fn what(up_to: Ballot) -> Break {
    Break {
        ballot: Ballot::default(),
        up_to,
        foreign: false,
        only: None,
        slot: None,
        by: Arc::from("ops"),
        reason: Arc::from("dead"),
        keep_ms: 60_000,
    }
}

fn claims() -> Arc<[Claim]> {
    Arc::from([Claim {
        name: Name::new("", "x").unwrap(),
        mode: Mode::Exclusive,
    }])
}

fn removed(holders: u64) -> Answer {
    Answer::Removed { holders }
}

/// A round of a break on `nodes` nodes.
fn round(nodes: usize) -> (BreakCall, BreakRound) {
    let servers: Vec<Server> = (0..nodes).map(|_| Server::new(0)).collect();
    let mut call = BreakCall::new(nodes);
    let round = call.begin(&mut connected(&servers, at(0)), at(0), PATIENCE);
    (call, round)
}

/// Sends `round` to the servers that answer.
fn ask(round: &mut BreakRound, servers: &mut [Server], down: &[usize], up_to: Ballot, now: u64) {
    let op = round.request(&claims(), &what(up_to)).op;
    for (node, server) in servers.iter_mut().enumerate() {
        let outcome = match down.contains(&node) {
            true => not_sent(),
            false => server.ask(at(now), &token(9), op.clone()),
        };
        round.handle_reply(node, outcome, None, at(0));
    }
}

#[test]
fn a_break_works_with_two_of_five_nodes_down_and_no_majority_holds_the_lock_then() {
    let mut servers: Vec<Server> = (0..5).map(|_| Server::new(0)).collect();
    let ballot = Ballot::new(servers[0].clock_us(at(0)));
    for server in &mut servers {
        let granted = server.ask(at(0), &token(1), acquire(ballot)).unwrap();
        assert_eq!(granted.answer, Answer::Granted);
    }
    let mut cluster = connected(&servers, at(1));
    let mut call = BreakCall::new(5);
    let next = loop {
        let mut round = call.begin(&mut cluster, at(1), PATIENCE);
        ask(&mut round, &mut servers, &[1, 3], ballot, 1);
        match call.conclude(&round) {
            BreakNext::Again => {}
            next => break next,
        }
    };
    let BreakNext::Broken { fence, holders } = next else {
        panic!("{next:?}");
    };
    assert!(fence > ballot && holders == 1);
    let mut extension = Extension::new(5, at(2), TTL, Drift::default(), CALL_TIMEOUT);
    for (node, server) in servers.iter_mut().enumerate() {
        let extend = Kind::Exclusive.extend(crate::message::Extend {
            ballot,
            ttl_ms: TTL.as_millis() as u64,
            delay_ms: 0,
        });
        let outcome = server.ask(at(2), &token(1), extend);
        extension.handle_reply(node, outcome, None, at(2));
    }
    assert_eq!(extension.verdict(), Some(ExtensionVerdict::Lost));
    assert_eq!(extension.to_restore().count(), 0);
}

#[test]
fn a_break_counts_with_a_majority_of_one_ballot() {
    let (mut call, mut round) = round(3);
    round.handle_reply(0, reply(removed(1)), None, at(0));
    assert_eq!(round.verdict(), None);
    round.handle_reply(2, reply(removed(0)), None, at(0));
    assert_eq!(round.verdict(), Some(BreakVerdict::Broken));
    assert!(matches!(
        call.conclude(&round),
        BreakNext::Broken { holders: 1, .. }
    ));
}

/// It has forgotten the fences that it accepted.
#[test]
fn a_node_in_quarantine_does_not_count_for_a_break() {
    let (mut call, mut round) = round(3);
    round.handle_reply(0, reply(removed(1)), None, at(0));
    round.handle_reply(1, reply(removed(0)), Some(quarantined(TTL)), at(0));
    round.handle_reply(2, not_sent(), None, at(0));
    assert_eq!(round.verdict(), Some(BreakVerdict::NoQuorum));
    assert_eq!(call.conclude(&round), BreakNext::NoQuorum);
}

#[test]
fn a_server_behind_two_nodes_counts_once_for_a_break() {
    let (_, mut round) = round(3);
    let mut same = reply(removed(1)).unwrap();
    same.standing.server = 7;
    round.handle_reply(0, Ok(same.clone()), None, at(0));
    round.handle_reply(1, Ok(same), None, at(0));
    round.handle_reply(2, not_sent(), None, at(0));
    assert_eq!(round.verdict(), Some(BreakVerdict::NoQuorum));
}

#[test]
fn a_refused_ballot_is_replaced_by_a_higher_one_and_not_for_ever() {
    let (mut call, mut first) = round(3);
    let mut rounds = 1;
    loop {
        for node in 0..3 {
            first.handle_reply(node, reply(Answer::Stale), None, at(0));
        }
        assert_eq!(first.verdict(), Some(BreakVerdict::Refused));
        match call.conclude(&first) {
            BreakNext::Again => rounds += 1,
            next => break assert_eq!(next, BreakNext::NoQuorum),
        }
        let servers: Vec<Server> = (0..3).map(|_| Server::new(0)).collect();
        first = call.begin(&mut connected(&servers, at(0)), at(0), PATIENCE);
    }
    assert_eq!(rounds, 12);
}

#[test]
fn a_later_holder_on_a_majority_stops_the_break() {
    let (mut call, mut round) = round(3);
    round.handle_reply(0, reply(removed(1)), None, at(0));
    round.handle_reply(1, reply(held(None)), None, at(0));
    round.handle_reply(2, reply(held(None)), None, at(0));
    assert_eq!(call.conclude(&round), BreakNext::Changed);
}

#[test]
fn a_break_waits_for_slow_nodes_until_its_timeout() {
    let (mut call, mut round) = round(3);
    round.handle_reply(0, reply(held(None)), None, at(0));
    round.handle_reply(1, reply(held(None)), None, at(0));
    assert_eq!(round.verdict(), None);
    assert_eq!(round.poll_timeout(), Some(at(1_000)));
    round.handle_timeout(at(999));
    assert_eq!(round.verdict(), None);
    round.handle_timeout(at(1_000));
    assert_eq!(call.conclude(&round), BreakNext::Changed);
    assert_eq!(round.votes().last(), Some(&Vote::TimedOut));
}
