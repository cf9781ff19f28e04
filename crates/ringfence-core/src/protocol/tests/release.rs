//! Release and undo: which nodes get it, how often and until when, and the verdict.

use std::collections::BTreeMap;

use super::*;

/// What one node does with a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Released,
    Gone,
    Held,
    Newer,
    /// One of the three failures, in turn.
    Failed,
    Silent,
}

const ACTS: [Act; 6] = [
    Act::Released,
    Act::Gone,
    Act::Held,
    Act::Newer,
    Act::Failed,
    Act::Silent,
];
const TARGETS: [Target; 3] = [Target::Holds, Target::Unknown, Target::Nothing];
const UNTIL_MS: u64 = 10_000;

fn outcome(act: Act, salt: usize) -> Option<Outcome> {
    Some(match act {
        Act::Released => reply(Answer::Released),
        Act::Gone => reply(Answer::Gone),
        Act::Held => reply(held(Some(500))),
        Act::Newer => reply(Answer::Newer),
        Act::Failed => match salt % 3 {
            0 => not_sent(),
            1 => unknown(),
            _ => refused(TroubleKind::Loading),
        },
        Act::Silent => return None,
    })
}

fn pending_release(kind: ReleaseKind, targets: &[Target]) -> PendingRelease {
    PendingRelease::new(kind, targets.to_vec(), at(0), at(UNTIL_MS), CALL_TIMEOUT)
}

/// The visible effects of a whole run.
struct Run {
    /// When each node got the release.
    sent_at: Vec<Vec<Timestamp>>,
    verdict: Option<ReleaseVerdict>,
    settled_at: Timestamp,
}

/// Runs a release to its end against nodes that act as `act(node, try)`, each after a millisecond.
/// Works like the runtime: sends what is due, then handles the next reply.
fn run(
    kind: ReleaseKind,
    targets: &[Target],
    salt: usize,
    act: impl Fn(usize, usize) -> Act,
) -> Run {
    let mut machine = pending_release(kind, targets);
    let mut now = at(0);
    let mut sent_at = vec![Vec::new(); targets.len()];
    let mut coming: BTreeMap<(Timestamp, usize), Outcome> = BTreeMap::new();
    let mut verdict = None;
    for _ in 0..1_000 {
        while let Some((node, fate_unknown)) = machine.poll_send(now) {
            assert_eq!(fate_unknown, targets[node] == Target::Unknown);
            sent_at[node].push(now);
            if let Some(outcome) = outcome(act(node, sent_at[node].len()), salt + node) {
                coming.insert((now + ms(1), node), outcome);
            }
        }
        verdict = verdict.or(machine.verdict());
        let timeout = machine.poll_timeout();
        assert_eq!(timeout.is_none(), machine.is_settled());
        assert!(timeout.is_none_or(|at| at > now), "a busy loop at {now:?}");
        let reply = coming.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = reply.into_iter().chain(timeout).min() else {
            break;
        };
        now = next;
        match coming.first_entry() {
            Some(first) if first.key().0 == now => {
                let ((_, node), outcome) = first.remove_entry();
                machine.handle_reply(node, outcome, None, now);
            }
            _ => machine.handle_timeout(now),
        }
    }
    assert!(machine.is_settled(), "still retrying after the limit");
    Run {
        sent_at,
        verdict,
        settled_at: now,
    }
}

/// The verdict of a final release after every node has answered or had its time.
fn judged(acts: &[Act]) -> ReleaseVerdict {
    let majority = acts.len() / 2 + 1;
    let count = |is: &[Act]| acts.iter().filter(|act| is.contains(act)).count();
    let released = count(&[Act::Released]);
    let unheard = count(&[Act::Failed, Act::Silent]);
    if released >= majority {
        ReleaseVerdict::Released
    } else if acts.len() - unheard < majority || released + unheard >= majority {
        // Nodes without an answer may have held the lock together with those that released it.
        ReleaseVerdict::Unconfirmed
    } else if count(&[Act::Held]) > 0 {
        ReleaseVerdict::Taken
    } else {
        ReleaseVerdict::Expired
    }
}

#[test]
fn every_combination_of_answers_gives_the_verdict_of_the_rules() {
    for nodes in 1..=5 {
        for (index, acts) in words(&ACTS, nodes) {
            let targets = vec![Target::Holds; nodes];
            let run = run(ReleaseKind::Final, &targets, index, |node, tries| {
                match acts[node] {
                    // A node that could not be reached gets the release in the end, after the
                    // verdict.
                    Act::Failed | Act::Silent if tries > 3 => Act::Gone,
                    act => act,
                }
            });
            let verdict = run.verdict.unwrap();
            let expected = judged(&acts);
            // A last answer of `Held` may come after the verdict.
            let taken_late = verdict == ReleaseVerdict::Expired
                && expected == ReleaseVerdict::Taken
                && nodes > 1;
            assert!(verdict == expected || taken_late, "{acts:?}: {verdict:?}");
            for (node, sent_at) in run.sent_at.iter().enumerate() {
                let tries = match acts[node] {
                    Act::Failed | Act::Silent => 4,
                    _ => 1,
                };
                assert_eq!(sent_at.len(), tries, "{acts:?}");
            }
        }
    }
}

#[test]
fn each_target_gets_the_release_as_often_as_it_needs() {
    for nodes in 1..=3 {
        for kind in [ReleaseKind::Final, ReleaseKind::Undo] {
            for (_, targets) in words(&TARGETS, nodes) {
                for (index, acts) in words(&ACTS, nodes) {
                    let run = run(kind, &targets, index, |node, _| acts[node]);
                    check_targets(kind, &targets, &acts, &run);
                }
            }
        }
    }
}

fn check_targets(kind: ReleaseKind, targets: &[Target], acts: &[Act], run: &Run) {
    assert_eq!(run.verdict.is_some(), kind == ReleaseKind::Final);
    assert!(run.settled_at <= at(UNTIL_MS) + CALL_TIMEOUT);
    for (node, sent_at) in run.sent_at.iter().enumerate() {
        let deaf = matches!(acts[node], Act::Failed | Act::Silent);
        let why = format!("{kind:?} {targets:?} {acts:?}: {sent_at:?}");
        match (kind, targets[node]) {
            // The node holds nothing of the attempt.
            (ReleaseKind::Undo, Target::Nothing) => assert!(sent_at.is_empty(), "{why}"),
            // Sent once, as a precaution.
            (ReleaseKind::Final, Target::Nothing) => assert_eq!(sent_at.len(), 1, "{why}"),
            _ if !deaf => assert_eq!(sent_at.len(), 1, "{why}"),
            _ => {
                // Resent until every lease has ended.
                let last = *sent_at.last().unwrap();
                assert!(sent_at.len() > 5 && sent_at.len() < 30, "{why}");
                assert!(last < at(UNTIL_MS), "{why}");
                assert!(last > at(UNTIL_MS) - ms(1_200), "{why}");
                let longest = sent_at.windows(2).map(|two| two[1].since(two[0])).max();
                assert!(longest <= Some(ms(1_100)), "{why}");
            }
        }
    }
}

#[test]
fn a_release_is_confirmed_by_a_majority_without_waiting_for_the_rest() {
    let mut machine = pending_release(ReleaseKind::Final, &[Target::Holds; 3]);
    while machine.poll_send(at(0)).is_some() {}
    machine.handle_reply(2, reply(Answer::Released), None, at(1));
    assert_eq!(machine.verdict(), None);
    machine.handle_reply(0, reply(Answer::Released), None, at(2));
    assert_eq!(machine.verdict(), Some(ReleaseVerdict::Released));
    assert!(
        !machine.is_settled(),
        "the third node has not got the release"
    );
}

/// One of three is dead: the two other answers do not decide whether a majority held the lock.
#[test]
fn a_release_is_unconfirmed_if_a_missing_answer_could_have_confirmed_it() {
    let mut machine = pending_release(ReleaseKind::Final, &[Target::Holds; 3]);
    while machine.poll_send(at(0)).is_some() {}
    machine.handle_reply(0, reply(Answer::Released), None, at(1));
    machine.handle_reply(1, reply(held(None)), None, at(1));
    assert_eq!(machine.verdict(), None);
    machine.handle_reply(2, not_sent(), None, at(1));
    assert_eq!(machine.verdict(), Some(ReleaseVerdict::Unconfirmed));
}

#[test]
fn a_repeated_request_that_finds_nothing_does_not_change_the_first_answer() {
    let mut machine = pending_release(ReleaseKind::Final, &[Target::Holds]);
    assert_eq!(machine.poll_send(at(0)), Some((0, false)));
    machine.handle_timeout(at(100));
    assert_eq!(machine.poll_send(at(120)), Some((0, false)));
    machine.handle_reply(0, reply(Answer::Released), None, at(121));
    machine.handle_reply(0, reply(Answer::Gone), None, at(122));
    assert_eq!(machine.verdict(), Some(ReleaseVerdict::Released));
}

#[test]
fn a_late_failure_does_not_reopen_an_acknowledged_release() {
    for target in TARGETS {
        let mut machine = pending_release(ReleaseKind::Final, &[target]);
        machine.poll_send(at(0));
        machine.handle_timeout(at(100));
        machine.poll_send(at(120));
        machine.handle_reply(0, reply(Answer::Gone), None, at(121));
        assert!(machine.is_settled());
        machine.handle_reply(0, unknown(), None, at(122));
        assert!(machine.is_settled(), "{target:?}");
        assert_eq!(machine.poll_send(at(9_000)), None);
    }
}

/// A runtime that was paused for the whole TTL has nothing left to send.
#[test]
fn nothing_is_sent_after_the_last_lease_has_ended() {
    let mut machine = pending_release(ReleaseKind::Undo, &[Target::Holds, Target::Unknown]);
    assert_eq!(machine.poll_send(at(0)), Some((0, false)));
    machine.handle_timeout(at(UNTIL_MS));
    assert!(machine.is_settled());
    assert_eq!(machine.poll_send(at(UNTIL_MS)), None);
}

#[test]
fn an_undo_of_nothing_is_settled_from_the_start() {
    let mut machine = pending_release(ReleaseKind::Undo, &[Target::Nothing; 3]);
    assert!(machine.is_settled());
    assert_eq!(machine.poll_send(at(0)), None);
    assert_eq!(machine.poll_timeout(), None);
}

const KEEP_MS: u64 = 60_000;

/// Runs a release that keeps the lock. Returns for each node when it was sent, and whether with
/// unknown fate.
fn keep(
    targets: &[Target],
    heard: impl Fn(usize, Timestamp) -> Option<Answer>,
) -> Vec<Vec<(Timestamp, bool)>> {
    let mut machine = pending_release(ReleaseKind::Final, targets).keeping(Some(at(KEEP_MS)));
    let mut sent_at = vec![Vec::new(); targets.len()];
    let mut now = at(0);
    for _ in 0..1_000 {
        machine.handle_timeout(now);
        while let Some((node, fate_unknown)) = machine.poll_send(now) {
            sent_at[node].push((now, fate_unknown));
            let outcome = heard(node, now).map_or_else(not_sent, reply);
            machine.handle_reply(node, outcome, None, now);
        }
        match machine.poll_timeout() {
            Some(next) => now = next,
            None => return sent_at,
        }
    }
    panic!("still retrying after the limit");
}

#[test]
fn a_release_that_keeps_is_resent_after_the_lease_until_a_majority_has_it() {
    let back = at(30_000);
    let sent_at = keep(&TARGETS, |_, now| (now >= back).then_some(Answer::Gone));
    let last = |sent_at: &Vec<(Timestamp, bool)>| sent_at.last().unwrap().0;
    let heard = sent_at
        .iter()
        .filter(|sent_at| last(sent_at) >= back)
        .count();
    assert!(heard >= 2, "{sent_at:?}");
    assert!(
        sent_at
            .iter()
            .all(|sent_at| last(sent_at) < back + ms(1_100))
    );
    // At the first request the node itself knows best whether it still has the lock.
    assert_eq!(sent_at[0][0], (at(0), false));
    let mut later = sent_at
        .iter()
        .flatten()
        .filter(|sent_at| **sent_at != (at(0), false));
    assert!(later.all(|(_, fate_unknown)| *fate_unknown), "{sent_at:?}");
}

#[test]
fn a_release_that_keeps_is_resent_until_the_keep_time_is_over() {
    for sent_at in keep(&TARGETS, |_, _| None) {
        let last = sent_at.last().unwrap().0;
        assert!(last < at(KEEP_MS) && last > at(KEEP_MS) - ms(1_200));
    }
}

#[test]
fn a_node_with_another_holder_does_not_keep_the_lock() {
    let sent_at = keep(&[Target::Holds; 3], |node, now| match node {
        0 => Some(Answer::Released),
        1 => Some(held(Some(500))),
        _ => (now >= at(30_000)).then_some(Answer::Gone),
    });
    assert_eq!((sent_at[0].len(), sent_at[1].len()), (1, 1));
    assert!(sent_at[2].last().unwrap().0 >= at(30_000));
}

#[test]
fn once_a_majority_keeps_it_the_others_get_the_release_only_during_the_lease() {
    let targets = [Target::Holds, Target::Holds, Target::Holds, Target::Nothing];
    let sent_at = keep(&targets, |node, _| match node {
        0 | 1 => Some(Answer::Released),
        2 => None,
        _ => Some(Answer::Gone),
    });
    let last = sent_at[2].last().unwrap().0;
    assert!(last < at(UNTIL_MS) && last > at(UNTIL_MS) - ms(1_200));
}
