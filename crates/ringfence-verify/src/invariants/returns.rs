//! A release is final: no late acquire or restore makes a holder hold again on a node where it has
//! released, or where its attempt was undone.

use crate::history::{Event, History, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If a node has a holder again that had released there.
pub fn check(history: &History) -> Result<(), Violation> {
    for Event { at_us, what } in &history.events {
        if let What::Returned { node, name, holder } = what {
            return Err(Violation {
                invariant: "returns",
                at_us: *at_us,
                how: format!("{holder} holds {name} on node {node} again, after it released it"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_returns_after_its_release_is_found() {
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
