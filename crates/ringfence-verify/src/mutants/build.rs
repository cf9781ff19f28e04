//! The build that has mutants: made once for all of them.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Suite, compiler};

/// The test programs of the product, quickest first. The first two are unit tests.
pub const SUITES: [&str; 9] = [
    "core",
    "unit",
    "rules",
    "nodes",
    "readers",
    "resource",
    "line",
    "fleet",
    "scenarios",
];

/// The suites that are the unit tests of a crate, each with the name of its program. The first one
/// lists the mutants.
const UNITS: [(&str, &str); 2] = [("core", "ringfence_core"), ("unit", "ringfence")];

/// How many schedules the simulator is given to notice a mutant.
const SCHEDULES: &str = "300";

/// The programs of the build that has mutants.
#[derive(Debug, Clone)]
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
    /// Makes the unit tests and `suites`. What is shown on the way is cargo's own.
    pub fn make<'a>(suites: impl IntoIterator<Item = &'a str>) -> Result<Self, Box<dyn Error>> {
        let mut cargo = cargo("test")?;
        // With the features of these, what the normal build of all members has made can be used.
        let members = [
            "ringfence",
            "ringfence-core",
            "ringfence-cli",
            "ringfence-bench",
        ];
        cargo.args(["--no-run", "--all-features", "--lib"]);
        cargo.args(members.iter().flat_map(|name| ["--package", name]));
        let tests = suites
            .into_iter()
            .filter(|suite| UNITS.iter().all(|(unit, _)| unit != suite));
        cargo.args(tests.flat_map(|test| ["--test", test]));
        let programs = programs(cargo)?;
        Ok(Self { programs })
    }

    /// Makes the simulator. In a folder of its own: it would take the place of the program that runs now.
    pub fn simulator(&self) -> Result<Suite, Box<dyn Error>> {
        let mut cargo = cargo("build")?;
        cargo
            .args(["--package", "ringfence-verify", "--bin", "ringfence-verify"])
            .args(["--target-dir", "target/mutants"]);
        let built = programs(cargo)?;
        let (program, folder) = built
            .get("ringfence-verify")
            .ok_or("no simulator was built")?;
        let arguments = ["simulate", "--schedules", SCHEDULES];
        Ok(Suite::simulator(program, folder, &arguments))
    }

    /// All mutants of the build.
    pub fn mutants(&self) -> Result<Vec<Listed>, Box<dyn Error>> {
        let (program, _) = self.program(UNITS[0].0)?;
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

    /// Every suite that was built, in the order in which they are tried.
    pub fn suites(&self) -> Vec<Suite> {
        let built = SUITES.into_iter().filter_map(|name| {
            let (program, folder) = self.program(name).ok()?;
            Some(Suite::tests(name, program, folder))
        });
        built.collect()
    }

    fn program(&self, suite: &str) -> Result<(&Path, &Path), Box<dyn Error>> {
        let unit = UNITS.iter().find(|(unit, _)| *unit == suite);
        let name = unit.map_or(suite, |(_, program)| program);
        let found = self.programs.get(name);
        let (program, folder) = found.ok_or_else(|| format!("no program `{name}` was built"))?;
        Ok((program, folder))
    }
}

/// Cargo at the root of the workspace, to make something with mutants.
fn cargo(verb: &str) -> Result<Command, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    compiler::with_mutants(&mut cargo)?
        .current_dir(root.canonicalize()?)
        .args([verb, "--message-format=json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    Ok(cargo)
}

/// The programs that cargo makes.
fn programs(mut cargo: Command) -> Result<BTreeMap<String, (PathBuf, PathBuf)>, Box<dyn Error>> {
    let made = cargo.output()?;
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
