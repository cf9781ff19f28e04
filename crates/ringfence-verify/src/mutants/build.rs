//! The build that has mutants: made once for all of them, of a copy of the product.
//!
//! The copy lies under the target folder ([`copy`]) and is a workspace of its own. Its build shares
//! the folder for what cargo builds on the way, so that the dependencies of the normal build are
//! used again. Two things keep the members of both workspaces apart. Cargo makes a difference
//! between members that are compiled through a wrapper and members that are not, and here the
//! wrapper is `env`, which adds nothing. And finished programs go to a target folder of their own.
//! So no normal build ever meets a mutant, and none is built again because of one.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Suite, copy};

/// Calls the compiler as cargo would.
const WRAPPER: &str = "/usr/bin/env";

/// The test programs of the product, quickest first. The first two are unit tests.
pub const SUITES: [&str; 9] = [
    "core",
    "unit",
    "rules",
    "nodes",
    "readers",
    "resource",
    "queue",
    "fleet",
    "scenarios",
];

/// The suites that are the unit tests of a crate, each with the name of its program.
const UNITS: [(&str, &str); 2] = [("core", "ringfence_core"), ("unit", "ringfence")];

/// How many schedules the simulator is given to notice a mutant.
const SCHEDULES: &str = "300";

/// The programs of the build that has mutants.
#[derive(Debug, Clone)]
pub struct Build {
    /// Each with the folder that it is to be run in, by name.
    programs: BTreeMap<String, (PathBuf, PathBuf)>,
    folders: Folders,
}

/// Where things are.
#[derive(Debug, Clone)]
struct Folders {
    /// The copy of the workspace.
    copy: PathBuf,
    /// Where the normal build leaves what it makes.
    target: PathBuf,
    /// Where it leaves what it makes on the way. Older versions of cargo (before 1.91) do not tell;
    /// then dependencies are built again.
    build: Option<PathBuf>,
}

impl Build {
    /// Writes the copy and makes its unit tests and `suites`. What is shown on the way is cargo's
    /// own.
    pub fn make<'a>(suites: impl IntoIterator<Item = &'a str>) -> Result<Self, Box<dyn Error>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()?;
        let folders = Folders::of(&root)?;
        copy::write(&root, &folders.copy)?;
        let mut cargo = folders.cargo("test");
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
        Ok(Self { programs, folders })
    }

    /// Makes the simulator.
    pub fn simulator(&self) -> Result<Suite, Box<dyn Error>> {
        let mut cargo = self.folders.cargo("build");
        // With the features of the whole workspace, as the tests are.
        cargo.args(["--workspace", "--all-features", "--bin", "ringfence-verify"]);
        let built = programs(cargo)?;
        let (program, folder) = built
            .get("ringfence-verify")
            .ok_or("no simulator was built")?;
        let arguments = ["simulate", "--schedules", SCHEDULES];
        Ok(Suite::simulator(program, folder, &arguments))
    }

    /// Every suite that was built, in the order in which they are tried.
    pub fn suites(&self) -> Vec<Suite> {
        let built = SUITES.into_iter().filter_map(|name| {
            let (program, folder) = self.program(name).ok()?;
            Some(Suite::tests(name, program, folder, &self.folders.target))
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

impl Folders {
    /// Those of the workspace at `root`.
    fn of(root: &Path) -> Result<Self, Box<dyn Error>> {
        let told = Command::new(program_of_cargo())
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()?;
        if !told.status.success() {
            return Err("cargo does not tell where it builds".into());
        }
        let told: Value = serde_json::from_slice(&told.stdout)?;
        let folder = |name: &str| told.get(name)?.as_str().map(PathBuf::from);
        let target = folder("target_directory").ok_or("cargo tells no target folder")?;
        Ok(Self {
            copy: target.join("mutants/source"),
            build: folder("build_directory"),
            target,
        })
    }

    /// Cargo, to make something of the copy.
    fn cargo(&self, verb: &str) -> Command {
        let mut cargo = Command::new(program_of_cargo());
        cargo
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", self.target.join("mutants/built"))
            .env("RUSTC_WORKSPACE_WRAPPER", WRAPPER)
            .args([verb, "--message-format=json-render-diagnostics"])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        if let Some(build) = &self.build {
            cargo.env("CARGO_BUILD_BUILD_DIR", build);
        }
        cargo
    }
}

fn program_of_cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or("cargo".into())
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
