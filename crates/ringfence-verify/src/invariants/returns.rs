//! What was given back stays given back: no acquire or restore that comes late puts a holder on a node again
//! that has released it there, or whose attempt was withdrawn.

use crate::history::{Event, History, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If a node has somebody again who was done.
pub fn check(history: &History) -> Result<(), Violation> {
    for Event { at_us, what } in &history.events {
        if let What::Returned { node, name, holder } = what {
            return Err(Violation {
                invariant: "returns",
                at_us: *at_us,
                how: format!("{holder} holds {name} on node {node} again, after it gave it back"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_is_found() {
        let mut history = History::default();
        assert_eq!(check(&history), Ok(()));
        let what = What::Returned {
            node: 1,
            name: "x".to_owned(),
            holder: "aa".to_owned(),
        };
        history.push(7, what);
        assert!(check(&history).is_err());
    }
}
