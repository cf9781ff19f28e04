//! The instances of the service, as processes that the story starts, steers and kills.

use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use ringfence_testkit::Process;

use crate::Outcome;
use crate::dispatcher::Manner;

/// The first argument of an instance.
pub(crate) const ROLE: &str = "instance";

pub(crate) struct Instances {
    running: Vec<Instance>,
    lines: Receiver<(usize, String)>,
}

struct Instance {
    input: PipeWriter,
    /// Killed when it is dropped.
    process: Option<Process>,
}

impl Instances {
    pub(crate) fn start(
        count: usize,
        manner: Manner,
        database: &Path,
        server: &str,
    ) -> Outcome<Self> {
        let (sender, lines) = channel();
        let mut running = Vec::new();
        for number in 0..count {
            let (theirs, input) = std::io::pipe()?;
            let mut command = Command::new(std::env::current_exe()?);
            command.args([ROLE, &format!("{manner:?}")]);
            command.arg(database).arg(server);
            command.stdin(theirs).stdout(Stdio::piped());
            let mut process = Process::spawn(&mut command);
            let output = process.take_stdout().ok_or("no pipe")?;
            forward(number, output, sender.clone());
            let process = Some(process);
            running.push(Instance { input, process });
        }
        Ok(Self { running, lines })
    }

    /// The next line that an instance prints, and its number.
    pub(crate) fn line(&self) -> Outcome<(usize, String)> {
        Ok(self.lines.recv()?)
    }

    /// Lets an instance go on.
    pub(crate) fn tell(&mut self, instance: usize, line: &str) -> Outcome {
        writeln!(self.running[instance].input, "{line}")?;
        Ok(())
    }

    /// SIGKILL: it can release nothing and finish nothing.
    pub(crate) fn kill(&mut self, instance: usize) {
        self.running[instance].process = None;
    }

    /// Lets every instance that has fetched its tasks go on, until `count` are done.
    pub(crate) fn finish(&mut self, count: usize) -> Outcome {
        let mut done = 0;
        while done < count {
            let (instance, line) = self.line()?;
            if line.starts_with("fetched") {
                self.tell(instance, "go")?;
            }
            done += usize::from(line == "done");
        }
        Ok(())
    }
}

fn forward(
    number: usize,
    output: impl std::io::Read + Send + 'static,
    to: Sender<(usize, String)>,
) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if to.send((number, line)).is_err() {
                return;
            }
        }
    });
}
