//! A resource that checks fences loses no update, under any fault: every accepted write was made by
//! a client that had seen the write before it, and the fences never fall.

use std::collections::HashMap;

use crate::history::{Event, History, What};

use super::Violation;

/// See the module.
///
/// # Errors
/// If a resource accepted a write over a value that its writer had not seen.
pub fn check(history: &History) -> Result<(), Violation> {
    let mut last: HashMap<&str, (u64, u64, u64)> = HashMap::new();
    for Event { at_us, what } in &history.events {
        let What::Updated {
            resource,
            op,
            fence,
            saw,
            wrote,
        } = what
        else {
            continue;
        };
        let before = last.insert(resource, (*op, *fence, *wrote));
        let (earlier, highest, value) = before.unwrap_or_default();
        let how = if *saw != value {
            format!("op {op} had seen {saw} in {resource} and overwrote {value} of op {earlier}")
        } else if *fence < highest {
            format!("{resource} accepted fence {fence} of op {op} after {highest} of op {earlier}")
        } else {
            continue;
        };
        return Err(Violation {
            invariant: "updates",
            at_us: *at_us,
            how,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updates(of: &[(u64, u64, u64)]) -> History {
        let mut history = History::default();
        for (at_us, &(fence, saw, wrote)) in (0..).zip(of) {
            let what = What::Updated {
                resource: "r".to_owned(),
                op: fence,
                fence,
                saw,
                wrote,
            };
            history.push(at_us, what);
        }
        history
    }

    #[test]
    fn a_lost_update_is_found() {
        let history = updates(&[(10, 0, 1), (11, 1, 2), (12, 1, 3)]);
        assert_eq!(check(&history).unwrap_err().at_us, 2);
    }

    #[test]
    fn a_late_write_with_an_old_fence_is_found() {
        assert!(check(&updates(&[(11, 0, 1), (10, 1, 2)])).is_err());
    }

    #[test]
    fn updates_that_each_saw_the_last_are_fine() {
        assert_eq!(
            check(&updates(&[(10, 0, 1), (10, 1, 2), (12, 2, 3)])),
            Ok(())
        );
    }
}
