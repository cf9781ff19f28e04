//! Builds the copy of the product that contains all mutants, once for all of them.
//!
//! The copy is a workspace of its own under the target folder ([`copy`]). Its build uses the same
//! build folder as the normal build, so the dependencies are not compiled again. Two things keep
//! the members of both workspaces apart: cargo treats members that are compiled through a wrapper
//! as different from others (here the wrapper is `env`, which changes nothing), and the finished
//! programs go to a separate target folder. So a normal build never contains a mutant, and never
//! has to be repeated because of one.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Suite, copy};

/// Calls the compiler exactly as cargo would.
const WRAPPER: &str = "/usr/bin/env";

/// The suites, the fastest first, each with its program. The first two are unit tests; the others are
/// parts of one program, each the module of its name.
const SUITES: [(&str, &str); 8] = [
    ("core", "ringfence_core"),
    ("unit", "ringfence"),
    ("rules", ALL),
    ("nodes", ALL),
    ("resource", ALL),
    ("queue", ALL),
    ("fleet", ALL),
    ("scenarios", ALL),
];

/// The program with the library's tests over its nodes.
const ALL: &str = "all";

/// How many schedules the simulator runs to notice a mutant.
const SCHEDULES: &str = "300";

/// The programs that were built with mutants.
#[derive(Debug, Clone)]
pub struct Build {
    /// Each program and the folder to run it in, by name.
    programs: BTreeMap<String, (PathBuf, PathBuf)>,
    folders: Folders,
}

/// The folders of both builds.
#[derive(Debug, Clone)]
struct Folders {
    /// The copy of the workspace.
    copy: PathBuf,
    /// The target folder of the normal build.
    target: PathBuf,
    /// The folder for intermediate files of the normal build. Cargo before 1.91 does not report it;
    /// then the dependencies are built again.
    build: Option<PathBuf>,
}

impl Build {
    /// Writes the copy, and builds its tests. Cargo prints its own progress.
    pub fn make() -> Result<Self, Box<dyn Error>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()?;
        let folders = Folders::of(&root)?;
        copy::write(&root, &folders.copy)?;
        let mut cargo = folders.cargo("test");
        // With the features of these members, the dependencies of the normal build can be used.
        let members = ["ringfence", "ringfence-core", "ringfence-cli"];
        cargo.args(["--no-run", "--all-features", "--lib", "--test", ALL]);
        cargo.args(members.iter().flat_map(|name| ["--package", name]));
        let programs = programs(cargo)?;
        Ok(Self { programs, folders })
    }

    /// Builds the simulator.
    pub fn simulator(&self) -> Result<Suite, Box<dyn Error>> {
        let mut cargo = self.folders.cargo("build");
        // With the features of the whole workspace, as for the tests.
        cargo.args(["--workspace", "--all-features", "--bin", "ringfence-verify"]);
        let built = programs(cargo)?;
        let (program, folder) = built
            .get("ringfence-verify")
            .ok_or("no simulator was built")?;
        let arguments = ["simulate", "--schedules", SCHEDULES];
        Ok(Suite::simulator(program, folder, &arguments))
    }

    /// Every suite, in the order in which they are tried.
    pub fn suites(&self) -> Result<Vec<Suite>, Box<dyn Error>> {
        let suites = SUITES.into_iter().map(|(name, program)| {
            let found = self.programs.get(program);
            let (file, folder) =
                found.ok_or_else(|| format!("no program `{program}` was built"))?;
            let module = if program == ALL { name } else { "" };
            Suite::tests(name, file, folder, &self.folders.target, module)
        });
        suites.collect()
    }
}

impl Folders {
    /// The folders of the workspace at `root`.
    fn of(root: &Path) -> Result<Self, Box<dyn Error>> {
        let metadata = Command::new(program_of_cargo())
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()?;
        if !metadata.status.success() {
            return Err("cargo metadata failed, so the target folder is unknown".into());
        }
        let metadata: Value = serde_json::from_slice(&metadata.stdout)?;
        let folder = |name: &str| metadata.get(name)?.as_str().map(PathBuf::from);
        let target = folder("target_directory").ok_or("cargo metadata reports no target folder")?;
        Ok(Self {
            copy: target.join("mutants/source"),
            build: folder("build_directory"),
            target,
        })
    }

    /// A cargo command in the copy.
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

/// Runs cargo and returns the programs that it built.
fn programs(mut cargo: Command) -> Result<BTreeMap<String, (PathBuf, PathBuf)>, Box<dyn Error>> {
    let made = cargo.output()?;
    if !made.status.success() {
        return Err("the build with mutants failed".into());
    }
    let messages = String::from_utf8(made.stdout)?;
    let messages = messages.lines().map(serde_json::from_str::<Value>);
    Ok(messages.filter_map(|m| program(&m.ok()?)).collect())
}

/// The program in one of cargo's messages: its name, its path, and the folder to run it in.
fn program(message: &Value) -> Option<(String, (PathBuf, PathBuf))> {
    let program = message.get("executable")?.as_str()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    let folder = Path::new(message.get("manifest_path")?.as_str()?).parent()?;
    Some((name.to_owned(), (program.into(), folder.to_owned())))
}
