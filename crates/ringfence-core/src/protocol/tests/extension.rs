//! Every combination of answers in a round of extending.

use super::*;

/// What one node does with the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Kept,
    Gone,
    Held,
    /// Has our token, but its answer does not count.
    YoungKept,
    /// Lost our token, but its answer does not count.
    YoungGone,
    /// One of the three failures, in turn.
    Failed,
    Silent,
}

const ACTS: [Act; 7] = [
    Act::Kept,
    Act::Gone,
    Act::Held,
    Act::YoungKept,
    Act::YoungGone,
    Act::Failed,
    Act::Silent,
];

fn outcome(act: Act, salt: usize) -> (Outcome, Option<Vote>) {
    let young = Some(quarantined(ms(30_000)));
    match act {
        Act::Kept | Act::Silent => (reply(Answer::Extended), None),
        Act::Gone => (reply(Answer::Gone), None),
        Act::Held => (reply(held(Some(500))), None),
        Act::YoungKept => (reply(Answer::Extended), young),
        Act::YoungGone => (reply(Answer::Gone), young),
        Act::Failed => match salt % 3 {
            0 => (not_sent(), None),
            1 => (unknown(), None),
            _ => (refused(TroubleKind::Newborn), None),
        },
    }
}

/// What follows from the nodes that have answered, with `open` still to answer.
fn judged(heard: &[Act], nodes: usize, open: usize, in_time: bool) -> Option<ExtensionVerdict> {
    let majority = nodes / 2 + 1;
    let count = |is: &[Act]| heard.iter().filter(|act| is.contains(act)).count();
    let kept = count(&[Act::Kept]);
    let lost = count(&[Act::Gone, Act::Held]);
    if kept >= majority && in_time {
        return Some(ExtensionVerdict::Extended {
            deadline: at(9_898),
        });
    }
    // Proof of loss: all other nodes together are not a majority.
    if nodes - lost < majority {
        return Some(ExtensionVerdict::Lost);
    }
    let may_extend = in_time && kept + open >= majority;
    let may_prove_loss = nodes - lost - open < majority;
    (!may_extend && !may_prove_loss).then_some(ExtensionVerdict::Unsure)
}

fn play(acts: &[Act], salt: usize, order: &[usize], pace: Duration) {
    let nodes = acts.len();
    let timeout = pace * (nodes as u32 + 1);
    let mut round = Extension::new(nodes, at(0), TTL, Drift::default(), timeout);
    let mut expected = None;
    let mut heard: Vec<usize> = Vec::new();
    let mut now = at(0);
    let check = |round: &Extension, expected: Option<ExtensionVerdict>, heard: &[usize]| {
        assert_eq!(
            round.verdict(),
            expected,
            "{acts:?} {order:?} {pace:?} after {heard:?}"
        );
        let open = expected.is_none();
        assert_eq!(round.poll_timeout(), open.then_some(at(0) + timeout));
        let restore = !matches!(expected, None | Some(ExtensionVerdict::Lost));
        let vacant: Vec<usize> = (0..nodes)
            .filter(|node| heard.contains(node))
            .filter(|node| restore && matches!(acts[*node], Act::Gone | Act::YoungGone))
            .collect();
        assert_eq!(round.to_restore().collect::<Vec<_>>(), vacant, "{acts:?}");
    };
    for &node in order {
        now = now + pace;
        if acts[node] != Act::Silent {
            let (outcome, quarantine) = outcome(acts[node], node + salt);
            round.handle_reply(node, outcome, quarantine, now);
            heard.push(node);
            let said: Vec<Act> = heard.iter().map(|node| acts[*node]).collect();
            let in_time = now < at(9_898);
            expected = expected.or_else(|| judged(&said, nodes, nodes - said.len(), in_time));
        }
        round.handle_timeout(now);
        check(&round, expected, &heard);
    }
    now = at(0) + timeout;
    round.handle_timeout(now);
    let said: Vec<Act> = heard.iter().map(|node| acts[*node]).collect();
    expected = expected.or_else(|| judged(&said, nodes, 0, now < at(9_898)));
    assert!(expected.is_some());
    check(&round, expected, &heard);
    // Late answers change only which nodes are restored.
    for node in order.iter().filter(|node| acts[**node] == Act::Silent) {
        round.handle_reply(*node, reply(Answer::Extended), None, now + pace);
        check(&round, expected, &heard);
    }
}

#[test]
fn every_combination_of_answers_gives_the_verdict_of_the_rules() {
    for nodes in 1..=5 {
        for (index, acts) in words(&ACTS, nodes) {
            for order in orders(nodes) {
                play(&acts, index / 5, &order, ms(1));
            }
        }
    }
}

/// The second answer arrives one millisecond before the new deadline, or after it.
#[test]
fn an_extension_confirmed_after_its_own_deadline_extends_nothing() {
    for nodes in 1..=4 {
        for (index, acts) in words(&ACTS, nodes) {
            for order in orders(nodes) {
                play(&acts, index, &order, ms(4_948));
                play(&acts, index, &order, ms(4_949));
                play(&acts, index, &order, ms(9_898));
            }
        }
    }
}

/// Two of five nodes are dead, and the key was deleted on the three that answer.
#[test]
fn loss_is_proved_even_if_dead_nodes_fail_first() {
    let mut round = Extension::new(5, at(0), TTL, Drift::default(), CALL_TIMEOUT);
    round.handle_reply(0, not_sent(), None, at(0));
    round.handle_reply(1, not_sent(), None, at(0));
    round.handle_reply(2, reply(Answer::Gone), None, at(1));
    round.handle_reply(3, reply(Answer::Gone), None, at(1));
    assert_eq!(round.verdict(), None);
    round.handle_reply(4, reply(Answer::Gone), None, at(1));
    assert_eq!(round.verdict(), Some(ExtensionVerdict::Lost));
    assert_eq!(round.to_restore().count(), 0);
}

#[test]
fn a_quarantined_node_proves_neither_loss_nor_hold_but_may_be_restored() {
    let mut round = Extension::new(3, at(0), TTL, Drift::default(), CALL_TIMEOUT);
    round.handle_reply(0, reply(Answer::Gone), Some(quarantined(ms(1))), at(1));
    round.handle_reply(1, reply(Answer::Gone), None, at(1));
    round.handle_reply(2, reply(Answer::Extended), Some(quarantined(ms(1))), at(1));
    assert_eq!(round.verdict(), Some(ExtensionVerdict::Unsure));
    assert_eq!(round.to_restore().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_node_that_reports_its_loss_after_the_verdict_is_restored() {
    let mut round = Extension::new(3, at(0), TTL, Drift::default(), CALL_TIMEOUT);
    round.handle_reply(0, reply(Answer::Extended), None, at(1));
    round.handle_reply(1, reply(Answer::Extended), None, at(1));
    assert_eq!(round.to_restore().count(), 0);
    round.handle_reply(2, reply(Answer::Gone), None, at(200));
    assert_eq!(round.to_restore().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_node_with_another_holder_is_not_restored() {
    let mut round = Extension::new(3, at(0), TTL, Drift::default(), CALL_TIMEOUT);
    round.handle_reply(0, reply(held(None)), None, at(1));
    round.handle_reply(1, reply(Answer::Extended), None, at(1));
    round.handle_reply(2, reply(Answer::Extended), None, at(1));
    assert_eq!(round.to_restore().count(), 0);
}

#[test]
fn a_missing_answer_is_no_proof_of_loss() {
    for nodes in 1..=5 {
        let mut round = Extension::new(nodes, at(0), TTL, Drift::default(), CALL_TIMEOUT);
        round.handle_timeout(at(99));
        assert_eq!(round.verdict(), None);
        round.handle_timeout(at(100));
        assert_eq!(round.verdict(), Some(ExtensionVerdict::Unsure));
    }
}

/// A broken hold is lost, with the reason in the votes.
#[test]
fn a_break_on_a_majority_proves_the_loss() {
    let note = || Box::new(crate::message::BreakNote::default());
    let mut round = Extension::new(3, at(0), TTL, Drift::default(), CALL_TIMEOUT);
    round.handle_reply(0, reply(Answer::Broken(note())), None, at(1));
    assert_eq!(round.verdict(), None);
    round.handle_reply(1, reply(Answer::Broken(note())), None, at(1));
    assert_eq!(round.verdict(), Some(ExtensionVerdict::Lost));
    assert_eq!(round.vote(0), &Vote::Broken(note()));
}
