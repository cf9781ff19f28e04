//! A clock that was set back: the fence of a name is ahead of the clock, and until the clock has
//! caught up nobody can get the name, though it is free.

use super::acquisition::{Way, terms};
use super::*;

const BACK: Duration = Duration::from_secs(20);

/// One server that accepted a ballot at its clock, which was then set back.
fn set_back() -> Server {
    let mut server = Server::new(0);
    let fence = Ballot::new(server.clock_us(at(0)));
    server.ask(at(0), &token(9), undo(fence, true)).unwrap();
    server.offset_us -= BACK.as_micros() as i64;
    server
}

/// The way of a new client to a grant, until `end`. It knows the clock as it is now.
fn way(wait: Duration) -> (Way, [Server; 1]) {
    let servers = [set_back()];
    let terms = AcquireTerms {
        wait: Some(wait),
        ..terms(1)
    };
    let mut way = Way::new(terms);
    way.cluster = connected(&servers, at(0));
    (way, servers)
}

/// The fence is reached after 20 s, less the window and its margin.
const BLOCKED: Duration = Duration::from_millis(15_500);

fn is_about(span: Duration, expected: Duration) -> bool {
    span.abs_diff(expected) < Duration::from_millis(600)
}

#[test]
fn a_caller_that_waits_is_told_once_and_granted_when_the_clock_has_caught_up() {
    let (mut way, mut servers) = way(Duration::from_secs(60));
    let mut told = Vec::new();
    let granted = loop {
        match way.round_on(&mut servers) {
            Next::Retry { at, .. } => way.now = at.max(way.now + Duration::from_millis(1)),
            Next::Granted { .. } => break way.now,
            Next::GiveUp(failure) => panic!("{failure:?}"),
        }
        told.extend(way.acquisition.take_fence_ahead());
    };
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(is_about(told[0], BLOCKED), "{told:?}");
    assert!(is_about(granted.since(at(0)), BLOCKED), "{granted:?}");
}

#[test]
fn a_wait_that_ends_before_says_for_how_long_the_name_is_blocked() {
    let (mut way, mut servers) = way(Duration::from_secs(5));
    let failure = loop {
        match way.round_on(&mut servers) {
            Next::Retry { at, .. } => way.now = at.max(way.now + Duration::from_millis(1)),
            Next::Granted { .. } => panic!("granted"),
            Next::GiveUp(failure) => break failure,
        }
    };
    let FailureKind::FenceAhead { left } = failure.kind else {
        panic!("{failure:?}");
    };
    assert!(is_about(left, BLOCKED - Duration::from_secs(5)), "{left:?}");
}
