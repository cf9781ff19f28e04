//! One program that checks the product: runs it on a mutant and reads the result from its output.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;
use rustix::process::{Pid, Signal, kill_process_group};

use super::RunsOn;

/// One program that checks the product.
#[derive(Debug, Clone)]
pub struct Suite {
    /// The name, for people.
    pub name: &'static str,
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    /// The tests to run, without the module that they all are in; all, if there is none.
    tests: Vec<String>,
    /// The module of the tests with `::`, or nothing.
    module: String,
    /// The target folder of the normal build, in which some tests find installed programs.
    target: Option<PathBuf>,
    sign: Sign,
}

/// How a program reports what it found.
#[derive(Debug, Clone, Copy)]
enum Sign {
    /// `test NAME ... FAILED`
    Test,
    /// `… VIOLATION of seed N: INVARIANT at …`
    Violation,
}

/// The result in one line of the output.
#[derive(Debug, PartialEq, Eq)]
enum LineResult {
    Passed(String),
    Failed(String),
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing failed. Lists what passed, each with the time since the one before it.
    Green(Vec<(String, Duration)>),
    /// A check failed: its name.
    Red(String),
    /// It did not end in time, or ended without a result.
    Broken(String),
}

impl Suite {
    /// The tests in `module` of a test program, or all of them.
    pub fn tests(
        name: &'static str,
        program: &Path,
        folder: &Path,
        target: &Path,
        module: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let mut suite = Self {
            name,
            program: program.to_owned(),
            folder: folder.to_owned(),
            arguments: Vec::new(),
            tests: Vec::new(),
            module: String::new(),
            target: Some(target.to_owned()),
            sign: Sign::Test,
        };
        if !module.is_empty() {
            suite.module = format!("{module}::");
            let list = Command::new(program).arg("--list").output()?;
            let list = String::from_utf8(list.stdout)?;
            // `module::name: test`
            let tests = list.lines().filter_map(|line| {
                let test = line.strip_prefix(&suite.module)?;
                test.strip_suffix(": test")
            });
            suite.tests = tests.map(str::to_owned).collect();
            if suite.tests.is_empty() {
                return Err(format!("{} has no tests in {module}", program.display()).into());
            }
        }
        Ok(suite)
    }

    /// The simulator.
    pub fn simulator(program: &Path, folder: &Path, arguments: &[&str]) -> Self {
        Self {
            name: "simulator",
            program: program.to_owned(),
            folder: folder.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            tests: Vec::new(),
            module: String::new(),
            target: None,
            sign: Sign::Violation,
        }
    }

    /// The same suite without these tests.
    pub fn without(mut self, tests: &[String]) -> Self {
        self.tests.retain(|test| !tests.contains(test));
        let skipped = tests
            .iter()
            .flat_map(|test| ["--skip".to_owned(), format!("{}{test}", self.module)]);
        self.arguments.extend(skipped);
        self
    }

    /// The same suite with only these tests, one after the other.
    pub fn only<'a>(mut self, tests: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.push("--test-threads=1".to_owned());
        self.tests = tests.into_iter().map(str::to_owned).collect();
        self
    }

    /// Whether it could notice a broken rule that runs there. Scripts need a server.
    pub fn may_see(&self, runs_on: RunsOn) -> bool {
        match runs_on {
            RunsOn::Data => self.name == "resource",
            RunsOn::Node => !matches!(
                self.name,
                "core" | "unit" | "rules" | "resource" | "simulator"
            ),
            RunsOn::Library => true,
        }
    }

    /// Whether the result is the same every time, also on a busy machine.
    pub fn repeats(&self) -> bool {
        matches!(self.name, "core" | "unit" | "simulator")
    }

    /// Runs it on `mutant`, if any, until it ends or reports a failure, or until `limit`, because a
    /// broken rule may make it wait forever. Temporary files go to `scratch`.
    pub fn run(&self, mutant: Option<&str>, limit: Duration, scratch: &Path) -> Outcome {
        let mut command = Command::new(&self.program);
        if !self.tests.is_empty() {
            command.arg("--exact");
        }
        command
            .args(&self.arguments)
            .args(self.tests.iter().map(|test| self.module.clone() + test))
            .current_dir(&self.folder)
            .env("TMPDIR", scratch)
            // A failing sequence is enough, and the seed is fixed: a shorter sequence is not
            // needed.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .env("PROPTEST_RNG_SEED", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Its own process group, so that the servers that it started can be killed with it.
            .process_group(0);
        if let Some(target) = &self.target {
            command.env("CARGO_TARGET_DIR", target);
        }
        match mutant {
            Some(mutant) => command.env("RINGFENCE_MUTANT", mutant),
            None => command.env_remove("RINGFENCE_MUTANT"),
        };
        match command.spawn() {
            Ok(mut child) => {
                let outcome = self.watch(&mut child, limit);
                end(&mut child);
                outcome
            }
            Err(error) => Outcome::Broken(format!("could not be started: {error}")),
        }
    }

    fn watch(&self, child: &mut Child, limit: Duration) -> Outcome {
        let Some(stdout) = child.stdout.take() else {
            return Outcome::Broken("has no output".to_owned());
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines();
            lines
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        let clock = Clock::System;
        let end = clock.now() + limit;
        let (mut passed, mut last) = (Vec::new(), clock.now());
        loop {
            match lines.recv_timeout(end.since(clock.now())) {
                Ok(line) => match self.sign.in_line(&line) {
                    Some(LineResult::Failed(check)) => return Outcome::Red(self.short(check)),
                    Some(LineResult::Passed(check)) => {
                        let now = clock.now();
                        passed.push((self.short(check), now.since(last)));
                        last = now;
                    }
                    None => {}
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Outcome::Broken(format!("did not end within {} s", limit.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match child.wait() {
            Ok(status) if status.success() => Outcome::Green(passed),
            Ok(status) => Outcome::Broken(format!("ended with {status}")),
            Err(error) => Outcome::Broken(format!("could not be waited for: {error}")),
        }
    }
}

impl Suite {
    /// The name of a test without the module of the suite.
    fn short(&self, test: String) -> String {
        let short = test.strip_prefix(&self.module).map(str::to_owned);
        short.unwrap_or(test)
    }
}

impl Sign {
    fn in_line(self, line: &str) -> Option<LineResult> {
        match self {
            Self::Test => {
                let line = line.strip_prefix("test ")?;
                if let Some(name) = line.strip_suffix(" has been running for over 60 seconds") {
                    return Some(LineResult::Failed(name.to_owned()));
                }
                let (name, how) = line.rsplit_once(" ... ")?;
                // For a test that must panic, a remark follows its name.
                let name = name.split(" - ").next().unwrap_or(name).to_owned();
                match how {
                    "ok" => Some(LineResult::Passed(name)),
                    "FAILED" => Some(LineResult::Failed(name)),
                    _ => None,
                }
            }
            Self::Violation => {
                let (_, violation) = line.split_once("VIOLATION of seed ")?;
                let (_, violation) = violation.split_once(": ")?;
                let invariant = violation.split(" at ").next()?;
                Some(LineResult::Failed(invariant.to_owned()))
            }
        }
    }
}

/// Kills the program and everything that it started.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, sign: Sign) -> Suite {
        Suite {
            name: "shell",
            program: "/bin/sh".into(),
            folder: "/".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            tests: Vec::new(),
            module: "m::".to_owned(),
            target: None,
            sign,
        }
    }

    fn run(script: &str) -> Outcome {
        let limit = Duration::from_secs(20);
        shell(script, Sign::Test).run(Some("M"), limit, Path::new("/tmp"))
    }

    #[test]
    fn a_program_without_a_failure_is_green_and_lists_its_tests() {
        let Outcome::Green(passed) = run("echo 'test m::a ... ok'; echo 'test b ... ok'") else {
            panic!("no test failed");
        };
        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn the_first_test_that_fails_is_named_at_once() {
        let outcome =
            run("echo 'test a ... ok'; echo \"test $RINGFENCE_MUTANT::b ... FAILED\"; sleep 1000");
        assert_eq!(outcome, Outcome::Red("M::b".to_owned()));
    }

    #[test]
    fn a_test_that_does_not_end_is_named() {
        let outcome = run("echo 'test a has been running for over 60 seconds'; sleep 1000");
        assert_eq!(outcome, Outcome::Red("a".to_owned()));
    }

    #[test]
    fn a_program_that_crashes_or_does_not_end_is_broken() {
        assert!(matches!(run("exit 101"), Outcome::Broken(_)));
        let limit = Duration::from_millis(50);
        let hung = shell("sleep 1000", Sign::Test).run(None, limit, Path::new("/tmp"));
        assert!(matches!(hung, Outcome::Broken(why) if why.starts_with("did not end")));
    }

    #[test]
    fn the_simulator_names_the_invariant() {
        let script =
            "echo '7 schedules: 1 happenings, VIOLATION of seed 7: exclusion at 0.1 s: a: b'";
        let limit = Duration::from_secs(20);
        let outcome = shell(script, Sign::Violation).run(None, limit, Path::new("/tmp"));
        assert_eq!(outcome, Outcome::Red("exclusion".to_owned()));
    }
}
