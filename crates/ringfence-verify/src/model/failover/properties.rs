//! What must hold in every state around a failover, and what must happen in some.

use stateright::Property;

use super::model::FailoverModel;
use super::scope::FailoverScope;
use super::world::World;
use crate::model::properties::{EXCLUSIVE, FINAL};

/// F5 keeps its promise.
pub(in crate::model) const KEPT: &str =
    "a holder that is confirmed and has X + D left keeps its lock";

/// What is worth showing that it can happen at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// An extend of the first holder counted in a quarantine.
    Carried,
    /// An extend of the newcomer counted in a quarantine.
    NewHolderCarried,
    /// A restore replaced a holder whose release was lost.
    OutdatedReplaced,
    /// The newcomer was refused because of the quarantine.
    NewcomerWaits,
    /// The newcomer was granted the lock by a server that was promoted.
    GrantedByPromoted,
    /// A grant was executed, and did not count.
    GrantIgnored,
    /// An acquire came too late.
    AcquireTooLate,
    /// Only the epoch showed that a server was promoted.
    BornByEpoch,
}

/// A state in which `$event` has happened is reached.
macro_rules! happens {
    ($text:literal, $event:ident) => {
        Property::sometimes($text, |model: &FailoverModel, _: &World| {
            model.has_seen(Event::$event)
        })
    };
}

/// The claims.
pub(super) fn properties(scope: FailoverScope) -> Vec<Property<FailoverModel>> {
    let mut all = vec![
        Property::always(EXCLUSIVE, |_, world: &World| !world.is_doubled()),
        Property::always(KEPT, |_, world: &World| !world.robbed),
        Property::always(FINAL, |_, world: &World| !world.revived),
        happens!("a holder is carried through a promotion", Carried),
        happens!("so is a holder that came later", NewHolderCarried),
        happens!(
            "a restore replaces a holder whose release was lost",
            OutdatedReplaced
        ),
        happens!("a newcomer waits for the quarantine", NewcomerWaits),
        happens!(
            "a newcomer is granted the lock by a server that was promoted",
            GrantedByPromoted
        ),
        happens!("a grant that is read late does not count", GrantIgnored),
        happens!("an acquire that comes late is refused", AcquireTooLate),
    ];
    if scope.promotions > 1 {
        all.push(happens!(
            "a master is promoted again, and only the epoch shows it",
            BornByEpoch
        ));
    }
    all
}
