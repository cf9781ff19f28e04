//! One program that checks the product: what it says of a mutant, and how soon.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ringfence::clock::Clock;
use rustix::process::{Pid, Signal, kill_process_group};

use super::Place;

/// One program that checks the product.
#[derive(Debug, Clone)]
pub struct Suite {
    /// What people call it.
    pub name: &'static str,
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    /// The target folder of the normal build, where some tests find what they have installed.
    target: Option<PathBuf>,
    sign: Sign,
}

/// How a program says what it found.
#[derive(Debug, Clone, Copy)]
enum Sign {
    /// `test NAME ... FAILED`
    Test,
    /// `… VIOLATION of seed N: INVARIANT at …`
    Violation,
}

/// What a line of the output says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Passed(String),
    Failed(String),
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was found wrong: what was looked at, each with the time since the one before it.
    Green(Vec<(String, Duration)>),
    /// Something was: which check said so.
    Red(String),
    /// It did not end within the time it had, or died without a word.
    Broken(String),
}

impl Suite {
    /// A test program.
    pub fn tests(name: &'static str, program: &Path, folder: &Path, target: &Path) -> Self {
        Self {
            name,
            program: program.to_owned(),
            folder: folder.to_owned(),
            arguments: Vec::new(),
            target: Some(target.to_owned()),
            sign: Sign::Test,
        }
    }

    /// The simulator.
    pub fn simulator(program: &Path, folder: &Path, arguments: &[&str]) -> Self {
        Self {
            name: "simulator",
            program: program.to_owned(),
            folder: folder.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            target: None,
            sign: Sign::Violation,
        }
    }

    /// The same without the tests of these names.
    pub fn without(mut self, tests: &[String]) -> Self {
        let skipped = tests.iter().flat_map(|test| ["--skip", test]);
        self.arguments.extend(skipped.map(str::to_owned));
        self
    }

    /// The same with those alone, one after the other.
    pub fn only<'a>(mut self, tests: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments
            .extend(["--test-threads=1", "--exact"].map(str::to_owned));
        self.arguments
            .extend(tests.into_iter().map(ToString::to_string));
        self
    }

    /// Whether it could notice that a rule is broken that is run at `place`: there are no scripts
    /// without a server.
    pub fn may_see(&self, place: Place) -> bool {
        match place {
            Place::Data => self.name == "resource",
            Place::Node => !matches!(
                self.name,
                "core" | "unit" | "rules" | "resource" | "simulator"
            ),
            Place::Library => true,
        }
    }

    /// Whether it depends on nothing but itself: the same every time, on however busy a machine.
    pub fn repeats(&self) -> bool {
        matches!(self.name, "core" | "unit" | "simulator")
    }

    /// Runs it on `mutant`, if any, until it is over or has found something wrong; and no longer than
    /// `limit`, since a broken rule may well make it wait for ever. Temporary files go to `scratch`.
    pub fn run(&self, mutant: Option<&str>, limit: Duration, scratch: &Path) -> Outcome {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .env("TMPDIR", scratch)
            // That a sequence fails is enough, and it is the same one each time: nobody reads the shortest.
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .env("PROPTEST_RNG_SEED", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Of its own, so that the servers that it started can be ended with it.
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
        let (told, lines) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines();
            lines
                .map_while(Result::ok)
                .all(|line| told.send(line).is_ok())
        });
        let clock = Clock::System;
        let end = clock.now() + limit;
        let (mut passed, mut last) = (Vec::new(), clock.now());
        loop {
            match lines.recv_timeout(end.since(clock.now())) {
                Ok(line) => match self.sign.in_line(&line) {
                    Some(Said::Failed(check)) => return Outcome::Red(check),
                    Some(Said::Passed(check)) => {
                        let now = clock.now();
                        passed.push((check, now.since(last)));
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

impl Sign {
    fn in_line(self, line: &str) -> Option<Said> {
        match self {
            Self::Test => {
                let line = line.strip_prefix("test ")?;
                if let Some(name) = line.strip_suffix(" has been running for over 60 seconds") {
                    return Some(Said::Failed(name.to_owned()));
                }
                let (name, how) = line.rsplit_once(" ... ")?;
                // A test that is to panic says so behind its name.
                let name = name.split(" - ").next().unwrap_or(name).to_owned();
                match how {
                    "ok" => Some(Said::Passed(name)),
                    "FAILED" => Some(Said::Failed(name)),
                    _ => None,
                }
            }
            Self::Violation => {
                let (_, violation) = line.split_once("VIOLATION of seed ")?;
                let (_, violation) = violation.split_once(": ")?;
                let invariant = violation.split(" at ").next()?;
                Some(Said::Failed(invariant.to_owned()))
            }
        }
    }
}

/// Ends whatever is left of it, with all that it started.
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
            target: None,
            sign,
        }
    }

    fn run(script: &str) -> Outcome {
        let limit = Duration::from_secs(20);
        shell(script, Sign::Test).run(Some("M"), limit, Path::new("/tmp"))
    }

    #[test]
    fn a_program_that_finds_nothing_is_green_and_says_what_it_looked_at() {
        let Outcome::Green(passed) = run("echo 'test a ... ok'; echo 'test b ... ok'") else {
            panic!("it found nothing");
        };
        let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn the_first_test_that_fails_is_named_and_nobody_waits_for_the_rest() {
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
    fn a_program_that_dies_or_does_not_end_is_broken() {
        assert!(matches!(run("exit 101"), Outcome::Broken(_)));
        let limit = Duration::from_millis(50);
        let hung = shell("sleep 1000", Sign::Test).run(None, limit, Path::new("/tmp"));
        assert!(matches!(hung, Outcome::Broken(why) if why.starts_with("did not end")));
    }

    #[test]
    fn the_simulator_names_the_invariant() {
        let said =
            "echo '7 schedules: 1 happenings, VIOLATION of seed 7: exclusion at 0.1 s: a: b'";
        let limit = Duration::from_secs(20);
        let outcome = shell(said, Sign::Violation).run(None, limit, Path::new("/tmp"));
        assert_eq!(outcome, Outcome::Red("exclusion".to_owned()));
    }
}
