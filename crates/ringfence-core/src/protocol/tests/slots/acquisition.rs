//! Which slot a client asks for in each attempt.

use super::*;

fn terms(wait: Option<Duration>) -> AcquireTerms {
    AcquireTerms {
        nodes: 5,
        ttl: TTL,
        drift: Drift::default(),
        min_validity: MIN_VALIDITY,
        call_timeout: CALL_TIMEOUT,
        wait,
        attempts: None,
        no_quorum_after: Duration::from_secs(15),
        kind: Kind::Slot,
    }
}

#[test]
fn a_woken_caller_asks_for_the_freed_slot_unless_it_found_another() {
    let servers = vec![Server::new(0); 5];
    let mut cluster = connected(&servers, at(0));
    let terms = terms(None);
    let of_lock = AcquireTerms {
        kind: Kind::Exclusive,
        ..terms
    };
    let mut acquisition = Acquisition::new(of_lock, at(0), 1)
        .in_queue(QueueHint::Unknown)
        .with_ticket("c.1".into(), "job".into());
    acquisition.woken_for(Some(1));
    let lock = acquisition.begin(&mut cluster, at(0), token(1));
    assert_eq!(lock.asked(), None, "a lock has no slots");

    let mut acquisition = Acquisition::new(terms, at(0), 1)
        .in_queue(QueueHint::Unknown)
        .with_ticket("c.1".into(), "job".into());
    let mut lose = |acquisition: &mut Acquisition, free: &[u32], ms: u64| {
        let mut attempt = acquisition.begin(&mut cluster, at(ms), token(1));
        let asked = attempt.asked();
        for node in 0..5 {
            let outcome = permit(held(Some(500)), 0, free, 0);
            attempt.handle_reply(node, outcome, None, at(ms));
        }
        let next = acquisition.conclude(&attempt, &cluster, at(ms));
        assert!(matches!(next, Next::Retry { .. }), "{next:?}");
        asked
    };
    assert_eq!(lose(&mut acquisition, &[], 1), Some(Asked::Any));
    acquisition.woken_for(None);
    assert_eq!(lose(&mut acquisition, &[], 2), Some(Asked::Any));
    acquisition.woken_for(Some(1));
    assert_eq!(lose(&mut acquisition, &[0], 3), Some(Asked::Slot(1)));
    acquisition.woken_for(Some(1));
    assert_eq!(lose(&mut acquisition, &[], 4), Some(Asked::Slot(0)));
    assert_eq!(lose(&mut acquisition, &[], 5), Some(Asked::Any));
}

/// One client's attempts with split grants: first any slot, then a named slot.
#[test]
fn a_split_first_attempt_for_any_slot_is_followed_at_once_by_a_named_slot() {
    let terms = terms(Some(Duration::ZERO));
    let servers = vec![Server::new(0); 5];
    let mut cluster = connected(&servers, at(0));
    let mut acquisition = Acquisition::new(terms, at(0), 1);
    let mut first = acquisition.begin(&mut cluster, at(0), token(1));
    assert_eq!(first.asked(), Some(Asked::Any));
    for (node, slot) in [0, 0, 1, 1, 2].into_iter().enumerate() {
        first.handle_reply(
            node,
            permit(Answer::Granted, slot, &[0, 1, 2], 0),
            None,
            at(1),
        );
    }
    let next = acquisition.conclude(&first, &cluster, at(1));
    assert!(
        matches!(next, Next::Retry { at: again, .. } if again == at(1)),
        "{next:?}"
    );
    let mut second = acquisition.begin(&mut cluster, at(1), token(2));
    assert_eq!(second.asked(), Some(Asked::Slot(0)));
    assert!(second.ballot() > first.ballot());
    // That slot is held and another is free: try again at once, also for a caller that does not
    // wait.
    for node in 0..5 {
        second.handle_reply(node, permit(held(Some(500)), 0, &[2], 0), None, at(2));
    }
    let next = acquisition.conclude(&second, &cluster, at(2));
    assert!(matches!(next, Next::Retry { .. }), "{next:?}");
    let mut third = acquisition.begin(&mut cluster, at(3), token(3));
    assert_eq!(third.asked(), Some(Asked::Slot(2)));
    for node in 0..5 {
        third.handle_reply(node, permit(held(Some(500)), 2, &[], 0), None, at(4));
    }
    let next = acquisition.conclude(&third, &cluster, at(4));
    assert!(matches!(next, Next::GiveUp(_)), "{next:?}");
}
