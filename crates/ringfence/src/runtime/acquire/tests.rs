//! Tests of how callers of one client share the nodes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::clock::{Clock, SteppedClock};

fn claims<const N: usize>(names: [&str; N], mode: Mode) -> [Claim; N] {
    names.map(|name| Claim {
        name: Name::new("", name).unwrap(),
        mode,
    })
}

#[test]
fn a_second_caller_is_contended_until_the_first_has_ended() {
    let contention = LocalContention::default();
    let (one, both) = (
        claims(["a"], Mode::Exclusive),
        claims(["a", "b"], Mode::Exclusive),
    );
    let other = claims(["c"], Mode::Exclusive);
    let first = contention.join(&one, true);
    assert!(!first.contended);
    assert!(!contention.join(&other, true).contended);
    let second = contention.join(&both, true);
    assert!(second.contended);
    drop(first);
    assert!(
        contention.join(&one, true).contended,
        "the second caller is still there"
    );
    drop(second);
    assert!(!contention.join(&both, true).contended);
    assert!(lock(&contention.names).is_empty());
}

#[test]
fn shared_claims_are_no_contention() {
    let contention = LocalContention::default();
    let shared = claims(["a"], Mode::Shared);
    let _first = contention.join(&shared, true);
    assert!(!contention.join(&shared, true).contended);
    assert!(
        !contention
            .join(&claims(["a"], Mode::Exclusive), true)
            .contended
    );
}

fn caller<'a>(contention: &'a LocalContention, claims: &'a [Claim]) -> ContentionEntry<'a> {
    contention.join(claims, true)
}

#[test]
fn patient_callers_all_ask_at_once() {
    let contention = LocalContention::default();
    let claims = claims(["a"], Mode::Exclusive);
    let callers: Vec<_> = (0..1_000).map(|_| caller(&contention, &claims)).collect();
    assert!(callers.iter().all(|caller| caller.asks));
}

#[test]
fn while_callers_give_up_only_a_few_ask() {
    let contention = LocalContention::default();
    let claims = claims(["a"], Mode::Exclusive);
    contention.undo_sent(&claims[0].name);
    let callers: Vec<_> = (0..100).map(|_| caller(&contention, &claims)).collect();
    let asking = callers.iter().filter(|caller| caller.asks).count();
    assert_eq!(asking, ASKING_MAX - 1, "and the one that is undone");
    assert!(
        callers[..asking].iter().all(|caller| caller.asks),
        "in order"
    );
    // A caller that does not wait asks at once.
    assert!(contention.join(&claims, false).asks);
}

#[test]
fn callers_of_another_name_ask_at_once() {
    let contention = LocalContention::default();
    let (storm, other) = (
        claims(["a"], Mode::Exclusive),
        claims(["b"], Mode::Exclusive),
    );
    contention.undo_sent(&storm[0].name);
    let _storm: Vec<_> = (0..100).map(|_| caller(&contention, &storm)).collect();
    let others: Vec<_> = (0..100).map(|_| caller(&contention, &other)).collect();
    assert!(others.iter().all(|caller| caller.asks));
}

#[test]
fn once_nobody_waits_and_no_undo_is_left_all_ask_again() {
    let contention = LocalContention::default();
    let claims = claims(["a"], Mode::Exclusive);
    let name = &claims[0].name;
    contention.undo_sent(name);
    let mut asking: Vec<_> = (1..ASKING_MAX)
        .map(|_| caller(&contention, &claims))
        .collect();
    let mut waiting = caller(&contention, &claims);
    assert!(!waiting.pass(NameCallers::has_room));
    contention.undo_ended(name, None);
    assert!(waiting.pass(NameCallers::has_room));
    asking.extend((0..100).map(|_| caller(&contention, &claims)));
    assert!(
        asking.iter().all(|caller| caller.asks),
        "nobody waits any more"
    );
    drop((asking, waiting));
    assert!(lock(&contention.names).is_empty());
}

#[tokio::test]
async fn a_caller_that_waits_is_woken_by_room_and_else_by_its_patience() {
    let time = SteppedClock::starting_at(Duration::from_secs(1));
    let runtime = ClientRuntime::of_group(Vec::new(), Clock::Stepped(time.clone()));
    let (contention, claims) = (&runtime.contention, claims(["a"], Mode::Exclusive));
    let name = &claims[0].name;
    let second = Duration::from_secs(1);
    let patience = |wait: Option<Duration>| TurnLimits {
        gives_up_at: wait.map(|wait| time.now() + wait),
        longest: second,
    };
    let full = || {
        contention.undo_sent(name);
        let asking = (1..ASKING_MAX).map(|_| caller(contention, &claims));
        asking.collect::<Vec<_>>()
    };
    let mut cx = Context::from_waker(Waker::noop());

    // Room.
    let mut asking = full();
    let mut first = caller(contention, &claims);
    {
        let mut turn = pin!(first.may_ask(&runtime, patience(None)));
        assert!(turn.as_mut().poll(&mut cx).is_pending());
        asking.pop();
        assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(true));
    }
    drop((asking, first));
    contention.undo_ended(name, None);
    assert!(lock(&contention.names).is_empty());

    // After the longest time it asks in any case.
    let asking = full();
    let mut late = caller(contention, &claims);
    {
        let mut turn = pin!(late.may_ask(&runtime, patience(Some(2 * second))));
        assert!(turn.as_mut().poll(&mut cx).is_pending());
        time.step(second);
        assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(true));
    }
    drop(late);

    // When its wait is over it gives up, but only if the nodes have answered meanwhile.
    for answered in [false, true] {
        let mut short = caller(contention, &claims);
        let mut turn = pin!(short.may_ask(&runtime, patience(Some(second / 2))));
        assert!(turn.as_mut().poll(&mut cx).is_pending());
        contention.undo_sent(name);
        contention.undo_ended(name, answered.then(|| time.now()));
        time.step(second / 2);
        assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(!answered));
    }
    drop(asking);
}
