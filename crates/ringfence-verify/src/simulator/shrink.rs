//! Shrinks a failing plan: leaves out faults and steps, in ever smaller groups, as long as the same
//! invariant is broken.

use crate::invariants::{self, Violation};

use super::plan::{Parts, Plan};
use super::world;

/// How many runs it may take.
const RUNS_MAX: usize = 600;

/// The smallest parts found of `plan` that break the invariant of `violation`, and their violation.
pub fn shrink(plan: &Plan, violation: &Violation) -> (Parts, Violation) {
    let mut found = (plan.all(), violation.clone());
    let mut runs = 0;
    loop {
        let before = found.0.clone();
        // Faults first: without them, more steps can be left out.
        for which in [faults, steps] {
            without(plan, &mut found, which, &mut runs);
        }
        if found.0 == before || runs >= RUNS_MAX {
            return found;
        }
    }
}

type Which = fn(&mut Parts) -> &mut Vec<usize>;

fn faults(parts: &mut Parts) -> &mut Vec<usize> {
    &mut parts.faults
}

fn steps(parts: &mut Parts) -> &mut Vec<usize> {
    &mut parts.steps
}

fn without(plan: &Plan, found: &mut (Parts, Violation), which: Which, runs: &mut usize) {
    let mut lot = which(&mut found.0).len().div_ceil(2);
    while lot > 0 {
        let mut from = 0;
        while from < which(&mut found.0).len() && *runs < RUNS_MAX {
            let mut parts = found.0.clone();
            let list = which(&mut parts);
            list.drain(from..(from + lot).min(list.len()));
            *runs += 1;
            match still_breaks(plan, &parts, found.1.invariant) {
                Some(violation) => *found = (parts, violation),
                None => from += lot,
            }
        }
        lot /= 2;
    }
}

fn still_breaks(plan: &Plan, parts: &Parts, invariant: &str) -> Option<Violation> {
    let run = world::run(plan, parts, false);
    let violation = invariants::check(&run.history).err()?;
    (violation.invariant == invariant).then_some(violation)
}
