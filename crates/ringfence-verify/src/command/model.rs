//! `model`: searches the protocol's core to the end, or something that is not the protocol until its mistake
//! is found.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;

use ringfence_verify::model::{Scope, Wrong, search};

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
    /// How many threads search. With more than one, the way to a mistake need not be the shortest.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

impl Args {
    /// Whether all that should hold does, or what should be found wrong is.
    pub(crate) fn run(self) -> ExitCode {
        let good = match &self.variant {
            Some(name) => self.find_wrong(name),
            None => self.search_all(),
        };
        match good {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    fn search_all(&self) -> bool {
        let wanted = |scope: &Scope| self.scope.as_deref().is_none_or(|name| name == scope.name);
        let mut good = true;
        for scope in Scope::ALL.into_iter().filter(wanted) {
            print!("{}: ", scope.name);
            let report = search(scope, self.threads);
            print!("{report}");
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
