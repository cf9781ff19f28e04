//! The inputs and effects of a release and of a downgrade.

use super::*;

#[test]
fn a_release_ends_the_hold_and_targets_every_node() {
    let mut life = Life::won(policy());
    life.now = at(2_000);
    let release = life.release().unwrap();
    assert_eq!(release.targets, [Target::Holds; 3]);
    assert_eq!((release.keep_until, release.keeps_on), (None, true));
    assert_eq!(release.lease_left, TTL);
    assert!(life.drain().is_empty());
    assert_eq!(life.events, [HoldEvent::Ended(Lost::Released)]);
    assert_eq!(life.check(), Err(Lost::Released));
    assert_eq!(life.hold.poll_timeout(), None);
}

#[test]
fn a_release_knows_which_nodes_have_not_answered_the_acquire() {
    let granted = || Some(reply(Answer::Granted));
    let mut won = attempt([granted(), None, granted()]);
    let mut life = Life::of(&won, policy(), Kind::Exclusive);
    assert!(life.hold.awaits_acquire());
    assert_eq!(
        life.hold.votes(),
        [Vote::Granted, Vote::Pending, Vote::Granted]
    );
    let targets = life.hold.clone().release(life.clock()).unwrap().targets;
    assert_eq!(targets, [Target::Holds, Target::Unknown, Target::Holds]);
    won.handle_reply(1, reply(Answer::Granted), None, at(5));
    life.hold.handle_acquired(&won);
    assert!(!life.hold.awaits_acquire());
    assert_eq!(life.release().unwrap().targets, [Target::Holds; 3]);
}

/// Its acquire may still arrive, whatever a later round answers.
#[test]
fn a_round_does_not_make_the_fate_of_an_acquire_known() {
    let granted = || Some(reply(Answer::Granted));
    let mut won = attempt([granted(), granted(), None]);
    let mut life = Life::of(
        &won,
        HoldPolicy {
            renew: false,
            ..policy()
        },
        Kind::Plain,
    );
    life.hold.extend(TTL, life.now);
    let sent = life.drain();
    life.answer(sent[0], 2, reply(Answer::Gone));
    life.answer(sent[0], 0, reply(Answer::Extended));
    life.answer(sent[0], 1, reply(Answer::Extended));
    won.handle_reply(2, not_sent(), None, at(5));
    life.hold.handle_acquired(&won);
    let targets = life.release().unwrap().targets;
    assert_eq!(targets, [Target::Holds, Target::Holds, Target::Unknown]);
}

#[test]
fn a_release_during_a_round_lasts_as_long_as_the_longest_lease() {
    let mut life = Life::won(policy());
    life.hold.extend(TTL * 3, life.now);
    life.drain();
    let release = life.release().unwrap();
    // A node may execute the extension until its call expires.
    assert_eq!(release.lease_left, TTL * 3 + CALL_TIMEOUT);
    assert_eq!(release.targets, [Target::Unknown; 3]);
}

/// Only there may something arrive after the release, so only there the release closes the ballot.
#[test]
fn a_release_knows_the_nodes_that_have_not_answered_every_request() {
    let mut life = Life::won(policy());
    assert_eq!(life.clone().release().unwrap().targets, [Target::Holds; 3]);
    let renewal = life.pass(at(0) + THIRD)[0];
    life.answer(renewal, 0, reply(Answer::Extended));
    life.answer(renewal, 1, reply(Answer::Extended));
    let targets = life.clone().release().unwrap().targets;
    assert_eq!(targets, [Target::Holds, Target::Holds, Target::Unknown]);
    // The reply arrives after the verdict.
    let mut late = life.clone();
    late.answer(renewal, 2, reply(Answer::Extended));
    assert_eq!(late.release().unwrap().targets, [Target::Holds; 3]);
    // The reply is lost. Later rounds that are answered do not change that.
    life.answer(renewal, 2, unknown());
    let next = life.pass(at(0) + THIRD * 2)[0];
    life.all_answer(next, &Answer::Extended);
    assert_eq!(life.release().unwrap().targets, [Target::Unknown; 3]);
}

/// The release goes over the first line. What is under way on the second one may arrive after it: a
/// restore would bring the lock back, for a holder that is gone.
#[test]
fn what_either_line_has_under_way_counts_for_the_release() {
    for line in [Line::First, Line::Second] {
        let mut life = Life::won(policy());
        life.now = at(0) + THIRD;
        let clock = life.clock();
        life.hold.handle_timeout(clock, &mut life.cluster);
        life.drain();
        assert!(life.hold.renew(clock, line));
        let renewal = life.drain()[0];
        let targets = life.clone().release().unwrap().targets;
        assert_eq!(targets, [Target::Unknown; 3], "{line:?}");
        life.answer(renewal, 0, reply(Answer::Extended));
        life.answer(renewal, 1, reply(Answer::Extended));
        let targets = life.clone().release().unwrap().targets;
        assert_eq!(targets, [Target::Holds, Target::Holds, Target::Unknown]);
        // From the moment at which the restore is handed out.
        life.answer(renewal, 2, reply(Answer::Gone));
        let targets = life.release().unwrap().targets;
        assert_eq!(targets, [Target::Unknown; 3], "{line:?}");
    }
}

/// The network may deliver a restore twice, and the second copy after the release. The address of
/// the node may have led to another server then.
#[test]
fn a_release_closes_everywhere_if_the_lock_was_restored_anywhere() {
    let mut life = Life::won(policy());
    let renewal = life.pass(at(0) + THIRD)[0];
    life.answer(renewal, 2, reply(Answer::Gone));
    life.answer(renewal, 0, reply(Answer::Extended));
    let sent = life.answer(renewal, 1, reply(Answer::Extended));
    assert_eq!(asked(&sent), [(2, HoldAction::Restore)]);
    life.hold.handle_restored(2, &reply(Answer::Restored));
    let next = life.pass(at(0) + THIRD * 2)[0];
    life.all_answer(next, &Answer::Extended);
    assert_eq!(life.release().unwrap().targets, [Target::Unknown; 3]);
}

#[test]
fn a_resumed_hold_knows_of_no_node_that_nothing_is_under_way_to_it() {
    let hold = Hold::resume(Arc::new(policy()), 3, Kind::Exclusive, at(0));
    let mut life = Life::with(hold, at(0));
    let round = life.hold.extend(TTL, at(0));
    let sent = life.drain();
    life.all_answer(sent[0], &Answer::Extended);
    life.hold.close_round(round);
    assert_eq!(life.release().unwrap().targets, [Target::Unknown; 3]);
}

/// A closed ballot would keep other readers with lower ballots from being restored.
#[test]
fn a_lost_extend_of_a_reader_closes_nothing() {
    let granted = || Some(reply(Answer::Granted));
    let won = attempt([granted(), granted(), granted()]);
    let mut life = Life::of(&won, policy(), Kind::Shared);
    life.pass(at(0) + THIRD);
    assert_eq!(life.release().unwrap().targets, [Target::Holds; 3]);
}

#[test]
fn answers_of_a_round_after_the_release_change_nothing() {
    let mut life = Life::won(policy());
    let renewal = life.pass(at(0) + THIRD)[0];
    life.release();
    life.all_answer(renewal, &Answer::Extended);
    assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
    assert_eq!(life.check(), Err(Lost::Released));
    assert_eq!(life.ends(), [Lost::Released]);
    let renewals = life.events.iter();
    let over = renewals.filter(|e| matches!(e, HoldEvent::Concluded { renewal: true, .. }));
    assert_eq!(over.count(), 1, "the next renewal gets capacity");
    assert_eq!(life.hold.poll_timeout(), None);
}

#[test]
fn a_release_waits_for_the_renewal_in_progress_and_begins_no_other() {
    let mut life = Life::won(policy());
    assert_eq!(life.hold.clone().stop_renewing(), None);
    let renewal = life.pass(at(0) + THIRD)[0];
    let round = life.hold.stop_renewing();
    assert_eq!(round, Some(renewal.round));
    life.all_answer(renewal, &Answer::Extended);
    let verdict = life.hold.verdict(renewal.round);
    assert!(matches!(verdict, Some(ExtensionVerdict::Extended { .. })));
    assert!(matches!(
        life.events[..],
        [HoldEvent::Concluded { awaited: true, .. }]
    ));
}

#[test]
fn a_lock_is_kept_from_others_until_it_was_held_long_enough() {
    let mut life = Life::won(HoldPolicy {
        hold_at_least: ms(30_000),
        ..policy()
    });
    life.now = at(2_000);
    let release = life.release().unwrap();
    assert_eq!(
        (release.keep_until, release.keeps_on),
        (Some(at(30_001)), true)
    );
}

/// Another client may hold the lock by now: do not resend the release after the lease.
#[test]
fn after_the_deadline_a_release_that_keeps_is_resent_only_during_the_lease() {
    let policy = HoldPolicy {
        hold_at_least: ms(30_000),
        renew: false,
        ..policy()
    };
    let mut life = Life::won(policy);
    life.now = at(0) + VALIDITY;
    let release = life.release().unwrap();
    assert_eq!(
        (release.keep_until, release.keeps_on),
        (Some(at(30_001)), false)
    );
    life.drain();
    assert_eq!(life.ends(), [Lost::Expired]);
}

#[test]
fn with_a_lock_delay_there_is_no_release_after_the_deadline() {
    let policy = HoldPolicy {
        lock_delay: ms(5_000),
        renew: false,
        ..policy()
    };
    let mut life = Life::won(policy);
    assert_eq!(
        life.hold.deadline(),
        at(0) + VALIDITY,
        "the holder relies on the TTL only"
    );
    life.hold.extend(TTL, life.now);
    assert_eq!(life.drain()[0].lease, ms(15_000));
    life.now = at(0) + VALIDITY - ms(1);
    let release = life.hold.clone().release(life.clock()).unwrap();
    assert_eq!(release.lease_left, ms(15_000));
    life.now = at(0) + VALIDITY;
    assert_eq!(life.release(), None);
    let mut lost = Life::won(HoldPolicy {
        lock_delay: ms(5_000),
        ..self::policy()
    });
    lost.froze = Some(at(5));
    assert_eq!(lost.release(), None, "the remaining validity is unknown");
}

/// If the replies are lost, readers may hold the lock from the first send on.
#[test]
fn a_downgrade_ends_the_exclusive_hold_before_anything_is_sent() {
    let mut life = Life::won(HoldPolicy {
        hold_at_least: ms(30_000),
        ..policy()
    });
    life.now = at(1_000);
    let (shared, round) = life.hold.downgrade(life.clock());
    assert_eq!(life.check(), Err(Lost::Released));
    assert!(
        life.drain().is_empty(),
        "the shared hold sends the downgrade"
    );
    assert_eq!(life.ends(), [Lost::Released]);

    let mut life = Life::with(shared, life.now);
    let sent = life.drain();
    assert_eq!(asked(&sent), to_all(HoldAction::Downgrade));
    let op = sent[0].op(&grant_id(), &policy().label);
    assert_eq!(
        op,
        Op::Downgrade(Downgrade {
            ballot: Ballot::new(7),
            ttl_ms: 10_000
        })
    );
    assert_eq!(life.hold.deadline(), at(0) + VALIDITY);
    // Whatever the nodes answer, it is a shared hold, and it renews itself.
    let renewal = life.pass(at(1_125));
    assert_eq!(life.hold.verdict(round), Some(ExtensionVerdict::Unsure));
    assert_eq!(asked(&renewal), to_all(HoldAction::Extend));
    life.all_answer(renewal[0], &Answer::Extended);
    assert_eq!(life.hold.deadline(), at(1_125) + VALIDITY);
    let release = life.release().unwrap();
    assert_eq!(
        release.keep_until, None,
        "a shared lock is not kept from others"
    );
}

#[test]
fn a_lost_hold_is_still_lost_after_a_downgrade() {
    let mut life = Life::won(policy());
    life.now = at(0) + VALIDITY;
    let (shared, _) = life.hold.downgrade(life.clock());
    life.drain();
    assert_eq!(life.ends(), [Lost::Expired]);
    let mut life = Life::with(shared, life.now);
    assert_eq!(life.check(), Err(Lost::Expired));
    life.drain();
    assert!(life.ends().is_empty(), "reported before");
}

#[test]
fn a_stopped_hold_is_no_longer_renewed() {
    let mut life = Life::won(policy());
    let clock = life.clock();
    life.hold.stop(clock);
    assert!(life.pass(at(20_000)).is_empty());
    life.drain();
    assert_eq!(life.ends(), [Lost::Released]);
}
