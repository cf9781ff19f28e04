//! A failover behind a node: which answers count, and how holders are carried through.

use super::super::Confirmation;
use super::*;
use crate::group::Failover;

const X: Duration = Group::STALE_MASTER_PLAIN;
const D: Duration = Group::DEFAULT_REPLY_WITHIN;
/// X + D with the drift: 6 s, plus 1 % and 2 ms.
const OVERLAP: Duration = Duration::from_millis(6_062);
const EPOCH: u64 = 7;

fn standing(age: Duration) -> Standing {
    Standing {
        incarnation: 1,
        born_us: START_US - age.as_micros() as u64,
        clock_us: START_US,
        server: 1,
        replicated: true,
        epoch: None,
    }
}

fn answered(answer: Answer, standing: Standing) -> Reply {
    let mut reply = reply(answer).unwrap();
    reply.standing = standing;
    reply
}

/// A client with one node, which has replicas.
fn lone(failover: Failover) -> Cluster {
    let group = Group {
        failover,
        ..Group::new(1)
    };
    let mut cluster = Cluster::new(&group, Drift::default(), &[true]);
    let old = standing(Duration::from_secs(3_600));
    cluster.observe(0, &Ok(answered(Answer::Gone, old)), at(0), at(0));
    cluster
}

fn is_quarantined(discount: &Option<Vote>) -> bool {
    matches!(discount, Some(Vote::Quarantined { .. }))
}

#[test]
fn a_birth_of_a_single_server_starts_the_quarantine_if_a_failover_may_replace_it() {
    let newborn = standing(Duration::ZERO);
    let alone = Standing {
        replicated: false,
        ..newborn
    };
    for (failover, replicated, unreplicated) in [
        (Failover::Auto, true, false),
        (Failover::Quarantine, true, true),
        (Failover::Lossless, false, false),
        (Failover::Ignore, false, false),
    ] {
        let cluster = lone(failover);
        let waits = |standing| cluster.quarantine_left(0, standing, at(0)).is_some();
        assert_eq!(waits(newborn), replicated, "{failover}");
        assert_eq!(waits(alone), unreplicated, "{failover}");
    }
}

#[test]
fn the_longest_lease_of_a_single_server_ends_before_a_newcomer_is_granted() {
    let longest = |cluster: &Cluster| cluster.longest_lease();
    assert_eq!(
        longest(&lone(Failover::Auto)),
        Some(Duration::from_secs(30))
    );
    for failover in [Failover::Lossless, Failover::Ignore] {
        assert_eq!(longest(&lone(failover)), None);
    }
    assert_eq!(longest(&cluster_of(1)), None, "not known to be replicated");
    assert_eq!(longest(&cluster_of(3)), Some(Duration::from_secs(30)));
    // A drift that the second on top of the quarantine does not cover.
    let drift = Drift::new(0.01, Duration::from_secs(4)).unwrap();
    let mut coarse = Cluster::new(&Group::new(1), drift, &[true]);
    let old = standing(Duration::from_secs(3_600));
    coarse.observe(0, &Ok(answered(Answer::Gone, old)), at(0), at(0));
    assert_eq!(longest(&coarse), Some(Duration::from_secs(27)));
}

#[test]
fn an_extend_of_a_guard_counts_in_the_quarantine_if_enough_validity_is_left() {
    let cluster = lone(Failover::Auto);
    let extended = answered(Answer::Extended, standing(Duration::ZERO));
    let discount =
        |deadline| cluster.discount_extension(Line::First, 0, &extended, at(0), at(9), deadline);
    assert_eq!(discount(Some(at(9) + OVERLAP)), None);
    assert!(is_quarantined(&discount(Some(at(9) + OVERLAP - ms(1)))));
    assert!(is_quarantined(&discount(None)), "a receipt or a plain lock");
}

#[test]
fn an_extend_of_a_guard_counts_once_no_former_master_can_grant_any_more() {
    let cluster = lone(Failover::Auto);
    let soon = Some(at(10));
    let discount = |age| {
        let extended = answered(Answer::Extended, standing(age));
        cluster.discount_extension(Line::First, 0, &extended, at(0), at(9), soon)
    };
    assert!(is_quarantined(&discount(OVERLAP - ms(1))));
    assert_eq!(discount(OVERLAP), None);
}

/// What a node in quarantine lacks, or has of others, says nothing about the lock.
#[test]
fn neither_gone_nor_held_counts_in_the_quarantine() {
    let cluster = lone(Failover::Auto);
    let deadline = Some(at(9) + OVERLAP * 2);
    for answer in [Answer::Gone, Answer::Held(Holder::default())] {
        let reply = answered(answer, standing(OVERLAP));
        let discount = cluster.discount_extension(Line::First, 0, &reply, at(0), at(9), deadline);
        assert!(is_quarantined(&discount), "{discount:?}");
    }
}

#[test]
fn a_node_of_several_carries_no_holder_through_its_quarantine() {
    let cluster = cluster_of(3);
    let extended = answered(Answer::Extended, standing(OVERLAP));
    let deadline = Some(at(9) + OVERLAP * 2);
    let discount = cluster.discount_extension(Line::First, 0, &extended, at(0), at(9), deadline);
    assert!(is_quarantined(&discount), "{discount:?}");
}

#[test]
fn a_vote_counts_only_if_the_sentinels_confirmed_it_lately_under_its_epoch() {
    let mut cluster = lone(Failover::Auto);
    cluster.require_confirmation(0);
    let old = Standing {
        epoch: Some(EPOCH),
        ..standing(Duration::from_secs(3_600))
    };
    let t0 = at(60_000);
    let unconfirmed = || Some(Vote::Unconfirmed);
    assert_eq!(cluster.discount(0, old, t0, t0), unconfirmed());
    for (epoch, asked_at, expected) in [
        (EPOCH, t0 - X - ms(1), unconfirmed()),
        (EPOCH, t0 - X, None),
        (EPOCH, t0 + ms(5), None),
        (EPOCH - 1, t0, unconfirmed()),
        (EPOCH + 1, t0, unconfirmed()),
    ] {
        let mut cluster = cluster.clone();
        cluster.confirm(Line::First, 0, Confirmation { epoch, asked_at });
        assert_eq!(
            cluster.discount(0, old, t0, t0),
            expected,
            "{epoch} {asked_at:?}"
        );
        // An extend needs the confirmation as an acquire does.
        let extended = answered(Answer::Extended, old);
        let held_until = Some(t0 + OVERLAP * 2);
        let discount = cluster.discount_extension(Line::First, 0, &extended, t0, t0, held_until);
        assert_eq!(discount, expected, "{epoch} {asked_at:?}");
    }
    // An answer that was delayed does not replace a later one.
    let confirmation = |epoch, asked_at| Confirmation { epoch, asked_at };
    cluster.confirm(Line::First, 0, confirmation(EPOCH + 1, t0));
    cluster.confirm(Line::First, 0, confirmation(EPOCH, t0 - ms(1)));
    assert_eq!(cluster.discount(0, old, t0, t0), unconfirmed());
}

/// The two lines may be connected to different servers.
#[test]
fn a_vote_needs_the_confirmation_of_the_connection_that_it_came_over() {
    let t0 = at(60_000);
    let old = Standing {
        epoch: Some(EPOCH),
        ..standing(Duration::from_secs(3_600))
    };
    let extended = answered(Answer::Extended, old);
    for (confirmed, other) in [(Line::First, Line::Second), (Line::Second, Line::First)] {
        let mut cluster = lone(Failover::Auto);
        cluster.require_confirmation(0);
        let (epoch, asked_at) = (EPOCH, t0);
        cluster.confirm(confirmed, 0, Confirmation { epoch, asked_at });
        let discount = |line| cluster.discount_extension(line, 0, &extended, t0, t0, None);
        assert_eq!(discount(confirmed), None);
        assert_eq!(discount(other), Some(Vote::Unconfirmed));
    }
}

fn terms() -> AcquireTerms {
    AcquireTerms {
        nodes: 1,
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        call_timeout: Duration::from_secs(5),
        wait: None,
        attempts: None,
        no_quorum_after: Duration::from_secs(15),
        kind: Kind::Exclusive,
    }
}

#[test]
fn a_grant_that_is_read_too_late_does_not_count() {
    let old = standing(Duration::from_secs(3_600));
    for (failover, took, wins) in [
        (Failover::Auto, D, true),
        (Failover::Auto, D + ms(1), false),
        (Failover::Ignore, D + ms(1), true),
    ] {
        let mut cluster = lone(failover);
        let mut acquisition = Acquisition::new(terms(), at(0), 1);
        let mut attempt = acquisition.begin(&mut cluster, at(0), token(1));
        attempt.handle_reply(0, Ok(answered(Answer::Granted, old)), None, at(0) + took);
        let won = matches!(attempt.verdict(), Some(AttemptVerdict::Won { .. }));
        assert_eq!(won, wins, "{failover} {took:?}");
    }
}

#[test]
fn an_acquire_names_the_latest_time_on_the_clock_of_a_single_server() {
    let claims: Arc<[Claim]> = Arc::from([]);
    let not_after = |cluster: &mut Cluster| {
        let attempt = Acquisition::new(terms(), at(0), 1).begin(cluster, at(500), token(1));
        match attempt.request(&claims, TTL, &Arc::from("job")).op {
            Op::Acquire(acquire) => acquire.not_after_us,
            other => panic!("{other:?}"),
        }
    };
    let mut cluster = lone(Failover::Auto);
    let old = standing(Duration::from_secs(3_600));
    let mut reply = answered(Answer::Stale, old);
    reply.stamp = Some(ReplyStamp {
        clock_us: 50_000_000,
        floor: Ballot::default(),
    });
    // The clock was read at 10 ms at the latest.
    cluster.observe(0, &Ok(reply), at(0), at(10));
    let passed_us = 490_000 + D.as_micros() as u64;
    assert_eq!(not_after(&mut cluster), Some(50_000_000 + passed_us - 1));
    assert_eq!(not_after(&mut lone(Failover::Ignore)), None);
}

/// The ticket is entered, and stays, so that the order of the waiters outlives the failover.
#[test]
fn a_caller_waits_in_the_queue_of_a_single_server_in_quarantine() {
    let mut cluster = lone(Failover::Auto);
    let newborn = Standing {
        incarnation: 2,
        ..standing(Duration::ZERO)
    };
    let refused = || {
        let mut refused = answered(Answer::Quarantined { left_ms: 9_000 }, newborn);
        refused.stamp = Some(ReplyStamp {
            clock_us: newborn.clock_us,
            floor: Ballot::default(),
        });
        Ok(refused)
    };
    cluster.observe(0, &refused(), at(0), at(0));
    let acquisition = Acquisition::new(terms(), at(0), 1).in_queue(QueueHint::Unknown);
    let mut acquisition = acquisition.with_ticket(Arc::from("t.1"), Arc::from("job"));
    for round in 0..2u64 {
        let now = at(round * 1_000);
        let mut attempt = acquisition.begin(&mut cluster, now, token(1));
        let discount = cluster.discount(0, newborn, now, now);
        attempt.handle_reply(0, refused(), discount, now);
        match acquisition.conclude(&attempt, &cluster, now) {
            Next::Retry { at, stays, .. } => assert!(stays && at > now),
            other => panic!("{other:?}"),
        }
    }
    // A plain lock has no ticket, and must not set its key in the way of a holder.
    let plain = AcquireTerms {
        kind: Kind::Plain,
        ..terms()
    };
    let mut plain = Acquisition::new(plain, at(0), 1);
    let attempt = plain.begin(&mut cluster, at(0), token(2));
    let request = attempt.request(&Arc::from([]), TTL, &Arc::from("job"));
    assert_eq!(request.op, Op::Inspect);
}

/// A new master's clock that is ahead of the old one's is not a freeze of our own clock.
#[test]
fn a_birth_begins_the_comparison_of_clocks_anew() {
    for (server, lossless) in [(1, false), (2, false), (2, true)] {
        let mut cluster = lone(Failover::Auto);
        let mut old = answered(Answer::Stale, standing(Duration::from_secs(3_600)));
        let stamp = |clock_us| ReplyStamp {
            clock_us,
            floor: Ballot::default(),
        };
        old.stamp = Some(stamp(50_000_000));
        assert_eq!(cluster.observe(0, &Ok(old.clone()), at(0), at(1)), None);
        let mut new = old.clone();
        new.stamp = Some(stamp(90_000_000));
        new.standing.server = server;
        if !lossless {
            (new.standing.incarnation, new.standing.born_us) = (2, 2);
        }
        let new_standing = new.standing;
        assert_eq!(cluster.observe(0, &Ok(new), at(2), at(3)), None, "{server}");
        // The same server without a birth is another matter.
        let mut jumped = old;
        jumped.stamp = Some(stamp(190_000_000));
        jumped.standing = new_standing;
        let event = cluster.observe(0, &Ok(jumped), at(4), at(5));
        assert!(matches!(event, Some(ClockEvent::Froze { .. })), "{event:?}");
    }
}

/// In a quarantine the holder of a promoted replica may be older than we are, so a restore is tried.
#[test]
fn a_holder_that_finds_another_one_in_the_quarantine_tries_to_restore() {
    let held = || Ok(answered(Answer::Held(Holder::default()), standing(D)));
    let young = || Some(Vote::Quarantined { left: TTL });
    for (nodes, discount, restores) in [(1, young(), true), (1, None, false), (3, young(), false)] {
        let mut round = Extension::new(nodes, at(0), TTL, Drift::default(), CALL_TIMEOUT);
        for node in 0..nodes {
            round.handle_reply(node, held(), discount.clone(), at(1));
        }
        assert_eq!(
            round.take_restore().is_some(),
            restores,
            "{nodes} {discount:?}"
        );
    }
}
