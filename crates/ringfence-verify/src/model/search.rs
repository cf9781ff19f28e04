//! Searching a model to the end, and telling what was found.

use std::fmt;
use std::thread;
use std::time::Duration;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Path};

use super::counter::{Counters, Scheme};
use super::protocol::Protocol;
use super::scope::Scope;
use super::world::World;

/// What a search came to.
#[derive(Debug)]
pub struct Report {
    /// How many different states there are, those that mirror each other counted once.
    pub states: usize,
    /// How many steps lie between the first state and the farthest.
    pub depth: usize,
    /// What was found about each property, in the order in which they are claimed.
    pub findings: Vec<Finding>,
}

/// What was found about one property.
#[derive(Debug)]
pub struct Finding {
    /// The property.
    pub property: &'static str,
    /// Whether it is as it should be.
    pub holds: bool,
    /// How it came to the state that decides: what breaks it, or shows that it can be.
    pub way: Option<String>,
}

/// How often the progress of a search is reported.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Searches all states within `scope`: to the end, or to the first mistake.
pub fn search(scope: Scope, threads: usize) -> Report {
    search_watched(scope, threads, |_| {})
}

/// The same; `on_progress` hears now and then how many different states there are so far.
pub fn search_watched(scope: Scope, threads: usize, on_progress: impl Fn(usize)) -> Report {
    let protocol = Protocol::new(scope);
    let properties = protocol.properties();
    let checker = protocol.checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.symmetry_fn(World::representative).spawn_dfs();
    while !checker.is_done() {
        on_progress(checker.unique_state_count());
        thread::sleep(LOOK);
    }
    report(&checker.join(), &properties)
}

/// Searches `scope` for the shortest ways to break `properties`.
pub(super) fn search_shortest(scope: Scope, properties: &[&'static str], threads: usize) -> Report {
    let protocol = Protocol::new(scope);
    let claimed = protocol.properties();
    let checker = protocol.checker().threads(threads);
    let checker = checker.finish_when(all_of(properties));
    report(&checker.spawn_bfs().join(), &claimed)
}

/// Searches `scope` for any ways to break `properties`.
pub(super) fn search_deep(scope: Scope, properties: &[&'static str], threads: usize) -> Report {
    let protocol = Protocol::new(scope);
    let claimed = protocol.properties();
    let checker = protocol.checker().threads(threads);
    let checker = checker.finish_when(all_of(properties));
    let checker = checker.symmetry_fn(World::representative).spawn_dfs();
    report(&checker.join(), &claimed)
}

fn all_of(properties: &[&'static str]) -> HasDiscoveries {
    HasDiscoveries::AllOf(properties.iter().copied().collect())
}

/// Searches a scheme of counters until the shortest way to its mistake is known.
pub(super) fn search_counters(scheme: Scheme, threads: usize) -> Report {
    let counters = Counters(scheme);
    let properties = counters.properties();
    let checker = counters.checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures);
    report(&checker.spawn_bfs().join(), &properties)
}

pub(super) fn report<C: Checker<M>, M>(
    checker: &C,
    properties: &[stateright::Property<M>],
) -> Report
where
    M: Model<State: Clone + PartialEq, Action: Clone + PartialEq + fmt::Display>,
{
    let mut ways = checker.discoveries();
    let findings = properties.iter().map(|property| {
        let way = ways.remove(property.name);
        Finding {
            property: property.name,
            holds: way.is_some() != (property.expectation == Expectation::Always),
            way: way.map(tell),
        }
    });
    Report {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        findings: findings.collect(),
    }
}

fn tell<S, A: fmt::Display>(way: Path<S, A>) -> String {
    let steps = way.into_actions().into_iter().zip(1..);
    let lines = steps.map(|(step, number)| format!("{number:>4}. {step}\n"));
    lines.collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} states, {} steps deep", self.states, self.depth)?;
        for finding in &self.findings {
            let verdict = if finding.holds { "holds" } else { "BROKEN" };
            writeln!(f, "  {verdict}: {}", finding.property)?;
        }
        Ok(())
    }
}

impl Report {
    /// Whether every property is as it should be.
    pub fn is_good(&self) -> bool {
        self.findings.iter().all(|finding| finding.holds)
    }

    /// What is broken, and how.
    pub fn broken(&self) -> impl Iterator<Item = &Finding> {
        // What must happen somewhere may not have been reached when the search stopped at a
        // mistake.
        let broken = |finding: &&Finding| !finding.holds && finding.way.is_some();
        self.findings.iter().filter(broken)
    }
}

impl Finding {
    /// The way to the state that decides, a step a line.
    pub fn told(&self) -> &str {
        self.way.as_deref().unwrap_or_default()
    }
}
