//! The invariants of every history, one file for each. They do not know how a history was made, so
//! the simulator and the runs on real servers are judged alike. The tests of each invariant show
//! that it rejects bad histories.

pub mod breaks;
pub mod exclusion;
pub mod fences;
pub mod keeping;
pub mod latches;
pub mod leftovers;
pub mod liveness;
pub mod order;
pub mod ownership;
pub mod permits;
pub mod readers;
pub mod returns;
pub mod terms;
pub mod updates;

use std::fmt;

use crate::history::History;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant.
    pub invariant: &'static str,
    /// When it was broken, in microseconds of true time.
    pub at_us: u64,
    /// What happened, for people.
    pub how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        write!(
            f,
            "{} at {seconds}.{micros:06} s: {}",
            self.invariant, self.how
        )
    }
}

/// Checks one invariant of a history.
pub type Check = fn(&History) -> Result<(), Violation>;

/// All invariants, by name.
pub const ALL: [(&str, Check); 14] = [
    ("exclusion", exclusion::check),
    ("readers", readers::check),
    ("permits", permits::check),
    ("fences", fences::check),
    ("breaks", breaks::check),
    ("keeping", keeping::check),
    ("latches", latches::check),
    ("terms", terms::check),
    ("updates", updates::check),
    ("ownership", ownership::check),
    ("returns", returns::check),
    ("order", order::check),
    ("leftovers", leftovers::check),
    ("liveness", liveness::check),
];

/// Checks all invariants; returns the first violation.
///
/// # Errors
/// If an invariant is broken.
pub fn check(history: &History) -> Result<(), Violation> {
    ALL.iter().try_for_each(|(_, check)| check(history))
}
