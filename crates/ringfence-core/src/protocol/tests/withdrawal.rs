//! Taking back: whom to tell, how often, until when, and what it amounts to.

use std::collections::BTreeMap;

use super::*;

/// What one node does when it is told.
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
        Act::Released => says(Answer::Released),
        Act::Gone => says(Answer::Gone),
        Act::Held => says(held(Some(500))),
        Act::Newer => says(Answer::Newer),
        Act::Failed => match salt % 3 {
            0 => not_sent(),
            1 => unknown(),
            _ => refused(TroubleKind::Loading),
        },
        Act::Silent => return None,
    })
}

fn withdrawal(kind: ReleaseKind, targets: &[Target]) -> Withdrawal {
    Withdrawal::new(kind, targets.to_vec(), at(0), at(UNTIL_MS), CALL_TIMEOUT)
}

/// What a whole run of a withdrawal looked like from outside.
struct Run {
    /// When each node was told.
    told: Vec<Vec<Timestamp>>,
    verdict: Option<WithdrawalVerdict>,
    settled_at: Timestamp,
}

/// Runs a withdrawal to its end against nodes that act as `act(node, try)` says, each after a
/// millisecond, as a driver would: send what is due, then hand over what comes next.
fn run(
    kind: ReleaseKind,
    targets: &[Target],
    salt: usize,
    act: impl Fn(usize, usize) -> Act,
) -> Run {
    let mut machine = withdrawal(kind, targets);
    let mut now = at(0);
    let mut told = vec![Vec::new(); targets.len()];
    let mut coming: BTreeMap<(Timestamp, usize), Outcome> = BTreeMap::new();
    let mut verdict = None;
    for _ in 0..1_000 {
        while let Some((node, fate_unknown)) = machine.poll_send(now) {
            assert_eq!(fate_unknown, targets[node] == Target::Unknown);
            told[node].push(now);
            if let Some(outcome) = outcome(act(node, told[node].len()), salt + node) {
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
                machine.handle_reply(node, &outcome, now);
            }
            _ => machine.handle_timeout(now),
        }
    }
    assert!(machine.is_settled(), "it never ends");
    Run {
        told,
        verdict,
        settled_at: now,
    }
}

/// What a final release amounts to when every node has had its say or its chance.
fn judged(acts: &[Act]) -> WithdrawalVerdict {
    let majority = acts.len() / 2 + 1;
    let count = |is: &[Act]| acts.iter().filter(|act| is.contains(act)).count();
    let released = count(&[Act::Released]);
    let unheard = count(&[Act::Failed, Act::Silent]);
    if released >= majority {
        WithdrawalVerdict::Released
    } else if acts.len() - unheard < majority || released + unheard >= majority {
        // Those who said nothing may have held it with those who released it.
        WithdrawalVerdict::Unconfirmed
    } else if count(&[Act::Held]) > 0 {
        WithdrawalVerdict::Taken
    } else {
        WithdrawalVerdict::Expired
    }
}

#[test]
fn every_combination_of_answers_comes_to_the_verdict_of_the_rules() {
    for nodes in 1..=5 {
        for (index, acts) in words(&ACTS, nodes) {
            let targets = vec![Target::Holds; nodes];
            let run = run(ReleaseKind::Final, &targets, index, |node, tries| {
                match acts[node] {
                    // A node that could not be told is told in the end, after the verdict.
                    Act::Failed | Act::Silent if tries > 3 => Act::Gone,
                    act => act,
                }
            });
            let verdict = run.verdict.unwrap();
            let expected = judged(&acts);
            // Who answers Held last may come after the verdict.
            let taken_late = verdict == WithdrawalVerdict::Expired
                && expected == WithdrawalVerdict::Taken
                && nodes > 1;
            assert!(verdict == expected || taken_late, "{acts:?}: {verdict:?}");
            for (node, told) in run.told.iter().enumerate() {
                let tries = match acts[node] {
                    Act::Failed | Act::Silent => 4,
                    _ => 1,
                };
                assert_eq!(told.len(), tries, "{acts:?}");
            }
        }
    }
}

#[test]
fn nodes_are_told_as_their_target_demands() {
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
    for (node, told) in run.told.iter().enumerate() {
        let deaf = matches!(acts[node], Act::Failed | Act::Silent);
        let why = format!("{kind:?} {targets:?} {acts:?}: {told:?}");
        match (kind, targets[node]) {
            // It holds nothing of the attempt.
            (ReleaseKind::Undo, Target::Nothing) => assert!(told.is_empty(), "{why}"),
            // Said once, for good measure.
            (ReleaseKind::Final, Target::Nothing) => assert_eq!(told.len(), 1, "{why}"),
            _ if !deaf => assert_eq!(told.len(), 1, "{why}"),
            _ => {
                // Told again and again, until nothing of ours can be left.
                let last = *told.last().unwrap();
                assert!(told.len() > 5 && told.len() < 30, "{why}");
                assert!(last < at(UNTIL_MS), "{why}");
                assert!(last > at(UNTIL_MS) - ms(1_200), "{why}");
                let longest = told.windows(2).map(|two| two[1].since(two[0])).max();
                assert!(longest <= Some(ms(1_100)), "{why}");
            }
        }
    }
}

#[test]
fn a_release_is_confirmed_by_a_majority_without_waiting_for_the_rest() {
    let mut machine = withdrawal(ReleaseKind::Final, &[Target::Holds; 3]);
    while machine.poll_send(at(0)).is_some() {}
    machine.handle_reply(2, &says(Answer::Released), at(1));
    assert_eq!(machine.verdict(), None);
    machine.handle_reply(0, &says(Answer::Released), at(2));
    assert_eq!(machine.verdict(), Some(WithdrawalVerdict::Released));
    assert!(!machine.is_settled(), "the third is still to be told");
}

/// One of three is dead: what the two others say leaves open whether a majority held.
#[test]
fn a_release_that_a_silent_node_could_have_confirmed_is_unconfirmed() {
    let mut machine = withdrawal(ReleaseKind::Final, &[Target::Holds; 3]);
    while machine.poll_send(at(0)).is_some() {}
    machine.handle_reply(0, &says(Answer::Released), at(1));
    machine.handle_reply(1, &says(held(None)), at(1));
    assert_eq!(machine.verdict(), None);
    machine.handle_reply(2, &not_sent(), at(1));
    assert_eq!(machine.verdict(), Some(WithdrawalVerdict::Unconfirmed));
}

#[test]
fn a_second_try_that_finds_nothing_does_not_unsay_the_first() {
    let mut machine = withdrawal(ReleaseKind::Final, &[Target::Holds]);
    assert_eq!(machine.poll_send(at(0)), Some((0, false)));
    machine.handle_timeout(at(100));
    assert_eq!(machine.poll_send(at(120)), Some((0, false)));
    machine.handle_reply(0, &says(Answer::Released), at(121));
    machine.handle_reply(0, &says(Answer::Gone), at(122));
    assert_eq!(machine.verdict(), Some(WithdrawalVerdict::Released));
}

#[test]
fn a_late_failure_does_not_reopen_what_was_acknowledged() {
    for target in TARGETS {
        let mut machine = withdrawal(ReleaseKind::Final, &[target]);
        machine.poll_send(at(0));
        machine.handle_timeout(at(100));
        machine.poll_send(at(120));
        machine.handle_reply(0, &says(Answer::Gone), at(121));
        assert!(machine.is_settled());
        machine.handle_reply(0, &unknown(), at(122));
        assert!(machine.is_settled(), "{target:?}");
        assert_eq!(machine.poll_send(at(9_000)), None);
    }
}

/// A driver that stood still over the whole TTL finds nothing left to do.
#[test]
fn nothing_is_sent_once_nothing_of_ours_can_be_left() {
    let mut machine = withdrawal(ReleaseKind::Undo, &[Target::Holds, Target::Unknown]);
    assert_eq!(machine.poll_send(at(0)), Some((0, false)));
    machine.handle_timeout(at(UNTIL_MS));
    assert!(machine.is_settled());
    assert_eq!(machine.poll_send(at(UNTIL_MS)), None);
}

#[test]
fn an_undo_of_nothing_is_settled_from_the_start() {
    let mut machine = withdrawal(ReleaseKind::Undo, &[Target::Nothing; 3]);
    assert!(machine.is_settled());
    assert_eq!(machine.poll_send(at(0)), None);
    assert_eq!(machine.poll_timeout(), None);
}

const KEEP_MS: u64 = 60_000;

/// Tells nodes to keep a lock until all is settled; each is told when, and whether its fate is unknown.
fn keep(
    targets: &[Target],
    heard: impl Fn(usize, Timestamp) -> Option<Answer>,
) -> Vec<Vec<(Timestamp, bool)>> {
    let mut machine = withdrawal(ReleaseKind::Final, targets).keeping(Some(at(KEEP_MS)));
    let mut told = vec![Vec::new(); targets.len()];
    let mut now = at(0);
    for _ in 0..1_000 {
        machine.handle_timeout(now);
        while let Some((node, fate_unknown)) = machine.poll_send(now) {
            told[node].push((now, fate_unknown));
            let outcome = heard(node, now).map_or_else(not_sent, says);
            machine.handle_reply(node, &outcome, now);
        }
        match machine.poll_timeout() {
            Some(next) => now = next,
            None => return told,
        }
    }
    panic!("it never ends");
}

#[test]
fn what_is_to_be_kept_is_told_after_the_lease_until_a_majority_knows() {
    let back = at(30_000);
    let told = keep(&TARGETS, |_, now| (now >= back).then_some(Answer::Gone));
    let last = |told: &Vec<(Timestamp, bool)>| told.last().unwrap().0;
    let heard = told.iter().filter(|told| last(told) >= back).count();
    assert!(heard >= 2, "{told:?}");
    assert!(told.iter().all(|told| last(told) < back + ms(1_100)));
    // Whoever had it when it was first told knows better than we do whether it still has it.
    assert_eq!(told[0][0], (at(0), false));
    let mut later = told
        .iter()
        .flatten()
        .filter(|told| **told != (at(0), false));
    assert!(later.all(|(_, fate_unknown)| *fate_unknown), "{told:?}");
}

#[test]
fn what_nobody_can_be_told_to_keep_is_told_until_its_time_is_over() {
    for told in keep(&TARGETS, |_, _| None) {
        let last = told.last().unwrap().0;
        assert!(last < at(KEEP_MS) && last > at(KEEP_MS) - ms(1_200));
    }
}

#[test]
fn a_node_that_another_holds_does_not_keep_it() {
    let told = keep(&[Target::Holds; 3], |node, now| match node {
        0 => Some(Answer::Released),
        1 => Some(held(Some(500))),
        _ => (now >= at(30_000)).then_some(Answer::Gone),
    });
    assert_eq!((told[0].len(), told[1].len()), (1, 1));
    assert!(told[2].last().unwrap().0 >= at(30_000));
}

#[test]
fn once_a_majority_keeps_it_the_rest_is_told_while_the_lease_lasts() {
    let targets = [Target::Holds, Target::Holds, Target::Holds, Target::Nothing];
    let told = keep(&targets, |node, _| match node {
        0 | 1 => Some(Answer::Released),
        2 => None,
        _ => Some(Answer::Gone),
    });
    let last = told[2].last().unwrap().0;
    assert!(last < at(UNTIL_MS) && last > at(UNTIL_MS) - ms(1_200));
}
