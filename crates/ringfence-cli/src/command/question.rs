//! A question to the person at the terminal, before something that others may notice.

use std::io::{self, IsTerminal, Write};

use crate::exit::{self, Exit};
use crate::report::{CliFailure, printable, wrapped};

/// Asks, and fails with `refused` unless the answer is yes. Without a terminal, `--yes` is needed.
pub(super) async fn ask(question: &str, refused: &str) -> Result<(), CliFailure> {
    let lines = question
        .split('\n')
        .flat_map(|line| wrapped(&printable(line), 79));
    let question = lines.collect::<Vec<_>>().join("\n") + " ";
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliFailure::usage(
            "there is no terminal to ask at: use --yes to go on without a question",
        ));
    }
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
