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

/// One program that checks the product.
#[derive(Debug, Clone)]
pub struct Suite {
    /// What people call it.
    pub name: &'static str,
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    sign: Sign,
}

/// How a program says that something is wrong.
#[derive(Debug, Clone, Copy)]
enum Sign {
    /// `test NAME ... FAILED`
    Test,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was found wrong.
    Green,
    /// Something was: which check said so.
    Red(String),
}

impl Suite {
    /// A test program.
    pub fn tests(name: &'static str, program: &Path, folder: &Path) -> Self {
        Self {
            name,
            program: program.to_owned(),
            folder: folder.to_owned(),
            arguments: Vec::new(),
            sign: Sign::Test,
        }
    }

    /// The same without the tests that have one of `words` in their names.
    pub fn without(mut self, words: &[&str]) -> Self {
        let skipped = words.iter().flat_map(|word| ["--skip", word]);
        self.arguments.extend(skipped.map(str::to_owned));
        self
    }

    /// The same with those alone.
    pub fn only(mut self, words: &[&str]) -> Self {
        self.arguments.extend(words.iter().map(ToString::to_string));
        self
    }

    /// Whether it could notice that a rule is broken that is kept at `place`: there are no scripts
    /// without a server.
    pub fn may_see(&self, place: &str) -> bool {
        place != "Scripts" || !matches!(self.name, "unit tests" | "long unit tests" | "rules")
    }

    /// Runs it on `mutant`, if any, until it is over or has found something wrong; and no longer than
    /// `limit`, since a broken rule may well make it wait for ever. Temporary files go to `scratch`.
    pub fn run(&self, mutant: Option<&str>, limit: Duration, scratch: &Path) -> Outcome {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.folder)
            .env("TMPDIR", scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Of its own, so that the servers that it started can be ended with it.
            .process_group(0);
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
            Err(error) => Outcome::Red(format!("could not be started: {error}")),
        }
    }

    fn watch(&self, child: &mut Child, limit: Duration) -> Outcome {
        let Some(stdout) = child.stdout.take() else {
            return Outcome::Red("has no output".to_owned());
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
        loop {
            match lines.recv_timeout(end.since(clock.now())) {
                Ok(line) => {
                    if let Some(check) = self.sign.in_line(&line) {
                        return Outcome::Red(check);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Outcome::Red(format!("did not end within {} s", limit.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match child.wait() {
            Ok(status) if status.success() => Outcome::Green,
            Ok(status) => Outcome::Red(format!("ended with {status}")),
            Err(error) => Outcome::Red(format!("could not be waited for: {error}")),
        }
    }
}

impl Sign {
    /// The check that `line` says to have failed.
    fn in_line(self, line: &str) -> Option<String> {
        match self {
            Self::Test => {
                let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
                // A test that is to panic says so behind its name.
                Some(name.split(" - ").next().unwrap_or(name).to_owned())
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

    fn shell(script: &str) -> Suite {
        Suite {
            name: "shell",
            program: "/bin/sh".into(),
            folder: "/".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            sign: Sign::Test,
        }
    }

    fn run(script: &str) -> Outcome {
        let limit = Duration::from_secs(20);
        shell(script).run(Some("M"), limit, Path::new("/tmp"))
    }

    #[test]
    fn a_program_that_finds_nothing_is_green() {
        assert_eq!(run("echo 'test a ... ok'"), Outcome::Green);
    }

    #[test]
    fn the_first_test_that_fails_is_named_and_nobody_waits_for_the_rest() {
        let outcome =
            run("echo 'test a ... ok'; echo \"test $RINGFENCE_MUTANT::b ... FAILED\"; sleep 1000");
        assert_eq!(outcome, Outcome::Red("M::b".to_owned()));
    }

    #[test]
    fn a_program_that_dies_or_does_not_end_is_red() {
        assert!(matches!(run("exit 101"), Outcome::Red(_)));
        let limit = Duration::from_millis(50);
        let hung = shell("sleep 1000").run(None, limit, Path::new("/tmp"));
        assert!(matches!(hung, Outcome::Red(why) if why.starts_with("did not end")));
    }
}
