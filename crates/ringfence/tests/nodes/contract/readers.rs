//! The contract of readers, which share a name.

use ringfence_core::message::{Claim, Mode};

use super::*;

fn share(node: &dyn Node, client: u8, op: Op) -> Answer {
    let mut request = request(&["x"], client, op);
    let shared = |claim: &Claim| Claim {
        mode: Mode::Shared,
        ..claim.clone()
    };
    request.claims = request.claims.iter().map(shared).collect();
    send(node, request, NEVER).wait().unwrap().answer
}

pub(super) fn a_writer_needs_a_ballot_above_the_readers(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    let high = plus(ballot, 2_000_000);
    assert_eq!(share(node, ALICE, acquire(high, 50)), Answer::Granted);
    stage.pass_ms(52);
    let write = |ballot| ask(node, "x", BOB, acquire(ballot, TTL_MS));
    assert_eq!(write(plus(ballot, 1_000_000)), Answer::Stale);
    assert_eq!(write(plus(high, 1)), Answer::Granted);
}

pub(super) fn ballots_of_readers_are_ordered_per_reader_only(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    let high = plus(ballot, 2_000_000);
    let low = plus(ballot, 1_000_000);
    assert_eq!(share(node, ALICE, acquire(high, TTL_MS)), Answer::Granted);
    assert_eq!(share(node, BOB, acquire(low, TTL_MS)), Answer::Granted);
    assert_eq!(share(node, ALICE, acquire(low, TTL_MS)), Answer::Stale);
}

pub(super) fn a_share_is_never_shortened(stage: &Stage) {
    let node = stage.node();
    let ballot = next_ballot(node, "x");
    share(node, ALICE, acquire(ballot, TTL_MS));
    assert_eq!(share(node, ALICE, extend(ballot, 50)), Answer::Extended);
    let higher = plus(ballot, 1);
    assert_eq!(share(node, ALICE, acquire(higher, 50)), Answer::Granted);
    stage.pass_ms(52);
    held(ask(node, "x", BOB, acquire(plus(ballot, 2), TTL_MS)));
}
