//! What a shell completes: commands, options, the names of locks, and the command after `--`.
//!
//! The script for the shell calls this program at each TAB, with [`VARIABLE`] set.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::CommandFactory;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::Value;

use crate::args::Cli;

/// Set by the script of the shell.
const VARIABLE: &str = "RINGFENCE_COMPLETE";

/// How long the names of locks may take: a person waits at the keyboard.
const NAMES_PATIENCE: Duration = Duration::from_millis(1500);

/// Completes and exits, if a shell asks for that.
pub(crate) fn complete_if_asked() {
    CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .complete();
}

/// The script that makes `shell` complete `ringfence`.
pub(crate) fn script(shell: clap_complete::Shell) -> io::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let found = shells.completer(&shell.to_string());
    let found = found.ok_or_else(|| io::Error::other("no such shell"))?;
    let mut script = Vec::new();
    found.write_registration(VARIABLE, "ringfence", "ringfence", "ringfence", &mut script)?;
    if shell == clap_complete::Shell::Bash {
        script.extend_from_slice(include_bytes!("completion/colons.bash"));
    }
    Ok(script)
}

/// The names of locks that are held or waited for, as `ringfence ls` shows them.
pub(crate) fn lock_names(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else {
        return Vec::new();
    };
    let names = listed().unwrap_or_default();
    let fitting = names.into_iter().filter(|name| name.starts_with(typed));
    let safe = fitting.filter(|name| is_plain_word(name));
    safe.map(CompletionCandidate::new).collect()
}

/// Whether every shell takes `name` as it is. Others are not proposed: any client chooses the names of
/// its locks, and the person at the keyboard executes the line.
fn is_plain_word(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-.:/@%+=,".contains(c);
    name.chars().all(plain) && !name.starts_with(['-', '=', '%', '+'])
}

/// Asks this program itself, so that nodes and settings are found as always. `None` if it does not
/// answer in time.
fn listed() -> Option<BTreeSet<String>> {
    let mut list = Command::new(env::current_exe().ok()?);
    list.args(["--json", "--quiet", "ls"])
        .env_remove(VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = list.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    let text = receiver.recv_timeout(NAMES_PATIENCE);
    let _ = child.kill();
    let _ = child.wait();
    let text = text.ok()?.ok()?;
    let values = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let names = values.filter_map(|value: Value| Some(value["name"].as_str()?.to_owned()));
    Some(names.collect())
}

/// Completes the command that runs under a lock: a program, or a file, which may be an argument too.
pub(crate) fn command_words(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut words = PathCompleter::any().complete(typed);
    if !typed.is_empty() && !typed.as_encoded_bytes().contains(&b'/') {
        let programs = programs(&typed.to_string_lossy());
        words.extend(programs.into_iter().map(CompletionCandidate::new));
    }
    words
}

/// The programs in `PATH` whose name begins with `typed`.
fn programs(typed: &str) -> BTreeSet<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let entries = env::split_paths(&path).filter_map(|folder| folder.read_dir().ok());
    let files = entries.flatten().filter_map(Result::ok);
    let fitting = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        (name.starts_with(typed) && is_executable(&file.path())).then_some(name)
    });
    fitting.collect()
}

fn is_executable(file: &Path) -> bool {
    let metadata = file.metadata();
    metadata.is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::is_plain_word;

    #[test]
    fn a_name_that_a_shell_would_change_or_execute_is_not_proposed() {
        for name in [
            "orders:42",
            "eu/nightly-report",
            "a.b_c@d+e=f,g%h",
            "gr\u{f6}\u{df}e",
        ] {
            assert!(is_plain_word(name), "{name}");
        }
        let hostile = [
            "nightly$(touch${IFS}x)",
            "a`id`",
            "a;id",
            "a|id",
            "a&",
            "a>b",
            "a<b",
            "a b",
            "a\tb",
            "a\nb",
            "a'b",
            "a\"b",
            "a\\b",
            "*",
            "a?",
            "[a]",
            "{a,b}",
            "!!",
            "#a",
            "~root",
            "-rf",
            "=ls",
            "%1",
            "a^b",
            "(a)",
            "\u{202e}a",
            "\u{1b}[2J",
        ];
        for name in hostile {
            assert!(!is_plain_word(name), "{name:?}");
        }
    }
}
