//! How a client limits the attempts that fruitless wakes cause.

use super::*;

/// A caller that waits in the queue with a ticket on the nodes.
fn in_queue() -> Way {
    let mut way = Way::new(for_ever(3));
    let acquisition = Acquisition::new(for_ever(3), at(0), 1);
    way.acquisition = acquisition
        .in_queue(QueueHint::Awaited)
        .with_ticket("c.1".into(), "job".into());
    way
}

/// From when on a wake may start the next attempt.
fn wake_at(next: &Next) -> Timestamp {
    match next {
        Next::Retry { at, wake_at, .. } => {
            assert!(wake_at <= at, "{next:?}: a wake never delays a poll");
            *wake_at
        }
        other => panic!("{other:?}"),
    }
}

/// A node sends wakes without end while another client holds the lock. A waiter then makes a few
/// attempts per second, not as many as the nodes can answer.
#[test]
fn fruitless_wakes_cause_fewer_and_fewer_attempts() {
    let mut way = in_queue();
    let began = way.now;
    let mut pauses = Vec::new();
    while way.now.since(began) < ms(10_000) {
        let next = way.round(&all(3, held(Some(3_600_000))));
        let at = wake_at(&next);
        pauses.push(at.since(way.now));
        way.now = at;
        way.acquisition.woken_for(None);
    }
    // No wake caused the first attempt, and the first wake may have come a moment too early.
    assert_eq!(pauses[..2], [Duration::ZERO; 2]);
    assert!(
        pauses[2] > Duration::ZERO && pauses[2] <= ms(2),
        "{pauses:?}"
    );
    assert!(pauses.iter().all(|pause| *pause <= ms(100)), "{pauses:?}");
    assert!(
        pauses[9..].iter().all(|pause| *pause >= ms(50)),
        "{pauses:?}"
    );
    assert!(
        pauses.len() < 220,
        "{} attempts in ten seconds",
        pauses.len()
    );
}

/// Also after many fruitless wakes: only the time since the last fruitless attempt matters.
#[test]
fn a_wake_after_the_pause_starts_an_attempt_at_once() {
    let mut way = in_queue();
    for _ in 0..20 {
        let next = way.round(&all(3, held(Some(3_600_000))));
        way.now = wake_at(&next);
        way.acquisition.woken_for(None);
    }
    let next = way.round(&all(3, held(Some(3_600_000))));
    let earliest = wake_at(&next);
    assert!(earliest <= way.now + ms(100));
    // A second later the fruitless wakes are forgotten.
    way.now = way.now + ms(1_000);
    way.acquisition.woken_for(None);
    let next = way.round(&all(3, held(Some(3_600_000))));
    assert_eq!(wake_at(&next), way.now);
}

/// Attempts without a wake are no reason to delay the next wake.
#[test]
fn polls_do_not_delay_a_wake() {
    let mut way = in_queue();
    for _ in 0..20 {
        let next = way.round(&all(3, held(Some(5))));
        assert_eq!(wake_at(&next), way.now);
        way.now = way.now + way.pause(next);
    }
}

/// Without a majority, and with refused ballots, wakes are just as fruitless.
#[test]
fn wakes_without_a_majority_do_not_cause_a_storm_of_attempts() {
    let skewed = [
        Some(reply(Answer::Granted)),
        Some(reply(Answer::Granted)),
        Some(reply(Answer::Ahead)),
        None,
    ];
    let mut way = Way::new(for_ever(4));
    let acquisition = Acquisition::new(for_ever(4), at(0), 1);
    way.acquisition = acquisition
        .in_queue(QueueHint::Awaited)
        .with_ticket("c.1".into(), "job".into());
    let began = way.now;
    let mut attempts = 0;
    while way.now.since(began) < ms(10_000) {
        let mut attempt = way.begin();
        for (node, outcome) in skewed.iter().enumerate() {
            match outcome {
                Some(outcome) => attempt.handle_reply(node, outcome.clone(), None, way.now),
                // In quarantine: the node answers, but does not count.
                None => {
                    let granted = reply(Answer::Granted);
                    attempt.handle_reply(node, granted, Some(quarantined(ms(35_000))), way.now);
                }
            }
        }
        way.now = way.now + ROUND;
        let next = way.acquisition.conclude(&attempt, &way.cluster, way.now);
        attempts += 1;
        if let Next::Retry { at, wake_at, .. } = next {
            let woken = wake_at < at;
            way.now = wake_at.min(at);
            if woken {
                way.acquisition.woken_for(None);
            }
        } else {
            panic!("{next:?}");
        }
    }
    assert!(attempts < 700, "{attempts} attempts in ten seconds");
}

/// Fruitless wakes limit the stale rounds. They do not hide that the clocks are too far apart, or a
/// caller that waits without limit would never learn it.
#[test]
fn clocks_too_far_apart_are_reported_after_fruitless_wakes_too() {
    let mut way = in_queue();
    for _ in 0..3 {
        let next = way.round(&all(3, held(Some(3_600_000))));
        way.now = wake_at(&next);
        way.acquisition.woken_for(None);
    }
    let mut servers = [0, 20_000_000, 40_000_000].map(Server::new);
    way.cluster = connected(&servers, way.now);
    for _ in 0..10 {
        match way.round_on(&mut servers) {
            Next::Retry { wake_at, .. } => way.now = wake_at,
            Next::GiveUp(failure) => {
                assert_eq!(failure.kind, FailureKind::ClocksApart);
                return;
            }
            Next::Granted { .. } => panic!("granted"),
        }
        way.acquisition.woken_for(None);
    }
    panic!("still trying");
}
