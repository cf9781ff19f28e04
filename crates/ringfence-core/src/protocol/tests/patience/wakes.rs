//! How much a client makes of wakes that bring nothing.

use super::*;

/// A way on which a caller waits in line, shown to the nodes.
fn in_line() -> Way {
    let mut way = Way::new(for_ever(3));
    let acquisition = Acquisition::new(for_ever(3), at(0), 1);
    way.acquisition = acquisition.in_line(Line::Awaited).with_ticket("c.1".into());
    way
}

/// When a wake may bring the next attempt forward.
fn wake_at(next: &Next) -> Timestamp {
    match next {
        Next::Retry { at, wake_at, .. } => {
            assert!(wake_at <= at, "{next:?}: a poll is never put off by a wake");
            *wake_at
        }
        other => panic!("{other:?}"),
    }
}

/// A node that pushes wakes without end, while another holds: one waiter sends a few attempts a
/// second, not as many as the nodes can answer.
#[test]
fn wakes_that_bring_nothing_bring_fewer_and_fewer_attempts() {
    let mut way = in_line();
    let began = way.now;
    let mut pauses = Vec::new();
    while way.now.since(began) < ms(10_000) {
        let next = way.round(&all(3, held(Some(3_600_000))));
        let at = wake_at(&next);
        pauses.push(at.since(way.now));
        way.now = at;
        way.acquisition.woken_for(None);
    }
    // The first was no wake's, and the first that is may have come a moment too early.
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

/// After a storm, too: what matters is how long ago the last fruitless attempt was.
#[test]
fn a_wake_that_comes_later_than_the_pause_is_followed_at_once() {
    let mut way = in_line();
    for _ in 0..20 {
        let next = way.round(&all(3, held(Some(3_600_000))));
        way.now = wake_at(&next);
        way.acquisition.woken_for(None);
    }
    let next = way.round(&all(3, held(Some(3_600_000))));
    let earliest = wake_at(&next);
    assert!(earliest <= way.now + ms(100));
    // A second later the storm is forgotten.
    way.now = way.now + ms(1_000);
    way.acquisition.woken_for(None);
    let next = way.round(&all(3, held(Some(3_600_000))));
    assert_eq!(wake_at(&next), way.now);
}

/// Attempts of its own accord are no reason to distrust the next wake.
#[test]
fn polls_do_not_put_off_a_wake() {
    let mut way = in_line();
    for _ in 0..20 {
        let next = way.round(&all(3, held(Some(5))));
        assert_eq!(wake_at(&next), way.now);
        way.now = way.now + way.pause(next);
    }
}

/// Without a majority, and where ballots are refused, wakes are as fruitless.
#[test]
fn no_storm_of_wakes_where_no_majority_can_be_had() {
    let skewed = [
        Some(says(Answer::Granted)),
        Some(says(Answer::Granted)),
        Some(says(Answer::Ahead)),
        None,
    ];
    let mut way = Way::new(for_ever(4));
    let acquisition = Acquisition::new(for_ever(4), at(0), 1);
    way.acquisition = acquisition.in_line(Line::Awaited).with_ticket("c.1".into());
    let began = way.now;
    let mut attempts = 0;
    while way.now.since(began) < ms(10_000) {
        let mut attempt = way.begin();
        for (node, outcome) in skewed.iter().enumerate() {
            match outcome {
                Some(outcome) => attempt.handle_reply(node, outcome.clone(), None, way.now),
                // In quarantine: it answers, and does not count.
                None => {
                    let granted = says(Answer::Granted);
                    attempt.handle_reply(node, granted, Some(young(ms(35_000))), way.now);
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
