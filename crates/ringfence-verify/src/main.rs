//! The command line of the proof: one subcommand for each part.

mod command;

use std::process::ExitCode;

use clap::Parser;

/// Proves that ringfence keeps its promises, or shows how it does not.
#[derive(Debug, Parser)]
#[command(name = "ringfence-verify", version)]
struct Cli {
    #[command(subcommand)]
    part: command::Part,
}

fn main() -> ExitCode {
    Cli::parse().part.run()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::Parser;

    use super::Cli;

    #[test]
    fn every_call_in_the_documents_is_understood() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut calls = 0;
        for page in fs::read_dir(docs).unwrap() {
            let text = fs::read_to_string(page.unwrap().path()).unwrap_or_default();
            for line in text.lines() {
                let Some((_, call)) = line.split_once("-p ringfence-verify -- ") else {
                    continue;
                };
                let call = call.split(['#', '`']).next().unwrap_or_default();
                let words = ["ringfence-verify"]
                    .into_iter()
                    .chain(call.split_whitespace());
                let understood = Cli::try_parse_from(words);
                assert!(understood.is_ok(), "{line}: {understood:?}");
                calls += 1;
            }
        }
        assert!(calls >= 12, "{calls}");
    }
}
