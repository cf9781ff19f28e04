//! How each client's program is run, and how its dependencies are installed: once, into the build
//! folder, by the language's own package tool at pinned versions.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The language of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Toolchain {
    Rust,
    Go,
    Node,
    Python,
    Java,
}

/// A toolchain that is not on this machine, or that could not install what a client needs.
#[derive(Debug, Clone)]
pub struct Missing(String);

impl std::error::Error for Missing {}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Toolchain {
    /// The command that runs this language's program. Installs what it needs, unless that is done.
    /// `rust` is the program of the Rust clients, whose path only the caller knows.
    pub(crate) fn command(self, rust: &Command) -> Result<Command, Missing> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = match self {
            Self::Rust => {
                let mut command = Command::new(rust.get_program());
                command.args(rust.get_args());
                command
            }
            Self::Go => Command::new(self.installed(&sources.join("go"))?.join("peer")),
            Self::Node => {
                let mut command = Command::new("node");
                command.arg(self.installed(&sources.join("node"))?.join("peer.mjs"));
                command
            }
            Self::Python => {
                let folder = self.installed(&sources.join("python"))?;
                let mut command = Command::new(folder.join("venv/bin/python"));
                command.arg(folder.join("peer.py"));
                command
            }
            Self::Java => {
                let folder = self.installed(&sources.join("java"))?;
                let mut command = Command::new("java");
                command
                    .arg("-cp")
                    .arg(format!("{0}/jars/*:{0}/classes", folder.display()));
                command.arg("Peer");
                command
            }
        };
        command.env_remove("RINGFENCE_NODES");
        Ok(command)
    }

    /// The command that runs `source`, a program of its own beside this language's clients.
    pub(crate) fn snippet(self, source: &str) -> Result<Command, Missing> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.name());
        let folder = self.installed(&sources)?;
        let (file, program, arguments): (_, _, &[&str]) = match self {
            Self::Go => (
                "snippet/main.go",
                "go".into(),
                &["run", "-mod=mod", "./snippet"],
            ),
            Self::Node => ("snippet/main.mjs", "node".into(), &["snippet/main.mjs"]),
            Self::Python => (
                "snippet/main.py",
                folder.join("venv/bin/python"),
                &["snippet/main.py"],
            ),
            Self::Rust | Self::Java => {
                return Err(Missing(format!("{}: no snippets", self.name())));
            }
        };
        let broken = |failure: io::Error| Missing(format!("{}: {failure}", folder.display()));
        fs::create_dir_all(folder.join("snippet")).map_err(broken)?;
        fs::write(folder.join(file), source).map_err(broken)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&folder);
        Ok(command)
    }

    /// The folder with the sources, their dependencies and the build results.
    fn installed(self, sources: &Path) -> Result<PathBuf, Missing> {
        let folder = build_folder().join(self.name());
        let broken = |failure: io::Error| Missing(format!("{}: {failure}", folder.display()));
        fs::create_dir_all(&folder).map_err(broken)?;
        // Several test programs may do this at once; the lock of the file ends with the process.
        let lock = File::create(folder.join("lock")).map_err(broken)?;
        lock.lock().map_err(broken)?;

        let (stamp, wanted) = (folder.join("installed"), contents(sources).map_err(broken)?);
        if fs::read(&stamp).is_ok_and(|there| there == wanted) {
            return Ok(folder);
        }
        for entry in fs::read_dir(sources).map_err(broken)? {
            let path = entry.map_err(broken)?.path();
            if path.is_file() {
                fs::copy(&path, folder.join(path.file_name().unwrap_or_default()))
                    .map_err(broken)?;
            }
        }
        for (program, arguments) in self.installation() {
            self.run(program, arguments, &folder)?;
        }
        fs::write(&stamp, wanted).map_err(broken)?;
        Ok(folder)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Go => "go",
            Self::Node => "node",
            Self::Python => "python",
            Self::Java => "java",
        }
    }

    /// The commands to run in the folder, in this order.
    fn installation(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Rust => &[],
            // `-mod=mod`: `go mod tidy` would also need the test dependencies of all dependencies.
            Self::Go => &[("go", &["build", "-mod=mod", "-o", "peer", "."])],
            Self::Node => &[
                ("node", &["--version"]),
                (
                    "npm",
                    &["ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                ),
            ],
            Self::Python => &[
                ("python3", &["-m", "venv", "--clear", "venv"]),
                (
                    "venv/bin/python",
                    &[
                        "-m",
                        "pip",
                        "install",
                        "--disable-pip-version-check",
                        "--require-hashes",
                        "--requirement",
                        "build.txt",
                    ],
                ),
                // Without build isolation, which would fetch a build tool without a hash.
                (
                    "venv/bin/python",
                    &[
                        "-m",
                        "pip",
                        "install",
                        "--disable-pip-version-check",
                        "--no-build-isolation",
                        "--require-hashes",
                        "--requirement",
                        "requirements.txt",
                    ],
                ),
            ],
            Self::Java => &[
                ("java", &["-version"]),
                (
                    "mvn",
                    &[
                        "--batch-mode",
                        "--quiet",
                        "dependency:copy-dependencies",
                        "-DoutputDirectory=jars",
                    ],
                ),
                (
                    "javac",
                    &["-nowarn", "-cp", "jars/*", "-d", "classes", "Peer.java"],
                ),
            ],
        }
    }

    fn run(self, program: &str, arguments: &[&str], folder: &Path) -> Result<(), Missing> {
        let name = self.name();
        // A path is relative to the folder; other programs are found on the search path.
        let path = if program.contains('/') {
            folder.join(program)
        } else {
            program.into()
        };
        let output = Command::new(path)
            .args(arguments)
            .current_dir(folder)
            .output();
        let output = output
            .map_err(|failure| Missing(format!("{name}: {program} is missing ({failure})")))?;
        if output.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = errors.lines().rev().take(5).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        Err(Missing(format!(
            "{name}: `{program} {}` failed: {last}",
            arguments.join(" ")
        )))
    }
}

/// The folder for installed clients, inside cargo's target folder.
fn build_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"))
        .join("peers")
}

/// The contents of all sources: if one of them changes, everything is installed again.
fn contents(sources: &Path) -> io::Result<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(sources)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.sort_unstable();
    let mut all = Vec::new();
    for file in files.iter().filter(|path| path.is_file()) {
        all.extend(fs::read(file)?);
    }
    Ok(all)
}
