//! One session with PostgreSQL, through its own client `psql`.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::binary::postgres_program;

/// The kit's user, which has all rights.
pub(crate) const USER: &str = "testkit";
/// What `psql` prints after each answer to mark its end.
const END: &str = "-- that was all --";

/// A session that stays open, with its transaction. Dropping it ends it.
#[derive(Debug)]
pub struct Psql {
    child: Child,
    input: ChildStdin,
    output: BufReader<PipeReader>,
}

impl Psql {
    /// A session with the server whose [`host`](crate::Postgres::host) this is. For processes other
    /// than the one that started it.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn connect(host: &Path) -> Self {
        let (output, errors) = std::io::pipe().expect("cannot make a pipe");
        let mut command = client(host);
        command.stdin(Stdio::piped());
        // Errors appear in order among the answers.
        command.stdout(errors.try_clone().expect("cannot share a pipe"));
        command.stderr(errors);
        let mut child = command.spawn().expect("cannot start psql");
        drop(command);
        let input = child.stdin.take().expect("psql has an input");
        let mut session = Self {
            child,
            input,
            output: BufReader::new(output),
        };
        session.must("SELECT 1");
        session
    }

    /// Whether the server accepts connections.
    pub(crate) fn can_connect(host: &Path) -> bool {
        let mut command = client(host);
        command.args(["-c", "SELECT 1"]).stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success())
    }

    /// Runs `sql` and returns what was printed: rows with `|` between their columns, and the
    /// server's status lines (`INSERT 0 1`). An error if any statement failed.
    pub fn run(&mut self, sql: &str) -> Result<String, String> {
        self.send(sql);
        self.answer()
    }

    /// Runs `sql`, which must not fail.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn must(&mut self, sql: &str) -> String {
        self.run(sql)
            .unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }

    /// Sends `sql` without waiting for it: it may have to wait for another session.
    pub fn send(&mut self, sql: &str) {
        writeln!(self.input, "{sql}\n;\n\\echo {END}").expect("psql has ended");
    }

    /// The result of the oldest [`send`](Self::send) without an answer.
    pub fn answer(&mut self) -> Result<String, String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self
                .output
                .read_line(&mut line)
                .expect("cannot read from psql");
            assert!(
                read > 0,
                "psql has ended; its output:\n{}",
                lines.join("\n")
            );
            match line.trim_end() {
                END => break,
                line => lines.push(line.to_owned()),
            }
        }
        let failed = lines.iter().any(|line| line.starts_with("ERROR:"));
        let output = lines.join("\n");
        if failed { Err(output) } else { Ok(output) }
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(host: &Path) -> Command {
    let mut command = Command::new(postgres_program("psql"));
    command
        .args(["--no-psqlrc", "--no-align", "--tuples-only", "--host"])
        .arg(host)
        .args(["--username", USER, "--dbname", "postgres"])
        // Ignore settings of the user who runs the tests.
        .env_remove("PGOPTIONS")
        .env_remove("PGPORT");
    command
}
