//! Runs the checks on one mutant after the other, on every core, until a check fails.
//!
//! A check that fails anyway catches nothing. So every check that counts passed without the mutant
//! before, under similar load. If a test depends on servers or threads, it must fail twice.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;

use super::{Mutant, Outcome, Suite};

/// The time limit of a whole suite, and of a test without a mutant.
const PATIENCE: Duration = Duration::from_secs(600);

/// A test with a mutant may take this many times as long as without,
const SLOWER: u32 = 20;

/// or this long, if that is more: most tests take almost no time without a mutant.
const AT_LEAST: Duration = Duration::from_secs(20);

/// A test: its suite and its name.
pub type Check = (String, String);

/// How a mutant was caught, if it was.
#[derive(Debug, Clone)]
pub struct Catch {
    /// The mutant.
    pub mutant: Mutant,
    /// The test that failed.
    pub by: Option<Check>,
    /// How long that test took; if no test failed, how long all of them took.
    pub took: Duration,
}

/// The suites that are used to catch mutants.
#[derive(Debug)]
pub struct Hunt<'a> {
    /// The suites, in the order in which they are tried.
    pub suites: &'a [Suite],
    /// The folder for temporary files of the tests.
    pub scratch: &'a Path,
}

impl Hunt<'_> {
    /// Runs `checks` without a mutant. Returns how long each takes; a check that no longer exists
    /// is left out.
    pub fn sound(&self, checks: &BTreeSet<Check>) -> Result<BTreeMap<Check, Duration>, String> {
        let mut tasks = Vec::new();
        for suite in self.suites {
            let tests = checks.iter().filter(|(name, _)| name == suite.name);
            let tests: Vec<&str> = tests.map(|(_, test)| test.as_str()).collect();
            // In small groups, so that all cores are busy until the end.
            tasks.extend(tests.chunks(8).map(|some| (suite, some.to_vec())));
        }
        let seen = on_all_cores(&tasks, |(suite, tests)| {
            let only = Suite::clone(suite).only(tests.iter().copied());
            let mut outcome = only.run(None, PATIENCE, self.scratch);
            if !matches!(outcome, Outcome::Green(_)) && !suite.repeats() {
                // A test that depends on servers or threads must fail twice to count as failed.
                outcome = only.run(None, PATIENCE, self.scratch);
            }
            match outcome {
                Outcome::Green(passed) => Ok(passed
                    .into_iter()
                    .map(|(test, took)| ((suite.name.to_owned(), test), took))
                    .collect::<Vec<_>>()),
                Outcome::Red(why) | Outcome::Broken(why) => Err(format!(
                    "without a mutant, a test of {} fails: {why}",
                    suite.name
                )),
            }
        });
        let seen: Result<Vec<_>, String> = seen.into_iter().collect();
        Ok(seen?.into_iter().flatten().collect())
    }

    /// Runs on each of `mutants` the check beside it; the duration is what the check takes without
    /// a mutant. Calls `report` for every mutant when it is done.
    pub fn known(
        &self,
        mutants: &[(Mutant, Check, Duration)],
        report: impl Fn(&Catch) + Sync,
    ) -> Vec<Catch> {
        on_all_cores(mutants, |(mutant, check, sound)| {
            let catch = timed(mutant, || {
                let caught = self.catches(check, mutant, *sound);
                caught.then(|| check.clone())
            });
            report(&catch);
            catch
        })
    }

    /// Runs on each of `mutants` one suite after the other.
    pub fn everywhere(&self, mutants: &[Mutant], report: impl Fn(&Catch) + Sync) -> Vec<Catch> {
        on_all_cores(mutants, |mutant| {
            let sees = |suite: &&Suite| suite.may_see(mutant.runs_on());
            let mut suites = self.suites.iter().filter(sees);
            let catch = timed(mutant, || {
                suites.find_map(|suite| self.within(suite, mutant))
            });
            report(&catch);
            catch
        })
    }

    /// The first test of `suite` that catches `mutant` reliably.
    fn within(&self, suite: &Suite, mutant: &Mutant) -> Option<Check> {
        let mut unsure = Vec::new();
        loop {
            let rest = suite.clone().without(&unsure);
            let Outcome::Red(test) = rest.run(Some(mutant.name), PATIENCE, self.scratch) else {
                return None;
            };
            let check = (suite.name.to_owned(), test.clone());
            let sound = self.sound(&BTreeSet::from([check.clone()]));
            let sound = sound.ok().and_then(|sound| sound.get(&check).copied());
            if sound.is_some_and(|sound| self.catches(&check, mutant, sound)) {
                return Some(check);
            }
            unsure.push(test);
        }
    }

    /// Whether `check` fails on `mutant`. A check that does not end within many times its usual
    /// duration counts as failed.
    fn catches(&self, check: &Check, mutant: &Mutant, sound: Duration) -> bool {
        let Some(suite) = self.suites.iter().find(|suite| suite.name == check.0) else {
            return false;
        };
        let only = suite.clone().only([check.1.as_str()]);
        let limit = AT_LEAST.max(sound * SLOWER);
        let red = || {
            let outcome = only.run(Some(mutant.name), limit, self.scratch);
            !matches!(outcome, Outcome::Green(_))
        };
        red() && (suite.repeats() || red())
    }
}

fn timed(mutant: &Mutant, catch: impl FnOnce() -> Option<Check>) -> Catch {
    let clock = Clock::System;
    let began = clock.now();
    let by = catch();
    Catch {
        mutant: *mutant,
        by,
        took: clock.now().since(began),
    }
}

/// Does `work` on each of `items`, one at a time per core. Returns the results in the order of
/// `items`.
fn on_all_cores<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = work(item);
                    if let Ok(mut slot) = done[at].lock() {
                        *slot = Some(result);
                    }
                }
            });
        }
    });
    let done = done.into_iter();
    done.filter_map(|one| one.into_inner().ok()?).collect()
}
