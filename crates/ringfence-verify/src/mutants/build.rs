//! The build that has mutants: made once for all of them, in a folder of its own.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Suite;

/// The flag that only this build has.
const FLAG: &str = "--cfg ringfence_mutants";

/// The test programs of the product, quickest first, and whether a short hunt goes without.
const TESTS: [(&str, bool); 6] = [
    ("rules", false),
    ("nodes", false),
    ("readers", false),
    ("line", true),
    ("fleet", true),
    ("scenarios", true),
];

/// Unit tests that search, or try many random sequences. The others together take a second, and catch
/// most.
const LONG: [&str; 12] = [
    "a_refused_acquire_leaves_no_trace",
    "the_invariants_hold_over_any_sequence",
    "once_seen_open_it_is_open_for_everyone",
    "every_combination_of_votes_comes_to_the_verdict_of_the_rules",
    "grants_follow_the_tickets",
    "no_two_of_any_four_clients_win_the_same_slot",
    "protocol::tests::patience",
    "node::redis::outside",
    "protocol::tests::clients",
    "hostile_clocks_and_floors_cost_nothing_but_votes",
    "the_invariants_hold_with_readers",
    "overlapping_sets_never_block_each_other_for_good",
];

/// The programs of the build that has mutants.
#[derive(Debug)]
pub struct Build {
    /// Each with the folder that it is to be run in, by name.
    programs: BTreeMap<String, (PathBuf, PathBuf)>,
}

/// A mutant, as the build lists it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where the rule is kept that it breaks.
    pub place: String,
    /// The rule.
    pub rule: String,
}

impl Build {
    /// Makes it. What is shown on the way is cargo's own.
    pub fn make(all: bool) -> Result<Self, Box<dyn Error>> {
        let tests = TESTS.iter().filter(|(_, slow)| all || !slow);
        let tests = tests.flat_map(|(test, _)| ["--test", test]);
        let programs = cargo(tests)?;
        Ok(Self { programs })
    }

    /// All mutants of the build.
    pub fn mutants(&self) -> Result<Vec<Listed>, Box<dyn Error>> {
        let (program, _) = self.program("ringfence")?;
        let said = Command::new(program)
            .args(["mutants_are_listed_once", "--nocapture"])
            .output()?;
        let lines = String::from_utf8(said.stdout)?;
        let lines = lines.lines().filter_map(|line| line.split_once("mutant\t"));
        let listed = lines.map(|(_, line)| {
            let mut fields = line.split('\t').map(str::to_owned);
            Some(Listed {
                name: fields.next()?,
                place: fields.next()?,
                rule: fields.next()?,
            })
        });
        let listed: Option<Vec<Listed>> = listed.collect();
        match listed {
            Some(listed) if !listed.is_empty() => Ok(listed),
            _ => Err("the build with mutants has none".into()),
        }
    }

    /// Every check, in the order in which they are tried.
    pub fn suites(&self) -> Result<Vec<Suite>, Box<dyn Error>> {
        let (lib, folder) = self.program("ringfence")?;
        let unit = |name| Suite::tests(name, lib, folder);
        let mut suites = vec![unit("unit tests").without(&LONG)];
        for (test, _) in TESTS {
            if let Ok((program, folder)) = self.program(test) {
                suites.push(Suite::tests(test, program, folder));
            }
            if test == "rules" {
                suites.push(unit("long unit tests").only(&LONG));
            }
        }
        Ok(suites)
    }

    fn program(&self, name: &str) -> Result<(&Path, &Path), Box<dyn Error>> {
        let found = self.programs.get(name);
        let (program, folder) = found.ok_or_else(|| format!("no program `{name}` was built"))?;
        Ok((program, folder))
    }
}

/// Has cargo build, and hears where its programs are.
fn cargo<'a>(
    tests: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeMap<String, (PathBuf, PathBuf)>, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let made = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .current_dir(&root)
        .env("RUSTFLAGS", FLAG)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("CARGO_TARGET_DIR", root.join("target/mutants"))
        .args([
            "test",
            "--no-run",
            "--package",
            "ringfence",
            "--all-features",
            "--lib",
        ])
        .args(tests)
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !made.status.success() {
        return Err("the build with mutants failed".into());
    }
    let messages = String::from_utf8(made.stdout)?;
    let messages = messages.lines().map(serde_json::from_str::<Value>);
    Ok(messages.filter_map(|m| program(&m.ok()?)).collect())
}

/// The program that one of cargo's messages tells of: its name, where it is, and where it is run.
fn program(message: &Value) -> Option<(String, (PathBuf, PathBuf))> {
    let program = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    Some((name.to_owned(), (program.into(), folder.to_owned())))
}
