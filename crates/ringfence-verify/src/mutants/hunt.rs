//! Mutant after mutant, on every core, until some check goes red.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;

use super::{Listed, Outcome, Suite};

/// How a mutant was caught, if it was.
#[derive(Debug, Clone)]
pub struct Catch {
    /// The mutant.
    pub mutant: Listed,
    /// The program and the check in it that went red.
    pub by: Option<(&'static str, String)>,
    /// How long that took, with the checks that saw nothing before it.
    pub took: Duration,
}

/// Runs `suites` on each of `mutants` until one is red. `limits` are how long each may take; `told` hears
/// of every mutant as it is done. In the order of `mutants`.
pub fn hunt(
    mutants: &[Listed],
    suites: &[Suite],
    limits: &[Duration],
    scratch: &Path,
    told: impl Fn(&Catch) + Sync,
) -> Vec<Catch> {
    let next = AtomicUsize::new(0);
    let caught: Vec<Mutex<Option<Catch>>> = mutants.iter().map(|_| Mutex::new(None)).collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutant) = mutants.get(at) else { break };
                    let catch = catch(mutant, suites, limits, scratch);
                    told(&catch);
                    if let Ok(mut place) = caught[at].lock() {
                        *place = Some(catch);
                    }
                }
            });
        }
    });
    let caught = caught.into_iter();
    caught.filter_map(|one| one.into_inner().ok()?).collect()
}

fn catch(mutant: &Listed, suites: &[Suite], limits: &[Duration], scratch: &Path) -> Catch {
    let clock = Clock::System;
    let began = clock.now();
    let red = suites.iter().zip(limits).find_map(|(suite, limit)| {
        if !suite.may_see(&mutant.place) {
            return None;
        }
        match suite.run(Some(&mutant.name), *limit, scratch) {
            Outcome::Green => None,
            Outcome::Red(check) => Some((suite.name, check)),
        }
    });
    Catch {
        mutant: mutant.clone(),
        by: red,
        took: clock.now().since(began),
    }
}
