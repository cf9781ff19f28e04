//! `model`: searches the protocol's core to the end, or something that is not the protocol until
//! its mistake is found.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};

use ringfence_verify::model::{Scope, Size, Wrong, search_watched};

/// What to search.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Search only this scope.
    #[arg(long, value_parser = PossibleValuesParser::new(Scope::ALL.map(|scope| scope.name)))]
    scope: Option<String>,
    /// Search what is known to be wrong, and print the shortest way to its mistake.
    #[arg(
        long,
        value_parser = PossibleValuesParser::new(Wrong::ALL.map(|wrong| wrong.name)),
        conflicts_with = "scope"
    )]
    variant: Option<String>,
    /// Of the scope: how many attempts each client makes, with commas; as many clients as there are
    /// numbers.
    #[arg(long, value_delimiter = ',', requires = "scope")]
    attempts: Vec<u8>,
    /// Of the scope: how many times the first client renews.
    #[arg(long, requires = "scope")]
    renewals: Option<u8>,
    /// Of the scope: how many ticks pass, where time is the same for all.
    #[arg(long, requires = "scope")]
    ticks: Option<u8>,
    /// Of the scope: how many ballots there are, where one clock runs by itself.
    #[arg(long, requires = "scope")]
    ballots: Option<u8>,
    /// Of the scope: how many nodes may forget everything.
    #[arg(long, requires = "scope")]
    crashes: Option<u8>,
    /// Of the scope: replies may be delayed.
    #[arg(long, requires = "scope")]
    slow_replies: bool,
    /// Of the scope: clients undo their last attempts.
    #[arg(long, requires = "scope")]
    undo_last: bool,
    /// How many threads search. With more than one, the way to a mistake need not be the shortest.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

impl Args {
    /// Whether all that should hold does, or what should be found wrong is.
    pub(crate) fn run(self) -> ExitCode {
        let good = match &self.variant {
            Some(name) => Ok(self.find_wrong(name)),
            None => self.scopes().map(|scopes| self.search_all(&scopes)),
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

    fn scopes(&self) -> Result<Vec<Scope>, String> {
        let wanted = |scope: &Scope| self.scope.as_deref().is_none_or(|name| name == scope.name);
        let size = Size {
            attempts: self.attempts.clone(),
            renewals: self.renewals,
            ballots: self.ballots,
            ticks: self.ticks,
            crashes: self.crashes,
            slow_replies: self.slow_replies,
            undoes_last: self.undo_last,
        };
        let scopes = Scope::ALL.into_iter().filter(wanted);
        scopes.map(|scope| size.of(scope)).collect()
    }

    fn search_all(&self, scopes: &[Scope]) -> bool {
        let mut good = true;
        for scope in scopes {
            let bar = ProgressBar::new_spinner().with_style(style());
            bar.set_prefix(scope.name);
            let report = search_watched(*scope, self.threads, |states| {
                bar.set_position(states as u64);
            });
            bar.finish_and_clear();
            print!("{}: {report}", scope.name);
            for finding in report.broken() {
                println!("\n{}:\n{}", finding.property, finding.told());
            }
            good &= report.is_good();
        }
        good
    }

    fn find_wrong(&self, name: &str) -> bool {
        let mut found = false;
        for wrong in Wrong::ALL.into_iter().filter(|wrong| wrong.name == name) {
            println!("{name}: {}", wrong.what);
            let report = wrong.search(self.threads);
            for finding in report.broken() {
                println!("not true: {}\n{}", finding.property, finding.told());
                found = true;
            }
            println!("{} states until then", report.states);
        }
        found
    }
}

fn style() -> ProgressStyle {
    let template = "{prefix}: {human_pos} states in {elapsed_precise}, {per_sec}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
