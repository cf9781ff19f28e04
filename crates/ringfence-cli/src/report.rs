//! What people and programs read: results on stdout, troubles on stderr, as text or as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::exit::Exit;

/// How to write.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    /// For programs: one JSON object per line.
    pub(crate) json: bool,
    /// Warnings are left out.
    pub(crate) quiet: bool,
}

/// Why an invocation failed, and with what exit.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// Each node and what it said, where nodes were asked.
    pub(crate) nodes: Vec<(String, String)>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            nodes: Vec::new(),
        }
    }

    /// The same with another exit.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Whether another holds the lock.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.exit, Exit::Conflict(_))
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::Internal, error.to_string())
    }
}

impl Report {
    /// Writes a result: `text` for people, `value` for programs.
    pub(crate) fn result(self, text: &str, value: &Value) -> Result<(), Failure> {
        let line = if self.json {
            value.to_string()
        } else {
            text.to_owned()
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())?;
        Ok(())
    }

    /// Writes why an invocation failed.
    pub(crate) fn failure(self, failure: &Failure) {
        if self.json {
            let nodes: Vec<_> = failure
                .nodes
                .iter()
                .map(|(node, said)| json!({"node": node, "said": said}))
                .collect();
            let mut value = json!({"error": failure.message, "exit": failure.exit.code()});
            if !nodes.is_empty() {
                value["nodes"] = nodes.into();
            }
            write_stderr(&value.to_string());
        } else {
            let mut text = format!("ringfence: {}", failure.message);
            for (node, said) in &failure.nodes {
                text += &format!("\n  {node}: {said}");
            }
            write_stderr(&text);
        }
    }

    /// Writes what went wrong while going on.
    pub(crate) fn error(self, message: &str) {
        self.line("error", message);
    }

    /// Writes what somebody should know but may ask not to.
    pub(crate) fn warn(self, message: &str) {
        if !self.quiet {
            self.line("warning", message);
        }
    }

    fn line(self, kind: &str, message: &str) {
        if self.json {
            write_stderr(&json!({ kind: message }).to_string());
        } else {
            write_stderr(&format!("ringfence: {message}"));
        }
    }
}

/// A closed stderr is no reason to fail: the exit code still tells.
fn write_stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
