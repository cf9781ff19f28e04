//! Mutant after mutant, on every core, until some check goes red.
//!
//! A check that is red anyway catches nothing. So whatever is said to have caught a mutant was green
//! without it, alone and beside as much other work; and where the machine has a say in how a test ends,
//! it was red twice.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;

use super::{Mutant, Outcome, Suite};

/// How long a whole suite may take, and a test without a mutant.
const PATIENCE: Duration = Duration::from_secs(600);

/// A test with a mutant may take so many times as long as without.
const SLOWER: u32 = 20;

/// Or so long, if that is more: most take next to nothing without.
const AT_LEAST: Duration = Duration::from_secs(20);

/// A test by its suite and its name.
pub type Check = (String, String);

/// How a mutant was caught, if it was.
#[derive(Debug, Clone)]
pub struct Catch {
    /// The mutant.
    pub mutant: Mutant,
    /// The test that went red.
    pub by: Option<Check>,
    /// How long that took; if nothing did, how long everything took.
    pub took: Duration,
}

/// The checks that hunt.
#[derive(Debug)]
pub struct Hunt<'a> {
    /// In the order in which they are tried.
    pub suites: &'a [Suite],
    /// Where they may leave what they leave.
    pub scratch: &'a Path,
}

impl Hunt<'_> {
    /// Sees `checks` green without a mutant: how long each takes. One that is no longer there is left out.
    pub fn sound(&self, checks: &BTreeSet<Check>) -> Result<BTreeMap<Check, Duration>, String> {
        let mut tasks = Vec::new();
        for suite in self.suites {
            let tests = checks.iter().filter(|(name, _)| name == suite.name);
            let tests: Vec<&str> = tests.map(|(_, test)| test.as_str()).collect();
            // In small pieces, so that all cores have something to do until the end.
            tasks.extend(tests.chunks(8).map(|some| (suite, some.to_vec())));
        }
        let seen = on_all_cores(&tasks, |(suite, tests)| {
            let only = Suite::clone(suite).only(tests.iter().copied());
            let mut outcome = only.run(None, PATIENCE, self.scratch);
            if !matches!(outcome, Outcome::Green(_)) && !suite.repeats() {
                // Where the machine has a say, once is not enough to call a test red either.
                outcome = only.run(None, PATIENCE, self.scratch);
            }
            match outcome {
                Outcome::Green(passed) => Ok(passed
                    .into_iter()
                    .map(|(test, took)| ((suite.name.to_owned(), test), took))
                    .collect::<Vec<_>>()),
                Outcome::Red(why) | Outcome::Broken(why) => {
                    Err(format!("without a mutant, in {}: {why} is red", suite.name))
                }
            }
        });
        let seen: Result<Vec<_>, String> = seen.into_iter().collect();
        Ok(seen?.into_iter().flatten().collect())
    }

    /// Tries on each of `mutants` the one check beside it, which takes so long without it. `told` hears of
    /// every mutant as it is done.
    pub fn known(
        &self,
        mutants: &[(Mutant, Check, Duration)],
        told: impl Fn(&Catch) + Sync,
    ) -> Vec<Catch> {
        on_all_cores(mutants, |(mutant, check, sound)| {
            let catch = timed(mutant, || {
                let caught = self.catches(check, mutant, *sound);
                caught.then(|| check.clone())
            });
            told(&catch);
            catch
        })
    }

    /// Tries on each of `mutants` one suite after the other.
    pub fn everywhere(&self, mutants: &[Mutant], told: impl Fn(&Catch) + Sync) -> Vec<Catch> {
        on_all_cores(mutants, |mutant| {
            let sees = |suite: &&Suite| suite.may_see(mutant.place());
            let mut suites = self.suites.iter().filter(sees);
            let catch = timed(mutant, || {
                suites.find_map(|suite| self.within(suite, mutant))
            });
            told(&catch);
            catch
        })
    }

    /// The first test of `suite` that catches `mutant`, and would again.
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

    /// Whether `check` goes red on `mutant`. If it does not end, it must have had many times as long as it
    /// takes without.
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

/// Does `work` on each of `items`, one at a time on each core. What came of it, in their order.
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
                    if let Ok(mut place) = done[at].lock() {
                        *place = Some(result);
                    }
                }
            });
        }
    });
    let done = done.into_iter();
    done.filter_map(|one| one.into_inner().ok()?).collect()
}
