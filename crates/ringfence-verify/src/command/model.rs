//! `ringfence-verify model`: searches all states of the protocol's core, or searches a wrong
//! variant until it finds the mistake.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};

use ringfence_verify::model::{
    FailoverScope, Report, Scope, Size, Wrong, search_failover, search_watched,
};

/// The arguments of `model`.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// Search only this scope
    #[arg(long, value_parser = PossibleValuesParser::new(scope_names()))]
    scope: Option<String>,
    /// Search a variant that is known to be wrong, and print the shortest way to its mistake
    #[arg(
        long,
        value_parser = PossibleValuesParser::new(Wrong::ALL.map(|wrong| wrong.name)),
        conflicts_with = "scope"
    )]
    variant: Option<String>,
    /// With --scope: how many attempts each client makes, separated by commas; one number per
    /// client
    #[arg(long, value_delimiter = ',', requires = "scope")]
    attempts: Vec<u8>,
    /// With --scope: how many times the first client renews
    #[arg(long, requires = "scope")]
    renewals: Option<u8>,
    /// With --scope: how many ticks pass, where all clocks run together; around a failover, how
    /// many ticks a reply may take
    #[arg(long, requires = "scope")]
    ticks: Option<u8>,
    /// With --scope: how many ballots there are, where one clock runs by itself
    #[arg(long, requires = "scope")]
    ballots: Option<u8>,
    /// With --scope: how many nodes may forget everything; around a failover, how many restarts
    /// there are
    #[arg(long, requires = "scope")]
    crashes: Option<u8>,
    /// With --scope: how many promotions there are, around a failover
    #[arg(long, requires = "scope")]
    promotions: Option<u8>,
    /// With --scope: replies may be delayed
    #[arg(long, requires = "scope")]
    slow_replies: bool,
    /// With --scope: clients undo their last attempts
    #[arg(long, requires = "scope")]
    undo_last: bool,
    /// How many threads search. With more than one, the reported way need not be the shortest
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

impl ModelArgs {
    /// Succeeds if every scope keeps its properties, or if the mistake of the variant is found.
    pub(crate) fn run(self) -> ExitCode {
        let good = match &self.variant {
            Some(name) => Ok(self.find_wrong(name)),
            None => self.search_all(),
        };
        match good {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::from(64)
            }
        }
    }

    fn search_all(&self) -> Result<bool, String> {
        let scopes = Scope::ALL
            .into_iter()
            .filter(|scope| self.wants(scope.name));
        let scopes = scopes.map(|scope| self.sized(scope));
        let scopes = scopes.collect::<Result<Vec<_>, _>>()?;
        let failovers = FailoverScope::ALL.into_iter();
        let failovers = failovers.filter(|scope| self.wants(scope.name));
        let failovers = failovers.map(|scope| self.sized_failover(scope));
        let failovers = failovers.collect::<Result<Vec<_>, _>>()?;
        let mut good = true;
        for scope in scopes {
            let search = |bar: &ProgressBar| {
                search_watched(scope, self.threads, |states| {
                    bar.set_position(states as u64);
                })
            };
            good &= shown(scope.name, search);
        }
        for scope in failovers {
            let search = |bar: &ProgressBar| {
                search_failover(scope, self.threads, |states| {
                    bar.set_position(states as u64);
                })
            };
            good &= shown(scope.name, search);
        }
        Ok(good)
    }

    fn wants(&self, name: &str) -> bool {
        self.scope.as_deref().is_none_or(|wanted| wanted == name)
    }

    fn sized(&self, scope: Scope) -> Result<Scope, String> {
        if self.promotions.is_some() {
            return Err("in this scope no server is promoted".to_owned());
        }
        let size = Size {
            attempts: self.attempts.clone(),
            renewals: self.renewals,
            ballots: self.ballots,
            ticks: self.ticks,
            crashes: self.crashes,
            slow_replies: self.slow_replies,
            undoes_last: self.undo_last,
        };
        size.of(scope)
    }

    fn sized_failover(&self, scope: FailoverScope) -> Result<FailoverScope, String> {
        let others = [self.renewals, self.ballots].iter().any(Option::is_some);
        if others || !self.attempts.is_empty() || self.slow_replies || self.undo_last {
            return Err("this scope has only --ticks, --promotions and --crashes".to_owned());
        }
        scope.sized(self.ticks, self.promotions, self.crashes)
    }

    fn find_wrong(&self, name: &str) -> bool {
        let mut found = false;
        for wrong in Wrong::ALL.into_iter().filter(|wrong| wrong.name == name) {
            println!("{name}: {}", wrong.what);
            let report = wrong.search(self.threads);
            for finding in report.broken() {
                println!("broken: {}\n{}", finding.property, finding.told());
                found = true;
            }
            println!("{} states searched", report.states);
        }
        found
    }
}

fn scope_names() -> Vec<&'static str> {
    let failovers = FailoverScope::ALL.iter().map(|scope| scope.name);
    let names = Scope::ALL.iter().map(|scope| scope.name);
    names.chain(failovers).collect()
}

/// Searches the scope `name`, and prints what was found. Returns whether everything holds.
fn shown(name: &'static str, search: impl FnOnce(&ProgressBar) -> Report) -> bool {
    let bar = ProgressBar::new_spinner().with_style(style());
    bar.set_prefix(name);
    let report = search(&bar);
    bar.finish_and_clear();
    print!("{name}: {report}");
    for finding in report.broken() {
        println!("\n{}:\n{}", finding.property, finding.told());
    }
    report.is_good()
}

fn style() -> ProgressStyle {
    let template = "{prefix}: {human_pos} states in {elapsed_precise}, {per_sec}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
