//! Every combination of votes, in several orders, compared with what the rules require.

use super::super::attempt::Timing;
use super::*;

/// What one node does with the proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Granted,
    Held,
    Stale,
    Ahead,
    /// Granted, but the answer does not count.
    Quarantined,
    /// One of the three failures, in turn.
    Failed,
    /// Granted, but the answer arrives after the timeout.
    Late,
    Never,
}

const ACTS: [Act; 8] = [
    Act::Granted,
    Act::Held,
    Act::Stale,
    Act::Ahead,
    Act::Quarantined,
    Act::Failed,
    Act::Late,
    Act::Never,
];

/// What the client knows about one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Waiting,
    Granted,
    Held,
    Stale,
    Ahead,
    /// Holds our token, but does not count.
    Young,
    /// Failed without any effect.
    Untouched,
    /// Failed with unknown effect.
    Unclear,
    /// Timed out.
    Silent,
}

impl Known {
    fn answered(self) -> bool {
        matches!(self, Self::Granted | Self::Held | Self::Stale | Self::Ahead)
    }

    fn target(self) -> Target {
        match self {
            Self::Granted | Self::Young => Target::Holds,
            Self::Waiting | Self::Silent | Self::Unclear => Target::Unknown,
            Self::Held | Self::Stale | Self::Ahead | Self::Untouched => Target::Nothing,
        }
    }
}

/// The rules, written a second time: what is known about each node, and what follows from it.
struct Oracle {
    known: Vec<Known>,
    suspect: Vec<bool>,
    verdict: Option<AttemptVerdict>,
}

impl Oracle {
    fn count(&self, is: impl Fn(Known) -> bool) -> usize {
        self.known.iter().filter(|known| is(**known)).count()
    }

    fn judge(&mut self, now: Timestamp, deadline: Timestamp) {
        if self.verdict.is_none() {
            self.verdict = self.judged(now, deadline);
        }
    }

    fn judged(&self, now: Timestamp, deadline: Timestamp) -> Option<AttemptVerdict> {
        let majority = self.known.len() / 2 + 1;
        let granted = self.count(|known| known == Known::Granted);
        if granted >= majority {
            let in_time = now + MIN_VALIDITY <= deadline;
            return Some(if in_time {
                AttemptVerdict::Won { deadline }
            } else {
                AttemptVerdict::Lost(Loss::Late)
            });
        }
        // A node whose last call timed out is waited for only if the others are too few.
        let able = |known: Known| known == Known::Waiting || known.answered();
        let nodes = || self.known.iter().zip(&self.suspect);
        let others = nodes().filter(|(known, suspect)| !**suspect && able(**known));
        let without_suspects = others.count() >= majority;
        let open = nodes()
            .filter(|(known, suspect)| {
                **known == Known::Waiting && !(without_suspects && **suspect)
            })
            .count();
        let answered = self.count(Known::answered);
        if granted + open >= majority || (answered < majority && open > 0) {
            return None;
        }
        let stale = granted + self.count(|known| known == Known::Stale);
        let wrong = stale + self.count(|known| known == Known::Ahead);
        let loss = match answered {
            few if few < majority => Loss::NoQuorum,
            _ if stale >= majority => Loss::Stale,
            _ if wrong >= majority => Loss::Skewed,
            _ => Loss::Held,
        };
        Some(AttemptVerdict::Lost(loss))
    }
}

pub(super) fn attempt(suspects: &[bool], timeout: Timestamp) -> Attempt {
    let timing = Timing {
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        timeout,
        reply_by: None,
    };
    let ballot = Ballot::new(START_US);
    Attempt::new(
        token(1),
        ballot,
        None,
        at(0),
        timing,
        suspects.iter().copied(),
    )
}

/// The node's answer, whether it counts, and what the client then knows.
fn outcome(act: Act, salt: usize) -> (Outcome, Option<Vote>, Known) {
    let said = |answer, known| (reply(answer), None, known);
    match act {
        Act::Granted | Act::Late | Act::Never => said(Answer::Granted, Known::Granted),
        Act::Held => said(held(Some(500)), Known::Held),
        Act::Stale => said(Answer::Stale, Known::Stale),
        Act::Ahead => said(Answer::Ahead, Known::Ahead),
        Act::Quarantined => (
            reply(Answer::Granted),
            Some(quarantined(ms(30_000))),
            Known::Young,
        ),
        Act::Failed => match salt % 3 {
            0 => (not_sent(), None, Known::Untouched),
            1 => (unknown(), None, Known::Unclear),
            _ => (refused(TroubleKind::Loading), None, Known::Untouched),
        },
    }
}

/// Compares `attempt`, which has until `timeout`, with the rules. `run` describes the run.
fn check(attempt: &Attempt, oracle: &Oracle, timeout: Timestamp, run: &str) {
    let known = &oracle.known;
    assert_eq!(attempt.verdict(), oracle.verdict, "{run}: {known:?}");
    let open = attempt.verdict().is_none();
    assert_eq!(attempt.poll_timeout(), open.then_some(timeout));
    let targets: Vec<Target> = known.iter().map(|known| known.target()).collect();
    assert_eq!(attempt.remains(), targets, "{run}: {known:?}");
    // As long again as the attempt took, unless a node that answered has something to undo.
    let waiting = |known: &&Known| **known == Known::Waiting;
    let mut others = known.iter().filter(|known| !waiting(known));
    let nothing = others.all(|known| known.target() == Target::Nothing);
    let waits = nothing && known.iter().any(|known| waiting(&known));
    let until = attempt.undo_waits_until(at(5));
    assert_eq!(until, waits.then_some(at(10)), "{run}: {known:?}");
}

/// Runs one attempt in which a node answers every `pace`, and compares after every step.
fn play(acts: &[Act], salt: usize, order: &[usize], suspects: &[bool], pace: Duration) {
    let nodes = acts.len() as u32;
    let timeout = at(0) + pace * (nodes + 1);
    let deadline = at(0) + VALIDITY;
    let mut attempt = attempt(suspects, timeout);
    let mut oracle = Oracle {
        known: vec![Known::Waiting; acts.len()],
        suspect: suspects.to_vec(),
        verdict: None,
    };
    let run = format!("{acts:?} {order:?} {suspects:?} {pace:?}");
    let check = |attempt: &Attempt, oracle: &Oracle| check(attempt, oracle, timeout, &run);
    let mut now = at(0);
    check(&attempt, &oracle);
    for &node in order {
        now = now + pace;
        if !matches!(acts[node], Act::Late | Act::Never) {
            let (outcome, quarantine, known) = outcome(acts[node], node + salt);
            attempt.handle_reply(node, outcome, quarantine, now);
            oracle.known[node] = known;
            oracle.judge(now, deadline);
        }
        attempt.handle_timeout(now);
        check(&attempt, &oracle);
    }
    attempt.handle_timeout(timeout);
    if oracle.verdict.is_none() {
        for known in &mut oracle.known {
            if *known == Known::Waiting {
                *known = Known::Silent;
            }
        }
        oracle.judge(timeout, deadline);
    }
    check(&attempt, &oracle);
    assert!(attempt.verdict().is_some(), "{acts:?}: the timeout ends it");
    for &node in order.iter().filter(|node| acts[**node] == Act::Late) {
        let (outcome, quarantine, known) = outcome(Act::Late, 0);
        attempt.handle_reply(node, outcome, quarantine, timeout + pace);
        oracle.known[node] = known;
        check(&attempt, &oracle);
    }
    attempt.handle_timeout(timeout + pace * 2);
    check(&attempt, &oracle);
}

#[test]
fn every_combination_of_votes_gives_the_verdict_of_the_rules() {
    for nodes in 1..=5 {
        for (index, acts) in words(&ACTS, nodes) {
            for order in orders(nodes) {
                play(&acts, index / 7, &order, &vec![false; nodes], ms(1));
            }
        }
    }
}

/// So slow that the second answer still leaves enough validity and the third does not.
#[test]
fn a_majority_that_comes_too_late_is_lost() {
    for nodes in 1..=4 {
        for (index, acts) in words(&ACTS, nodes) {
            for order in orders(nodes) {
                play(&acts, index, &order, &vec![false; nodes], ms(4_449));
                play(&acts, index, &order, &vec![false; nodes], ms(8_899));
            }
        }
    }
}

#[test]
fn suspects_change_only_when_an_attempt_is_lost() {
    for nodes in 1..=4 {
        for (index, acts) in words(&ACTS, nodes) {
            for (_, suspects) in words(&[false, true], nodes) {
                play(&acts, index, &orders(nodes)[index % 3], &suspects, ms(1));
            }
        }
    }
}

/// The latest acceptable grant is exactly `min_validity` before the deadline.
#[test]
fn a_grant_below_min_validity_is_not_won() {
    for (now, won) in [(8_898, true), (8_899, false)] {
        let mut attempt = attempt(&[false], at(60_000));
        attempt.handle_reply(0, reply(Answer::Granted), None, at(now));
        let expected = match won {
            true => AttemptVerdict::Won {
                deadline: at(9_898),
            },
            false => AttemptVerdict::Lost(Loss::Late),
        };
        assert_eq!(attempt.verdict(), Some(expected));
    }
}

/// A very fast or very slow round says little about the nodes that have not answered yet.
#[test]
fn an_undo_waits_for_answers_within_limits() {
    let mut attempt = attempt(&[false; 5], at(60_000));
    for node in 0..3 {
        attempt.handle_reply(node, reply(held(None)), None, at(0));
    }
    for (now, until) in [(0, 2), (1, 3), (3, 6), (15, 30), (900, 920)] {
        assert_eq!(attempt.undo_waits_until(at(now)), Some(at(until)));
    }
    attempt.handle_reply(3, reply(held(None)), None, at(900));
    attempt.handle_reply(4, reply(held(None)), None, at(900));
    assert_eq!(attempt.undo_waits_until(at(900)), None);
}

/// The last calls to the hanging nodes timed out, so the verdict comes with the third answer, not
/// with the timeout.
#[test]
fn a_node_that_timed_out_does_not_delay_a_lost_verdict() {
    let mut attempt = attempt(&[false, false, true], at(100));
    attempt.handle_reply(0, reply(held(None)), None, at(1));
    assert_eq!(attempt.verdict(), None);
    attempt.handle_reply(1, reply(Answer::Granted), None, at(2));
    assert_eq!(attempt.verdict(), Some(AttemptVerdict::Lost(Loss::Held)));
}

#[test]
fn a_node_that_timed_out_is_waited_for_when_the_others_are_no_majority() {
    for others in [not_sent(), unknown(), refused(TroubleKind::Replica)] {
        let mut attempt = attempt(&[false, false, true], at(100));
        attempt.handle_reply(0, others, None, at(1));
        attempt.handle_reply(1, reply(Answer::Granted), None, at(2));
        assert_eq!(attempt.verdict(), None);
        attempt.handle_reply(2, reply(Answer::Granted), None, at(3));
        assert_eq!(
            attempt.verdict(),
            Some(AttemptVerdict::Won {
                deadline: at(9_898)
            })
        );
    }
}

#[test]
fn a_node_that_timed_out_may_still_help_to_win() {
    let mut attempt = attempt(&[false, false, true], at(100));
    attempt.handle_reply(0, reply(Answer::Granted), None, at(1));
    attempt.handle_reply(2, reply(Answer::Granted), None, at(2));
    assert_eq!(
        attempt.verdict(),
        Some(AttemptVerdict::Won {
            deadline: at(9_898)
        })
    );
}

/// Two dead nodes of five and a held lock: the first failure must not turn it into an outage.
#[test]
fn a_held_lock_is_no_outage_whichever_node_answers_first() {
    let mut attempt = attempt(&[false; 5], at(100));
    attempt.handle_reply(0, not_sent(), None, at(0));
    attempt.handle_reply(1, not_sent(), None, at(0));
    attempt.handle_reply(2, reply(held(None)), None, at(1));
    assert_eq!(attempt.verdict(), None);
    attempt.handle_reply(3, reply(held(None)), None, at(2));
    attempt.handle_reply(4, reply(held(None)), None, at(3));
    assert_eq!(attempt.verdict(), Some(AttemptVerdict::Lost(Loss::Held)));
}

#[test]
fn without_a_majority_every_node_that_may_answer_is_awaited() {
    let mut attempt = attempt(&[false; 3], at(100));
    attempt.handle_reply(0, not_sent(), None, at(1));
    attempt.handle_reply(
        1,
        reply(Answer::Granted),
        Some(quarantined(ms(30_000))),
        at(2),
    );
    assert_eq!(attempt.verdict(), None);
    attempt.handle_reply(
        2,
        reply(Answer::Granted),
        Some(quarantined(ms(30_000))),
        at(3),
    );
    assert_eq!(
        attempt.verdict(),
        Some(AttemptVerdict::Lost(Loss::NoQuorum))
    );
}

#[test]
fn a_quarantined_node_never_counts_whatever_it_answers() {
    for answer in [Answer::Granted, held(None), Answer::Stale, Answer::Ahead] {
        let mut attempt = attempt(&[false], at(100));
        attempt.handle_reply(0, reply(answer.clone()), Some(quarantined(ms(1))), at(1));
        assert_eq!(
            attempt.verdict(),
            Some(AttemptVerdict::Lost(Loss::NoQuorum))
        );
        let holds = answer == Answer::Granted;
        let expected = if holds {
            Target::Holds
        } else {
            Target::Nothing
        };
        assert_eq!(attempt.remains(), [expected]);
    }
}

#[test]
fn an_invalid_answer_costs_one_vote() {
    for answer in [Answer::Released, Answer::Newer, Answer::Views(Vec::new())] {
        let mut attempt = attempt(&[false; 3], at(100));
        attempt.handle_reply(0, reply(answer), None, at(1));
        assert!(attempt.votes().next().unwrap().is_misconfigured());
        attempt.handle_reply(1, reply(Answer::Granted), None, at(2));
        attempt.handle_reply(2, reply(Answer::Granted), None, at(3));
        let deadline = at(9_898);
        assert_eq!(attempt.verdict(), Some(AttemptVerdict::Won { deadline }));
    }
}
