//! What must hold in every state, and what must happen in some: a model in which nothing ever
//! happens is right about everything.

use stateright::Property;

use super::protocol::Protocol;
use super::world::World;

/// Fences are unique.
pub const UNIQUE: &str = "no fence is granted twice";
/// Fences rise in real time.
pub const RISING: &str = "a lock that is asked for after a grant has a higher fence";
/// Validities do not overlap.
pub const EXCLUSIVE: &str = "two clients do not hold at once";
/// What is lost is undone.
pub const UNDONE: &str = "what a lost attempt or a released lock left on a node is being undone";

/// A loss is final.
pub const FINAL: &str = "a lock that was lost is not held again";

/// What is worth showing that it can happen at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A lock was granted.
    Granted,
    /// A lock was granted after another client had had it.
    GrantedInTurn,
    /// A lease ended under its holder.
    Lapsed,
    /// A majority granted, and the client's task read that too late.
    ReadLate,
    /// An acquire came after its own undo, and was refused because of it.
    LateAcquireRefused,
    /// An undo came after a later attempt of the same client had been granted there.
    LateUndoRefused,
    /// A restore came after the release, and was refused.
    LateRestoreRefused,
    /// A majority extended a lock after a node had forgotten it.
    ExtendedAfterCrash,
    /// A node that had forgotten a holder got it back.
    RestoredAfterCrash,
    /// A grant was not counted, because the node may have forgotten another.
    Discounted,
    /// A node's quarantine was over, and its vote made a majority.
    GrownUp,
}

/// A state in which `$event` has happened is reached.
macro_rules! happens {
    ($text:literal, $event:ident) => {
        Property::sometimes($text, |protocol: &Protocol, _: &World| {
            protocol.tables.has_seen(Event::$event)
        })
    };
}

/// The claims about `protocol`.
pub fn properties(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::always(UNIQUE, |_, world: &World| !world.duplicate),
        Property::always(RISING, |_, world: &World| !world.disorder),
    ];
    if protocol.scope().span().is_some() {
        all.extend([
            Property::always(EXCLUSIVE, |_, world: &World| !world.doubled),
            Property::always(UNDONE, |_, world: &World| !world.left_behind),
            Property::always(FINAL, |_, world: &World| !world.revived),
        ]);
    }
    all.extend(reached(protocol));
    all
}

/// What must happen in some state.
fn reached(protocol: &Protocol) -> Vec<Property<Protocol>> {
    let scope = protocol.scope();
    let (is_timed, crashes) = (scope.span().is_some(), scope.crashes > 0);
    let mut all = vec![
        happens!("a lock is granted", Granted),
        happens!("two clients have the lock in turn", GrantedInTurn),
    ];
    if is_timed {
        all.push(happens!("a lease ends under its holder", Lapsed));
        all.push(happens!(
            "an acquire that comes after its undo is refused",
            LateAcquireRefused
        ));
    }
    if is_timed && scope.renewals == 0 {
        all.push(happens!(
            "a client reads too late that it has won",
            ReadLate
        ));
    }
    if crashes {
        all.push(happens!(
            "a node in quarantine grants, and does not count",
            Discounted
        ));
    }
    if crashes && scope.outlasts_quarantine() {
        all.push(happens!(
            "a node that forgot everything makes a majority again",
            GrownUp
        ));
    }
    if scope.attempts.iter().any(|n| *n > 1) {
        all.push(happens!(
            "an undo leaves what a later attempt got",
            LateUndoRefused
        ));
    }
    if scope.renewals > 0 {
        all.extend([
            happens!(
                "a lock is extended after a node forgot it",
                ExtendedAfterCrash
            ),
            happens!(
                "a node that forgot a holder gets it back",
                RestoredAfterCrash
            ),
            happens!(
                "a restore that comes after the release is refused",
                LateRestoreRefused
            ),
        ]);
    }
    all
}
