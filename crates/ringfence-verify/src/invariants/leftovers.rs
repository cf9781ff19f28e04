//! Nothing is left behind: once all clients are gone and their messages have arrived, no node has a
//! holder or a ticket.

use crate::history::{Event, History, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If a node still had something.
pub fn check(history: &History) -> Result<(), Violation> {
    for Event { at_us, what } in &history.events {
        if let What::Remains { node, name, what } = what {
            return Err(Violation {
                invariant: "leftovers",
                at_us: *at_us,
                how: format!("node {node} still has {what} under {name}"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftover_key_is_found() {
        let mut history = History::default();
        assert_eq!(check(&history), Ok(()));
        let what = What::Remains {
            node: 0,
            name: "x".to_owned(),
            what: "a key".to_owned(),
        };
        history.push(9, what);
        assert!(check(&history).is_err());
    }
}
