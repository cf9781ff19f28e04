//! What must hold in every state, and what must happen in some: a model in which nothing ever happens is
//! right about everything.

use stateright::Property;

use super::protocol::Protocol;
use super::world::World;

/// Fences are unique.
pub const UNIQUE: &str = "no fence is granted twice";
/// Fences rise in real time.
pub const RISING: &str = "a lock that is asked for after a grant has a higher fence";
/// Nobody holds beside another while all leases last.
pub const EXCLUSIVE: &str = "two do not hold at once unless a lease has ended";

/// What is claimed about `protocol`.
pub fn properties(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let scope = protocol.scope();
    let mut all = vec![
        Property::always(UNIQUE, |_, world: &World| !world.duplicate),
        Property::always(RISING, |_, world: &World| !world.disorder),
        Property::sometimes("a lock is granted", |_, world: &World| {
            world.seen.grants > 0
        }),
        Property::sometimes("two clients have the lock in turn", |_, world: &World| {
            world.seen.grants > 1
        }),
    ];
    if scope.time.is_none() {
        all.push(Property::always(EXCLUSIVE, |_, world: &World| {
            !world.doubled
        }));
        all.push(Property::sometimes(
            "a lease ends under its holder",
            |_, world: &World| world.seen.lapsed,
        ));
    } else if scope.crashes > 0 && scope.outlasts_quarantine() {
        all.push(Property::sometimes(
            "a node that forgot everything makes a majority again",
            |_, world: &World| world.seen.grown_up,
        ));
    }
    if scope.crashes > 0 && (scope.time.is_some() || scope.extends > 0) {
        all.push(Property::sometimes(
            "a node in quarantine grants, and does not count",
            |_, world: &World| world.seen.doubted,
        ));
    }
    if scope.attempts.iter().any(|n| *n > 1) {
        all.push(Property::sometimes(
            "an acquire that comes after its undo is refused",
            |_, world: &World| world.seen.late_acquire_refused,
        ));
        all.push(Property::sometimes(
            "an undo leaves what a later attempt got",
            |_, world: &World| world.seen.late_undo_refused,
        ));
    }
    if scope.extends > 0 {
        all.push(Property::sometimes(
            "a lock is extended after a node forgot it",
            |_, world: &World| world.seen.extended_after_crash,
        ));
        all.push(Property::sometimes(
            "a node that forgot a holder gets it back",
            |_, world: &World| world.seen.restored_after_crash,
        ));
        all.push(Property::sometimes(
            "a restore that comes after the release is refused",
            |_, world: &World| world.seen.late_restore_refused,
        ));
    }
    all
}
