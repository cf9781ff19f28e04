//! The client processes of a run: starts, stops, kills and replaces them.

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

/// A client's number is its index plus this for each earlier client with the same index.
pub(super) const CLIENT_NUMBERS: u64 = 64;
/// How long a client may take to end: longer than any call and any hold. A hold of 25 s that is
/// extended lasts twice as long.
const END_LIMIT: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub(super) struct ClientProcesses {
    program: PathBuf,
    folder: PathBuf,
    seed: u64,
    launches: Vec<Launch>,
    clients: Vec<RunningClient>,
    begun: Vec<u64>,
}

/// How one client process is started.
#[derive(Debug, Clone, Default)]
pub(super) struct Launch {
    /// The nodes' URLs.
    pub(super) nodes: String,
    /// The URL of the resources.
    pub(super) store: String,
    /// The folder for the journals of the plain clients, in a run of failovers.
    pub(super) plain: Option<PathBuf>,
    /// Whether it uses the blocking API.
    pub(super) blocking: bool,
    pub(super) environment: Vec<(String, String)>,
}

#[derive(Debug)]
struct RunningClient {
    number: u64,
    child: Child,
    warm: Arc<AtomicBool>,
}

impl ClientProcesses {
    pub(super) fn start(
        program: PathBuf,
        folder: PathBuf,
        seed: u64,
        launches: Vec<Launch>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut processes = Self {
            program,
            folder,
            seed,
            clients: Vec::new(),
            begun: vec![0; launches.len()],
            launches,
        };
        for index in 0..processes.launches.len() {
            let client = processes.spawn(index)?;
            processes.clients.push(client);
        }
        Ok(processes)
    }

    /// The clients that were started first at these indices, and their process ids.
    pub(super) fn first_ids(&self, indices: &[usize]) -> Vec<(usize, u32)> {
        let ids = indices
            .iter()
            .map(|&index| (index, self.clients[index].child.id()));
        ids.collect()
    }

    /// Starts a new client in place of a killed one, unless one is running there already.
    pub(super) fn replace(&mut self, index: usize) -> Result<(), Box<dyn Error>> {
        if self.clients[index].child.try_wait()?.is_some() {
            self.clients[index] = self.spawn(index)?;
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, index: usize) {
        self.clients[index].signal(Signal::STOP);
    }

    pub(super) fn resume(&mut self, index: usize) {
        self.clients[index].signal(Signal::CONT);
    }

    /// Kills a client and waits until it is gone. Returns its number.
    pub(super) fn kill(&mut self, index: usize) -> u64 {
        let client = &mut self.clients[index];
        let _ = client.child.kill();
        let _ = client.child.wait();
        client.number
    }

    /// Whether every running client knows every node's clock.
    pub(super) fn is_warm(&mut self) -> bool {
        self.clients.iter_mut().all(|client| {
            client.warm.load(Ordering::SeqCst) || matches!(client.child.try_wait(), Ok(Some(_)))
        })
    }

    /// Tells all clients to end and waits for them. An error names those that failed or did not
    /// end.
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

    fn spawn(&mut self, index: usize) -> Result<RunningClient, Box<dyn Error>> {
        let number = 1 + index as u64 + CLIENT_NUMBERS * self.begun[index];
        self.begun[index] += 1;
        let launch = &self.launches[index];
        let mut command = Command::new(&self.program);
        command.arg("client");
        if let Some(folder) = &launch.plain {
            let journal = folder.join(format!("client-{number}.jsonl"));
            command.arg("--plain-journal").arg(journal);
        }
        if launch.blocking {
            command.arg("--blocking");
        }
        let mut child = command
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .args(["--number", &number.to_string()])
            .args(["--seed", &self.seed.to_string()])
            .args(["--nodes", &launch.nodes])
            .args(["--store", &launch.store])
            .arg("--journal")
            .arg(self.folder.join(format!("client-{number}.jsonl")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let warm = Arc::new(AtomicBool::new(false));
        let output = child
            .stdout
            .take()
            .ok_or("the client process has no standard output")?;
        let flag = Arc::clone(&warm);
        // The thread ends with the client.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if line == WARM {
                    flag.store(true, Ordering::SeqCst);
                }
            }
        });
        Ok(RunningClient {
            number,
            child,
            warm,
        })
    }
}

impl RunningClient {
    fn signal(&mut self, signal: Signal) {
        // After a process was waited for, its id may belong to another process.
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            let _ = kill_process(id, signal);
        }
    }
}

impl Drop for RunningClient {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
