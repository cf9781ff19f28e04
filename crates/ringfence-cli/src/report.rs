//! Output: results on stdout; errors, warnings and questions on stderr, as text or as JSON.
//!
//! Every text passes through here, so that no control character reaches a terminal.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::exit::{self, Exit};

/// The format of the output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Report {
    /// Write one JSON object per line instead of text.
    pub(crate) json: bool,
    /// Leave out warnings, and that another client holds the lock.
    pub(crate) quiet: bool,
    /// Tell what happens.
    pub(crate) verbose: bool,
}

const JSON: &str = "json";

impl Report {
    /// The format, as an argument for another process of ours.
    pub(crate) fn format(self) -> &'static str {
        if self.json { JSON } else { "text" }
    }

    /// A report in the format of that argument.
    pub(crate) fn of_format(format: &OsStr) -> Self {
        Self {
            json: format == JSON,
            ..Self::default()
        }
    }
}

/// Why ringfence failed, and its exit code.
#[derive(Debug)]
pub(crate) struct CliFailure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// Each node and its answer, if nodes were asked.
    pub(crate) nodes: Vec<(String, String)>,
}

impl CliFailure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            nodes: Vec::new(),
        }
    }

    /// The same failure with another exit code.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Whether another client holds the lock.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.exit, Exit::Conflict(_))
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl From<io::Error> for CliFailure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::Internal, error.to_string())
    }
}

impl Report {
    /// Writes a result: `text` for people, `value` for programs.
    pub(crate) fn result(self, text: &str, value: &Value) -> Result<(), CliFailure> {
        print(&self.formatted(text, value))
    }

    /// Writes a result as [`result`](Self::result) does, and fails if its reader has gone.
    pub(crate) fn hand_over(self, text: &str, value: &Value) -> Result<(), CliFailure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", self.formatted(text, value)).and_then(|()| out.flush())?;
        Ok(())
    }

    /// Writes one line of a stream. `Break` if its reader has gone (`head -1`), which is no error.
    pub(crate) fn stream(self, text: &str, value: &Value) -> Result<ControlFlow<()>, CliFailure> {
        write_stream(&format!("{}\n", self.formatted(text, value)))
    }

    fn formatted(self, text: &str, value: &Value) -> String {
        match self.json {
            true => json_line(value),
            false => printable(text),
        }
    }

    /// Writes why ringfence failed. It exits afterwards.
    pub(crate) fn failure(self, failure: &CliFailure) {
        if self.quiet && failure.is_conflict() {
            // The exit code says it. A cron job would mail this line each time.
            return;
        }
        if self.json {
            let nodes: Vec<_> = failure
                .nodes
                .iter()
                .map(|(node, said)| json!({"node": node, "said": said}))
                .collect();
            let mut value = json!({
                "error": failure.message,
                "kind": failure.exit.kind(),
                "exit": failure.exit.code(),
            });
            if !nodes.is_empty() {
                value["nodes"] = nodes.into();
            }
            write_stderr(&json_line(&value));
        } else {
            let mut text = format!("ringfence: {}", printable(&failure.message));
            // What the only node said is in the message.
            for (node, said) in failure.nodes.iter().filter(|_| failure.nodes.len() > 1) {
                text += &format!("\n  {}: {}", one_line(node), one_line(said));
            }
            write_stderr(&text);
        }
    }

    /// Writes an error after which ringfence goes on.
    pub(crate) fn error(self, message: &str) {
        self.line("error", message);
    }

    /// Writes a warning, unless `-q` was given.
    pub(crate) fn warn(self, message: &str) {
        if !self.quiet {
            self.line("warning", message);
        }
    }

    /// Writes what happens, if `-v` was given.
    pub(crate) fn tell(self, message: &str) {
        if self.verbose {
            self.line("info", message);
        }
    }

    fn line(self, kind: &str, message: &str) {
        if self.json {
            write_stderr(&json_line(&json!({ kind: message })));
        } else {
            write_stderr(&format!("ringfence: {}", printable(message)));
        }
    }
}

/// Asks, and fails with `refused` unless the answer is yes. Fails with `unasked` without a terminal.
pub(crate) async fn ask(question: &str, unasked: &str, refused: &str) -> Result<(), CliFailure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliFailure::usage(unasked));
    }
    let lines = question
        .split('\n')
        .flat_map(|line| wrapped(&printable(line), 79));
    let question = lines.collect::<Vec<_>>().join("\n") + " ";
    let answer = tokio::task::spawn_blocking(move || {
        let mut err = io::stderr().lock();
        write!(err, "{question}").and_then(|()| err.flush())?;
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = answer.await.map_err(io::Error::other)??;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliFailure::new(Exit::Conflict(exit::CONFLICT), refused)),
    }
}

/// Writes `line` to stdout. A reader that has seen enough (`head -1`) is no error.
pub(crate) fn print(line: &str) -> Result<(), CliFailure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Writes `text` to stdout as it is. `Break` if the reader has gone.
pub(crate) fn write_stream(text: &str) -> Result<ControlFlow<()>, CliFailure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(error.into()),
    }
}

/// Whether stdout is a pipe whose reader has gone.
pub(crate) fn reader_has_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let known = rustix::event::poll(&mut polled, Some(&Timespec::default()));
    known.is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// Whether stdout was closed when this program was started (`>&-`). The standard library opens
/// `/dev/null` in its place, for reading and writing; a shell opens it for writing only.
pub(crate) fn stdout_was_closed() -> bool {
    let stdout = io::stdout();
    let is_null = || {
        let null = rustix::fs::stat("/dev/null").ok()?;
        let found = rustix::fs::fstat(&stdout).ok()?;
        Some(found.st_rdev == null.st_rdev && found.st_mode == null.st_mode)
    };
    let flags = rustix::fs::fcntl_getfl(&stdout);
    let is_for_both = flags.is_ok_and(|flags| flags.contains(OFlags::RDWR));
    is_for_both && is_null().unwrap_or(false)
}

/// Writes a line of JSON to stderr.
pub(crate) fn write_json_line(value: &Value) {
    write_stderr(&json_line(value));
}

/// Whether colours are wanted, see <https://no-color.org>, and the terminal can show them.
pub(crate) fn wants_colour() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// `text` in lines of at most `width` characters, broken between words where that is possible.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line: Vec<char> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && line.len() + 1 + word.chars().count() <= width {
            line.push(' ');
        } else if !line.is_empty() {
            lines.push(line.drain(..).collect());
        }
        line.extend(word.chars());
        while line.len() > width {
            lines.push(line.drain(..width).collect());
        }
    }
    lines.push(line.into_iter().collect());
    lines
}

/// A count in words: `1 node`, `2 nodes`.
pub(crate) fn many(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// A name or label in one line that is not too long to read.
pub(crate) fn shortened(text: &str) -> String {
    const MOST: usize = 48;
    shortened_to(text, MOST + 1)
}

/// A name or label in one line of at most `most` characters.
pub(crate) fn shortened_to(text: &str, most: usize) -> String {
    let line = one_line(text);
    match line.chars().count() > most {
        false => line,
        true => {
            let kept = line.chars().take(most.saturating_sub(1));
            kept.chain(['…']).collect()
        }
    }
}

/// `text` with all control characters except newlines escaped, C1 and bidirectional ones included.
/// Servers, labels and names contribute to it, and must not be able to move a cursor, change a window
/// title or look like another text.
pub(crate) fn printable(text: &str) -> String {
    text.split('\n')
        .map(one_line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The error and its causes in one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// `said` without the address of the node, which stands before it.
pub(crate) fn said_after(node: &str, said: &str) -> String {
    let address = node.rsplit("://").next().unwrap_or(node);
    let rest = said
        .strip_prefix(node)
        .or_else(|| said.strip_prefix(address));
    let rest = rest.map(|rest| rest.trim_start_matches([':', ' ']));
    rest.unwrap_or(said).to_owned()
}

/// Like [`printable`], with newlines escaped too.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, |c| c.escape_debug().to_string())
}

/// A line of JSON. Control characters that JSON allows in strings (DEL and C1) are escaped too,
/// because a terminal obeys them.
fn json_line(value: &Value) -> String {
    escaped(&value.to_string(), |c| format!("\\u{:04x}", u32::from(c)))
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || is_bidirectional(c) {
            true => shown += &escape(c),
            false => shown.push(c),
        }
    }
    shown
}

/// Whether `c` changes the order in which the characters around it are shown: a label could look like
/// another one.
fn is_bidirectional(c: char) -> bool {
    let marks = ['\u{61c}', '\u{200e}', '\u{200f}'];
    marks.contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

/// A closed stderr is not an error: the exit code still reports the result.
fn write_stderr(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "a\u{1b}[2J\u{9b}31m\u{7f}\u{85}\u{202e}\u{2066}\u{200f}\r\nb";

    #[test]
    fn control_characters_are_escaped_and_newlines_only_in_one_line() {
        let shown = "a\\u{1b}[2J\\u{9b}31m\\u{7f}\\u{85}\\u{202e}\\u{2066}\\u{200f}\\r";
        assert_eq!(printable(NASTY), format!("{shown}\nb"));
        assert_eq!(one_line(NASTY), format!("{shown}\\nb"));
        assert_eq!(printable("ünï `x` \"y\""), "ünï `x` \"y\"");
    }

    #[test]
    fn json_has_no_control_characters_and_can_be_parsed() {
        let line = json_line(&json!({ "text": NASTY }));
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(!line.contains(is_bidirectional), "{line:?}");
        assert!(line.contains("\\u009b"), "{line}");
        let back: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(back["text"], NASTY);
    }

    #[test]
    fn an_address_is_not_said_twice() {
        let said = |text| said_after("redis://a:6379", text);
        assert_eq!(said("a:6379 may evict locks"), "may evict locks");
        assert_eq!(said("redis://a:6379: refused"), "refused");
        assert_eq!(said("connection refused"), "connection refused");
    }
}
