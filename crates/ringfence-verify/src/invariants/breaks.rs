//! A break is final. Once a majority has broken a hold, the fence of the name is above that of the
//! broken hold, every later call gets a higher one, and, while clocks keep what exclusion needs, no
//! renewal that begins later lengthens the broken hold.

use std::collections::HashMap;

use crate::history::{Event, History, Hold, What};

use super::Violation;

/// What a break is to end: the name, the slot, and the highest fence.
type Target<'a> = (&'a str, Option<u32>, u64);

/// See the module.
///
/// # Errors
/// If a broken hold was lengthened, or if a fence is not above that of a break.
pub fn check(history: &History) -> Result<(), Violation> {
    let timing_until_us = history.timing_until_us();
    let mut targets: HashMap<u64, Target<'_>> = HashMap::new();
    let holds = history.believed_holds();
    let deadlines = deadlines(history);
    for Event { at_us, what } in &history.events {
        match what {
            What::Breaks {
                op,
                name,
                slot,
                up_to,
                ..
            } => {
                targets.insert(*op, (name, *slot, *up_to));
            }
            What::Broken {
                op,
                fence,
                until_us,
            } => {
                let Some(&(name, slot, up_to)) = targets.get(op) else {
                    continue;
                };
                let violation = |at_us: u64, how: String| {
                    Err(Violation {
                        invariant: "breaks",
                        at_us,
                        how,
                    })
                };
                if *fence <= up_to {
                    let how = format!("op {op} broke the fence {up_to} of {name} with {fence}");
                    return violation(*at_us, how);
                }
                let is_of_name = |hold: &&Hold<'_>| {
                    hold.slot == slot && hold.names.iter().any(|other| other == name)
                };
                for hold in holds.iter().filter(is_of_name) {
                    if hold.invoked_us > *at_us && hold.fence.is_some_and(|of| of <= *fence) {
                        let how = format!(
                            "op {} was granted {name} with a fence below that of its break, {fence}",
                            hold.op
                        );
                        return violation(hold.granted_us, how);
                    }
                    let latest_us = deadlines.get(&hold.op).copied().unwrap_or_default();
                    let in_time = *until_us < timing_until_us;
                    if in_time && hold.is_broken_by(name, slot, up_to) && latest_us > *until_us {
                        let how = format!(
                            "op {} renewed {name} until {latest_us} µs after op {op} had broken it",
                            hold.op
                        );
                        return violation(*until_us, how);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The latest deadline of each call.
fn deadlines(history: &History) -> HashMap<u64, u64> {
    let mut deadlines: HashMap<u64, u64> = HashMap::new();
    for Event { what, .. } in &history.events {
        if let What::Granted { op, until_us, .. } | What::Deadline { op, until_us } = what {
            let latest_us = deadlines.entry(*op).or_default();
            *latest_us = (*latest_us).max(*until_us);
        }
    }
    deadlines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::made::{exclusive, grant};

    /// Op 1 holds with the fence 10, and is broken at 50.
    fn broken(fence: u64) -> History {
        let mut history = History::default();
        history.invoke(0, 1, exclusive("x"));
        history.push(5, grant(1, 10, 100));
        let (op, name, slot) = (9, "x".to_owned(), None);
        let breaks = What::Breaks {
            op,
            client: 3,
            name,
            slot,
            up_to: 10,
        };
        history.push(40, breaks);
        let until_us = 150;
        history.push(
            50,
            What::Broken {
                op,
                fence,
                until_us,
            },
        );
        history
    }

    fn renewed(until_us: u64) -> History {
        let mut history = broken(20);
        history.push(60, What::Deadline { op: 1, until_us });
        history
    }

    #[test]
    fn a_renewal_after_the_break_is_found() {
        assert_eq!(check(&renewed(150)), Ok(()), "it had begun before");
        assert!(check(&renewed(151)).is_err());
        let mut excused = renewed(151);
        excused.break_timing(30);
        assert_eq!(check(&excused), Ok(()));
    }

    #[test]
    fn a_fence_that_is_not_above_that_of_the_break_is_found() {
        assert!(check(&broken(10)).is_err(), "the fence of the break");
        for (fence, is_right) in [(20, false), (21, true)] {
            let mut history = broken(20);
            history.held(2, exclusive("x"), fence, (60, 70));
            assert_eq!(check(&history).is_ok(), is_right);
        }
        let mut earlier = broken(20);
        earlier.invoke(45, 2, exclusive("x"));
        earlier.push(60, grant(2, 15, 70));
        assert_eq!(check(&earlier), Ok(()), "it called before the break");
    }
}
