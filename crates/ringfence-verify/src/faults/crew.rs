//! The client processes of a run: started, stopped where they stand, killed and replaced.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::client::WARM;
use super::journal::now_us;
use super::stage::{CLIENTS, Stage};

/// A client's number is that of its seat plus this for each that sat there before.
pub(super) const SEATS: u64 = 16;
/// How long a client may take to end once it is told to: longer than any call that it can have made.
const END_LIMIT: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(super) struct Crew {
    program: PathBuf,
    folder: PathBuf,
    seed: u64,
    clients: Vec<Client>,
    begun: Vec<u64>,
}

#[derive(Debug)]
struct Client {
    number: u64,
    child: Child,
    warm: Arc<AtomicBool>,
}

impl Crew {
    pub(super) fn start(
        program: PathBuf,
        folder: PathBuf,
        seed: u64,
        stage: &Stage,
    ) -> Result<Self, Box<dyn Error>> {
        let mut crew = Self {
            program,
            folder,
            seed,
            clients: Vec::new(),
            begun: vec![0; CLIENTS],
        };
        for seat in 0..CLIENTS {
            let client = crew.spawn(seat, stage)?;
            crew.clients.push(client);
        }
        Ok(crew)
    }

    /// Puts a new client in place of one that was killed, unless somebody sits there already.
    pub(super) fn replace(&mut self, seat: usize, stage: &Stage) -> Result<(), Box<dyn Error>> {
        if self.clients[seat].child.try_wait()?.is_some() {
            self.clients[seat] = self.spawn(seat, stage)?;
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, seat: usize) {
        self.clients[seat].signal(Signal::STOP);
    }

    pub(super) fn resume(&mut self, seat: usize) {
        self.clients[seat].signal(Signal::CONT);
    }

    /// Kills a client; its number. It is gone on return.
    pub(super) fn kill(&mut self, seat: usize) -> u64 {
        let client = &mut self.clients[seat];
        let _ = client.child.kill();
        let _ = client.child.wait();
        client.number
    }

    /// Whether every client that runs knows every node's clock.
    pub(super) fn is_warm(&mut self) -> bool {
        self.clients.iter_mut().all(|client| {
            client.warm.load(Ordering::SeqCst) || matches!(client.child.try_wait(), Ok(Some(_)))
        })
    }

    /// Tells all to end and waits for it; those that did not have to be killed failed to.
    pub(super) fn end(mut self) -> Result<(), String> {
        for client in &mut self.clients {
            drop(client.child.stdin.take());
        }
        let until_us = now_us() + END_LIMIT.as_micros() as u64;
        let mut failures = Vec::new();
        for client in &mut self.clients {
            let ended = loop {
                match client.child.try_wait() {
                    Ok(Some(status)) => break Some(status),
                    Ok(None) if now_us() < until_us => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    _ => break None,
                }
            };
            match ended {
                Some(status) if status.success() => {}
                Some(status) => failures.push(format!("client {} failed: {status}", client.number)),
                None => failures.push(format!("client {} did not end", client.number)),
            }
        }
        match failures.is_empty() {
            true => Ok(()),
            false => Err(failures.join("; ")),
        }
    }

    fn spawn(&mut self, seat: usize, stage: &Stage) -> Result<Client, Box<dyn Error>> {
        let number = 1 + seat as u64 + SEATS * self.begun[seat];
        self.begun[seat] += 1;
        let mut child = Command::new(&self.program)
            .arg("client")
            .args(["--number", &number.to_string()])
            .args(["--seed", &self.seed.to_string()])
            .args(["--nodes", &stage.urls(seat)])
            .args(["--store", &stage.store.url()])
            .arg("--journal")
            .arg(self.folder.join(format!("client-{number}.jsonl")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let warm = Arc::new(AtomicBool::new(false));
        let output = child.stdout.take().ok_or("a client without output")?;
        let tell = Arc::clone(&warm);
        // Ends with the client.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line == WARM {
                    tell.store(true, Ordering::SeqCst);
                }
            }
        });
        Ok(Client {
            number,
            child,
            warm,
        })
    }
}

impl Client {
    fn signal(&mut self, signal: Signal) {
        // The id of one that has been waited for may be somebody else's by now.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            let _ = kill_process(id, signal);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
