//! Only the owner releases: no request removes a holder from a node, except the holder's own.

use crate::history::{Event, History, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If the request of one client removed another holder.
pub fn check(history: &History) -> Result<(), Violation> {
    for Event { at_us, what } in &history.events {
        if let What::Removed {
            node,
            name,
            holder,
            by,
        } = what
            && holder != by
        {
            return Err(Violation {
                invariant: "ownership",
                at_us: *at_us,
                how: format!("a request of {by} removed {holder} from {name} on node {node}"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(holder: &str, by: &str) -> History {
        let mut history = History::default();
        let what = What::Removed {
            node: 1,
            name: "x".to_owned(),
            holder: holder.to_owned(),
            by: by.to_owned(),
        };
        history.push(7, what);
        history
    }

    #[test]
    fn a_release_by_another_is_found() {
        assert!(check(&removed("aa", "bb")).is_err());
    }

    #[test]
    fn a_release_by_the_owner_is_fine() {
        assert_eq!(check(&removed("aa", "aa")), Ok(()));
    }
}
