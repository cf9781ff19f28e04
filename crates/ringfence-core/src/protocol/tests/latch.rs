//! Latches: which answers count, when a party has arrived, and when the latch may be reported as
//! open.

use super::*;
use crate::message::Arrivals;

const LIFE: Duration = Duration::from_secs(3600);
/// `Q` of 35 s as it is used.
const Q: Duration = Duration::from_millis(36_350);
const MADE_US: u64 = START_US - 600_000_000;

fn terms(nodes: usize, wait: Option<Duration>) -> LatchTerms {
    LatchTerms {
        nodes,
        count: 2,
        ttl: LIFE,
        call_timeout: CALL_TIMEOUT,
        wait,
        no_quorum_after: Duration::from_secs(15),
    }
}

fn parties(names: &str) -> Arc<[Arc<str>]> {
    let names = names.chars().map(|name| Arc::from(name.to_string()));
    names.collect()
}

/// The reply of a node that was born `ago`; `None`: it has no quarantine.
fn reported(since_us: Option<u64>, names: &str, ago: Option<Duration>) -> Outcome {
    Ok(Reply {
        stamp: Some(ReplyStamp {
            clock_us: START_US,
            floor: Ballot::default(),
        }),
        standing: Standing {
            incarnation: 1,
            born_us: ago.map_or(0, |ago| START_US - ago.as_micros() as u64),
            clock_us: START_US,
            server: 0,
            replicated: false,
            epoch: None,
        },
        answer: Answer::Arrivals(Arrivals {
            since_us,
            arrived: names.len() as u64,
            parties: parties(names).to_vec(),
        }),
    })
}

fn knows(names: &str) -> Outcome {
    reported(Some(MADE_US), names, None)
}

fn knows_nothing() -> Outcome {
    reported(None, "", None)
}

/// Nodes whose clocks are known, and nothing else.
fn known_clocks(nodes: usize) -> Cluster {
    let mut cluster = cluster_of(nodes);
    for node in 0..nodes {
        let mut facts = facts(START_US, at(0));
        facts.standing = None;
        cluster.observe_facts(node, &facts);
    }
    cluster
}

/// One round in which the nodes answer at once, in order.
fn round(call: &LatchCall, replies: impl IntoIterator<Item = Outcome>, nodes: usize) -> LatchRound {
    let mut round = call.begin(&known_clocks(nodes), at(0));
    for (node, reply) in replies.into_iter().enumerate() {
        round.handle_reply(node, reply, None, at(0));
    }
    round
}

fn add(names: &str, since_us: Option<u64>) -> Question {
    Question::Add {
        parties: parties(names),
        since_us,
    }
}

fn arriving(nodes: usize) -> LatchCall {
    LatchCall::arriving(terms(nodes, None), Arc::from("a"), at(0), 1)
}

fn waiting(nodes: usize, wait: Option<Duration>) -> LatchCall {
    LatchCall::waiting(terms(nodes, wait), at(0), 1)
}

fn kind(next: LatchNext) -> LatchFailureKind {
    match next {
        LatchNext::GiveUp(failure) => failure.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_round_is_enough_to_arrive_at_a_known_latch() {
    let mut call = arriving(3);
    let round = round(&call, [knows("a"), knows("a")], 3);
    assert_eq!(round.question(), &add("a", None));
    assert!(round.verdict().is_some(), "the third node is not awaited");
    assert_eq!(call.conclude(&round, at(0)), LatchNext::Done { arrived: 1 });
}

#[test]
fn a_latch_that_no_majority_knows_is_created_with_the_start_of_the_round() {
    let mut call = arriving(3);
    let first = round(&call, [knows_nothing(), knows_nothing(), not_sent()], 3);
    assert_eq!(call.conclude(&first, at(50)), LatchNext::Ask);
    let second = round(&call, [], 3);
    assert_eq!(second.question(), &add("a", Some(START_US)));
}

#[test]
fn the_creation_time_from_one_node_is_sent_to_the_others() {
    let mut call = arriving(3);
    let first = round(&call, [knows("a"), knows_nothing(), knows_nothing()], 3);
    assert_eq!(call.conclude(&first, at(0)), LatchNext::Ask);
    let second = round(&call, [], 3);
    assert_eq!(second.question(), &add("a", Some(MADE_US)));
}

#[test]
fn a_minority_that_stored_the_party_is_not_enough() {
    let mut call = arriving(3);
    let round = round(&call, [knows("a"), not_sent(), unknown()], 3);
    assert!(matches!(
        call.conclude(&round, at(0)),
        LatchNext::Rest { .. }
    ));
}

#[test]
fn all_parties_are_written_to_a_majority_before_the_latch_is_open() {
    let mut call = waiting(3, None);
    // Two parties, but no majority has stored both.
    let first = round(&call, [knows("a"), knows("b")], 3);
    assert_eq!(first.question(), &Question::Look);
    assert_eq!(call.conclude(&first, at(0)), LatchNext::Ask);
    let second = round(&call, [knows("ab")], 3);
    assert_eq!(second.question(), &add("ab", Some(MADE_US)));
    assert!(second.verdict().is_none());
    let second = round(&call, [knows("ab"), not_sent(), knows("ab")], 3);
    assert_eq!(
        call.conclude(&second, at(0)),
        LatchNext::Done { arrived: 2 }
    );
}

#[test]
fn a_write_back_that_no_majority_confirms_opens_nothing() {
    let mut call = waiting(3, None);
    let first = round(&call, [knows("a"), knows("b")], 3);
    call.conclude(&first, at(0));
    let second = round(&call, [knows("ab"), unknown(), unknown()], 3);
    assert!(matches!(
        call.conclude(&second, at(0)),
        LatchNext::Rest { .. }
    ));
}

#[test]
fn nothing_is_written_back_if_a_majority_has_all_parties() {
    let mut call = waiting(3, None);
    let round = round(&call, [knows("ab"), knows("ab")], 3);
    assert_eq!(call.conclude(&round, at(0)), LatchNext::Done { arrived: 2 });
}

#[test]
fn the_last_party_also_writes_back() {
    let mut call = arriving(5);
    let replies = [knows("ab"), knows("a"), knows("a"), not_sent(), not_sent()];
    let first = round(&call, replies, 5);
    assert_eq!(call.conclude(&first, at(0)), LatchNext::Ask);
    let second = round(&call, [knows("ab"), knows("ab"), knows("ab")], 5);
    assert_eq!(second.question(), &add("ab", Some(MADE_US)));
    assert_eq!(
        call.conclude(&second, at(0)),
        LatchNext::Done { arrived: 2 }
    );
}

/// It has lost arrivals, and later requests do not make up for them.
#[test]
fn a_node_that_was_born_after_the_latch_does_not_count() {
    let age = Duration::from_micros(START_US - MADE_US);
    let votes = |ago| {
        let call = waiting(3, None);
        let reborn = reported(Some(MADE_US), "ab", Some(ago));
        let round = round(&call, [knows("ab"), reborn, not_sent()], 3);
        let tally = round.tally(at(0));
        (tally.votes[1].clone(), tally.speaks)
    };
    assert_eq!(votes(age - ms(1)), (Vote::BornLater, false));
    // Nor if it was still in quarantine then: the nodes' clocks may differ by as much.
    assert_eq!(votes(age + Q - ms(1)), (Vote::BornLater, false));
    assert_eq!(votes(age + Q), (Vote::Granted, true));
}

#[test]
fn arrivals_on_a_node_that_does_not_count_are_still_collected() {
    let mut call = waiting(5, None);
    let reborn = reported(Some(MADE_US), "b", Some(Q));
    let replies = [reborn, knows("a"), knows("a"), knows("a"), not_sent()];
    let first = round(&call, replies, 5);
    assert_eq!(call.conclude(&first, at(0)), LatchNext::Ask);
    assert_eq!(round(&call, [], 5).question(), &add("ab", Some(MADE_US)));
}

#[test]
fn for_an_unknown_latch_a_node_must_be_older_than_the_lifetime_of_a_latch() {
    let born = |ago| {
        let mut call = arriving(3);
        let replies = [reported(None, "", Some(ago)), knows_nothing(), not_sent()];
        let round = round(&call, replies, 3);
        let vote = round.tally(at(0)).votes[0].clone();
        (vote, call.conclude(&round, at(0)))
    };
    let left = ms(1);
    let (vote, next) = born(LIFE + Q - left);
    assert_eq!(vote, Vote::Quarantined { left });
    assert!(matches!(next, LatchNext::Rest { .. }), "worth waiting for");
    let (vote, next) = born(Duration::from_secs(60));
    let left = LIFE + Q - Duration::from_secs(60);
    assert_eq!(vote, Vote::Quarantined { left });
    assert_eq!(kind(next), LatchFailureKind::Quarantined { left });
    assert_eq!(born(LIFE + Q), (Vote::Granted, LatchNext::Ask));
}

#[test]
fn a_single_node_counts_at_any_age() {
    let mut call = arriving(1);
    let first = round(&call, [reported(None, "", Some(ms(1)))], 1);
    assert_eq!(call.conclude(&first, at(0)), LatchNext::Ask);
    let second = round(&call, [reported(Some(START_US), "a", Some(ms(1)))], 1);
    assert_eq!(
        call.conclude(&second, at(0)),
        LatchNext::Done { arrived: 1 }
    );
}

#[test]
fn a_majority_born_after_the_latch_fails_at_once() {
    let mut call = waiting(3, None);
    let reborn = || reported(Some(MADE_US), "", Some(Q));
    let round = round(&call, [knows("ab"), reborn(), reborn()], 3);
    assert_eq!(
        kind(call.conclude(&round, at(0))),
        LatchFailureKind::NoQuorum
    );
}

#[test]
fn a_wait_ends_with_the_number_of_arrivals() {
    let mut call = waiting(3, Some(ms(500)));
    let one = round(&call, [knows("a"), knows("a")], 3);
    let LatchNext::Rest { at: again } = call.conclude(&one, at(0)) else {
        panic!("it waits");
    };
    assert_eq!(again, at(500), "not a moment longer");
    let shut = LatchFailureKind::Shut { arrived: 1 };
    assert_eq!(kind(call.conclude(&one, at(500))), shut);
}

#[test]
fn a_wait_that_ends_during_the_write_back_does_not_report_the_latch_as_shut() {
    let mut call = waiting(3, Some(ms(500)));
    let first = round(&call, [knows("a"), knows("b")], 3);
    assert_eq!(call.conclude(&first, at(0)), LatchNext::Ask);
    let second = round(&call, [knows("ab"), unknown(), unknown()], 3);
    let ended = kind(call.conclude(&second, at(500)));
    assert_eq!(ended, LatchFailureKind::NoQuorum);
}

#[test]
fn without_a_majority_it_ends_sooner() {
    let mut call = waiting(3, None);
    let round = round(&call, [knows("a"), not_sent(), not_sent()], 3);
    assert!(matches!(
        call.conclude(&round, at(14_999)),
        LatchNext::Rest { .. }
    ));
    assert_eq!(
        kind(call.conclude(&round, at(15_000))),
        LatchFailureKind::NoQuorum
    );
}

#[test]
fn a_misconfigured_majority_fails_the_latch_call_at_once() {
    let mut call = arriving(3);
    let unfit = || refused(TroubleKind::Group);
    let round = round(&call, [unfit(), unfit(), knows("a")], 3);
    let next = call.conclude(&round, at(0));
    assert_eq!(kind(next), LatchFailureKind::Misconfigured);
}

#[test]
fn a_reply_after_the_timeout_does_not_count() {
    let call = arriving(3);
    let mut round = round(&call, [knows("a")], 3);
    let late = at(0) + CALL_TIMEOUT;
    round.handle_reply(1, knows("a"), None, late);
    assert!(round.verdict().is_none());
    round.handle_timeout(late);
    assert!(round.verdict().is_some());
    assert_eq!(round.silent(), [1, 2]);
    assert!(!round.tally(late).taken);
}

#[test]
fn a_node_whose_last_call_timed_out_is_not_awaited() {
    let mut cluster = known_clocks(3);
    cluster.silent(2);
    let mut round = arriving(3).begin(&cluster, at(0));
    round.handle_reply(0, knows_nothing(), None, at(0));
    assert!(round.verdict().is_none());
    round.handle_reply(1, knows_nothing(), None, at(0));
    assert!(round.verdict().is_some());
}

#[test]
fn a_node_whose_clock_jumped_does_not_count() {
    let mut call = waiting(3, None);
    let mut round = call.begin(&known_clocks(3), at(0));
    let left = ms(7);
    let jumped = Vote::ClockJumped { by_us: 1, left };
    round.handle_reply(0, knows("ab"), Some(jumped), at(0));
    round.handle_reply(1, knows("ab"), None, at(0));
    assert!(round.verdict().is_none());
    round.handle_reply(2, not_sent(), None, at(0));
    assert_eq!(
        round.tally(at(0)).votes[0],
        Vote::ClockJumped { by_us: 1, left }
    );
    assert_eq!(call.conclude(&round, at(0)), LatchNext::Rest { at: at(8) });
}

/// The age of these answers, and of the nodes that gave them, is unknown.
#[test]
fn a_round_with_a_freeze_of_our_clock_does_not_count() {
    let mut call = arriving(3);
    let mut round = call.begin(&known_clocks(3), at(0));
    for node in 0..3 {
        round.handle_reply(node, knows("a"), Some(Vote::Outdated), at(0));
    }
    assert!(round.verdict().is_some());
    assert!(matches!(
        call.conclude(&round, at(0)),
        LatchNext::Rest { .. }
    ));
}
