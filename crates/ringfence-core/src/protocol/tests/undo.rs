//! One client's attempts on real ledgers: what a lost one leaves behind, and what its undo may do.

use super::super::attempt::Timing;
use super::*;

fn attempt(who: u64, ballot: Ballot, nodes: usize, t0: Timestamp) -> Attempt {
    let timing = Timing {
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        timeout: t0 + CALL_TIMEOUT,
        reply_by: None,
    };
    let suspects = vec![false; nodes];
    Attempt::new(token(who), ballot, None, t0, timing, suspects.into_iter())
}

fn ballot(more: u64) -> Ballot {
    Ballot::new(START_US + more)
}

/// Proposes to one node and hands its answer to the attempt.
fn ask(attempt: &mut Attempt, servers: &mut [Server], node: usize, now: Timestamp) -> Answer {
    let outcome = servers[node].ask(now, attempt.token(), acquire(attempt.ballot()));
    attempt.handle_reply(node, outcome.clone(), None, now);
    outcome.unwrap().answer
}

/// Undoes what `attempt` may have left. Returns the nodes that got the undo, and their answers.
fn undo_all(
    attempt: &Attempt,
    kind: ReleaseKind,
    servers: &mut [Server],
    now: Timestamp,
) -> Vec<(usize, Answer)> {
    let targets = attempt.remains();
    let mut machine = PendingRelease::new(kind, targets, now, now + TTL, CALL_TIMEOUT);
    let mut told = Vec::new();
    while let Some((node, fate_unknown)) = machine.poll_send(now) {
        let op = Op::Release(Release {
            ballot: attempt.ballot(),
            kind,
            fate_unknown,
            ticket: None,
            stays: true,
            keep_ms: None,
            delay_ms: 0,
        });
        let outcome = servers[node].ask(now, attempt.token(), op);
        machine.handle_reply(node, outcome.clone(), None, now);
        told.push((node, outcome.unwrap().answer));
    }
    assert!(machine.is_settled());
    told
}

fn holder(server: &mut Server, now: Timestamp) -> Option<String> {
    match server.ask(now, &token(0), Op::Inspect).unwrap().answer {
        Answer::Views(mut views) => views.remove(0).holder.and_then(|holder| holder.id),
        other => panic!("inspect answered {other:?}"),
    }
}

#[test]
fn late_replies_to_an_earlier_ballot_do_not_count() {
    let mut servers = vec![Server::new(0); 3];
    let mut first = attempt(1, ballot(0), 3, at(0));
    first.handle_timeout(at(100));
    assert_eq!(first.verdict(), Some(AttemptVerdict::Lost(Loss::NoQuorum)));
    let second = attempt(1, ballot(1), 3, at(101));
    for node in 0..3 {
        assert_eq!(
            ask(&mut first, &mut servers, node, at(102)),
            Answer::Granted
        );
    }
    assert_eq!(first.verdict(), Some(AttemptVerdict::Lost(Loss::NoQuorum)));
    assert_eq!(second.verdict(), None);
    assert!(second.votes().all(|vote| *vote == Vote::Pending));
}

/// Granted on the first node, held on the second, and the third never answered: its acquire is
/// still on its way, and is refused when it arrives.
#[test]
fn a_lost_attempt_is_undone_where_it_may_have_arrived() {
    let mut servers = vec![Server::new(0); 3];
    let mut rival = attempt(2, ballot(0), 3, at(0));
    ask(&mut rival, &mut servers, 1, at(0));
    let mut lost = attempt(1, ballot(1), 3, at(0));
    ask(&mut lost, &mut servers, 0, at(1));
    ask(&mut lost, &mut servers, 1, at(1));
    lost.handle_timeout(at(100));
    assert_eq!(lost.verdict(), Some(AttemptVerdict::Lost(Loss::Held)));
    let told = undo_all(&lost, ReleaseKind::Undo, &mut servers, at(101));
    assert_eq!(told, [(0, Answer::Released), (2, Answer::Gone)]);
    assert_eq!(holder(&mut servers[0], at(102)), None);
    assert_eq!(ask(&mut lost, &mut servers, 2, at(103)), Answer::Stale);
    assert_eq!(holder(&mut servers[2], at(104)), None);
    assert_eq!(
        holder(&mut servers[1], at(104)).as_deref(),
        Some(token(2).id())
    );
}

/// If an undo retired the ballot on every node, polling clients would starve the waiters.
#[test]
fn an_undo_raises_no_fence_on_a_node_that_refused_the_attempt() {
    let mut servers = vec![Server::new(0); 3];
    let mut rival = attempt(2, ballot(0), 3, at(0));
    for node in 0..3 {
        ask(&mut rival, &mut servers, node, at(0));
    }
    let before: Vec<Entry> = servers.iter().map(|server| server.entry.clone()).collect();
    let mut lost = attempt(1, ballot(1), 3, at(0));
    for node in 0..3 {
        ask(&mut lost, &mut servers, node, at(1));
    }
    assert_eq!(undo_all(&lost, ReleaseKind::Undo, &mut servers, at(2)), []);
    let after: Vec<Entry> = servers.iter().map(|server| server.entry.clone()).collect();
    assert_eq!(after, before);
}

/// The next attempt overtakes the undo of the one before.
#[test]
fn our_own_partial_grants_do_not_block_our_next_attempt() {
    let mut servers = vec![Server::new(0); 3];
    let mut first = attempt(1, ballot(0), 3, at(0));
    assert_eq!(ask(&mut first, &mut servers, 0, at(0)), Answer::Granted);
    let mut second = attempt(1, ballot(1), 3, at(1));
    for node in 0..3 {
        assert_eq!(ask(&mut second, &mut servers, node, at(1)), Answer::Granted);
    }
    let told = undo_all(&first, ReleaseKind::Undo, &mut servers, at(2));
    assert!(
        told.iter().all(|(_, answer)| *answer == Answer::Newer),
        "{told:?}"
    );
    for server in &mut servers {
        assert_eq!(holder(server, at(3)).as_deref(), Some(token(1).id()));
    }
}

/// Two of four nodes each: if partial grants were kept, no client could ever win.
#[test]
fn partial_grants_are_never_kept() {
    let mut servers = vec![Server::new(0); 4];
    let mut one = attempt(1, ballot(0), 4, at(0));
    let mut two = attempt(2, ballot(1), 4, at(0));
    for (node, first) in [(0, true), (1, true), (2, false), (3, false)] {
        let (first, second) = if first {
            (&mut one, &mut two)
        } else {
            (&mut two, &mut one)
        };
        assert_eq!(ask(first, &mut servers, node, at(1)), Answer::Granted);
        assert!(matches!(
            ask(second, &mut servers, node, at(1)),
            Answer::Held(_)
        ));
    }
    for lost in [&one, &two] {
        assert_eq!(lost.verdict(), Some(AttemptVerdict::Lost(Loss::Held)));
        assert_eq!(
            undo_all(lost, ReleaseKind::Undo, &mut servers, at(2)).len(),
            2
        );
    }
    let mut retry = attempt(1, ballot(2), 4, at(3));
    for node in 0..4 {
        assert_eq!(ask(&mut retry, &mut servers, node, at(3)), Answer::Granted);
    }
}

#[test]
fn a_final_release_goes_to_all_nodes() {
    let mut servers = vec![Server::new(0); 3];
    let mut won = attempt(1, ballot(0), 3, at(0));
    ask(&mut won, &mut servers, 0, at(0));
    ask(&mut won, &mut servers, 1, at(0));
    won.handle_reply(2, not_sent(), None, at(0));
    assert!(matches!(won.verdict(), Some(AttemptVerdict::Won { .. })));
    let told = undo_all(&won, ReleaseKind::Final, &mut servers, at(1));
    assert_eq!(
        told,
        [
            (0, Answer::Released),
            (1, Answer::Released),
            (2, Answer::Gone)
        ]
    );
}

/// The third node has not answered, so something may still be under way to it: the release closes
/// the ballot there. To the others nothing is under way.
#[test]
fn a_released_lock_is_not_brought_back_by_a_late_restore() {
    let mut servers = vec![Server::new(0); 3];
    let mut won = attempt(1, ballot(0), 3, at(0));
    for node in 0..2 {
        ask(&mut won, &mut servers, node, at(0));
    }
    undo_all(&won, ReleaseKind::Final, &mut servers, at(1));
    let restore = Op::Restore(Restore {
        ballot: won.ballot(),
        ttl_ms: 10_000,
        label: Arc::from("job"),
    });
    let late = servers[2].ask(at(2), won.token(), restore).unwrap();
    assert_eq!(late.answer, Answer::Gone);
}
