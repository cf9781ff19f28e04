//! One client process. It runs several tasks that each ask for one lock after the other with the
//! product's own client, and records the results in a journal.
//!
//! It runs until its standard input ends, so it does not outlive the process that started it.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence::Locks;
use tokio::sync::watch;

use crate::history::{Mode, What};
use crate::random::Random;

use super::api::{Api, Held};
use super::call::{Call, CallKind, HoldEnd};
use super::failovers::{self, PlainClient};
use super::journal::{Journal, Note, now_us};
use super::store::{Entry, Store, StoreError};
use super::unheld::Observing;

/// How many calls a client has under way at the same time.
pub(super) const TASKS: u64 = 3;
/// Each client numbers its calls from its own base, and so does each of its tasks.
pub(super) const OPS_OF_CLIENT: u64 = 1_000_000;
pub(super) const OPS_OF_TASK: u64 = 100_000;
/// The task that observes the election.
const OBSERVER: u64 = 9;
/// The line that a client prints once it knows every node's clock.
pub(super) const WARM: &str = "warm";
/// How long a node may take. Long, because one busy machine runs everything.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);
/// How often a holder checks whether its deadline has moved.
const LOOK: Duration = Duration::from_millis(40);

/// The settings of one client process.
#[derive(Debug, Clone)]
pub struct ClientProcess {
    /// Its number in the history.
    pub number: u64,
    /// The seed that decides what it asks for.
    pub seed: u64,
    /// The nodes' URLs, each through a proxy of its own.
    pub nodes: String,
    /// The URL of the resources that the locks protect.
    pub store: String,
    /// The file in which it records what happens.
    pub journal: PathBuf,
    /// In a run of failovers: the file in which its plain client records what happens.
    pub plain_journal: Option<PathBuf>,
    /// Whether it uses the blocking API.
    pub blocking: bool,
}

impl ClientProcess {
    /// Works until standard input ends.
    ///
    /// # Errors
    /// If it cannot start. Later failures are part of the history.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.enable_all().build()?.block_on(self.work())
    }

    async fn work(&self) -> Result<(), Box<dyn Error>> {
        let stop = until_input_ends();
        let journal = Arc::new(Journal::create(&self.journal)?);
        let store = Store::connect(&self.store).await?;
        let label = format!("client-{}", self.number);
        let builder = Locks::builder().nodes(&self.nodes).label(&label);
        let api = Api::connect(builder.node_timeout(NODE_TIMEOUT), self.blocking).await?;
        let warming = tokio::spawn(report_when_warm(api.clone()));
        let workload = match self.plain_journal {
            Some(_) => failovers::WORKLOAD,
            None => WORKLOAD,
        };
        let mut tasks: Vec<_> = (0..workload.tasks)
            .map(|task| {
                let worker = Worker {
                    client: self.number,
                    next_op: self.number * OPS_OF_CLIENT + task * OPS_OF_TASK,
                    random: Random::apart(self.seed, 1 + self.number * TASKS + task),
                    api: api.clone(),
                    store: store.clone(),
                    journal: Arc::clone(&journal),
                    workload,
                };
                tokio::spawn(worker.work(stop.clone()))
            })
            .collect();
        if let Some(journal) = &self.plain_journal {
            let journal = Journal::create(journal)?;
            let plain = PlainClient::new(self.number, self.seed, &self.nodes, journal);
            tasks.push(tokio::spawn(plain.work(stop.clone())));
        }
        let observing = Observing {
            api: api.clone(),
            next_op: self.number * OPS_OF_CLIENT + OBSERVER * OPS_OF_TASK,
            random: Random::apart(self.seed, u64::MAX - self.number),
            journal: Arc::clone(&journal),
        };
        let observing = tokio::spawn(observing.work(stop));
        for task in tasks {
            task.await?;
        }
        warming.abort();
        api.close().await;
        observing.await?;
        Ok(())
    }
}

fn until_input_ends() -> watch::Receiver<bool> {
    let (sender, stop) = watch::channel(false);
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        let _ = sender.send(true);
    });
    stop
}

/// Prints [`WARM`] when every node has answered. A client that never saw a node's clock cannot
/// notice that the clock was set.
async fn report_when_warm(api: Api) {
    let mut answered = api.answered().await;
    while !answered.iter().all(|answered| *answered) {
        tokio::time::sleep(LOOK).await;
        for (answered, now) in answered.iter_mut().zip(api.answered().await) {
            *answered |= now;
        }
    }
    // The write fails if the run is over; that is fine.
    let _ = writeln!(std::io::stdout(), "{WARM}");
}

pub(super) struct Worker {
    pub(super) client: u64,
    next_op: u64,
    pub(super) random: Random,
    pub(super) api: Api,
    store: Store,
    pub(super) journal: Arc<Journal>,
    pub(super) workload: Workload,
}

/// How the tasks of a client behave in one sort of run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    /// How many calls a client has under way at the same time.
    pub(super) tasks: u64,
    pub(super) draw: fn(&mut Random) -> Call,
    /// The pause after a call that was refused, from and to. Without a majority the next call would
    /// also be refused at once.
    pub(super) refused_ms: (u64, u64),
    /// For how long the nodes keep a latch. Longer than any client uses it.
    pub(super) latch_ttl: Duration,
}

const WORKLOAD: Workload = Workload {
    tasks: TASKS,
    draw: Call::draw,
    refused_ms: (20, 150),
    // Even if clocks are set meanwhile; and shorter than the time that a run waits for leftovers
    // to expire.
    latch_ttl: Duration::from_secs(12),
};

impl Worker {
    async fn work(mut self, stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let call = (self.workload.draw)(&mut self.random);
            let op = self.next_op;
            self.next_op += 1;
            let pause_ms = match call.kind {
                CallKind::Arrive | CallKind::Await => {
                    self.turn(op, &call).await;
                    self.random.between(20, 150)
                }
                CallKind::Break => {
                    self.break_hold(op, &call).await;
                    self.random.between(1, 40)
                }
                _ => match self.ask(op, &call).await {
                    Some(held) => {
                        self.hold(op, &call, held).await;
                        self.random.between(1, 40)
                    }
                    None => {
                        let (least, most) = self.workload.refused_ms;
                        self.random.between(least, most)
                    }
                },
            };
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    async fn ask(&mut self, op: u64, call: &Call) -> Option<Held> {
        let invoked = What::Invoked {
            op,
            client: self.client,
            mode: call.mode(),
            names: call.names.iter().map(|&name| name.to_owned()).collect(),
            waits: call.wait.is_some() || call.kind == CallKind::Lead,
            owner: None,
        };
        self.journal.event(now_us(), invoked);
        let asking = self.api.acquire(op, call);
        // A call of the blocking API cannot be dropped.
        let answer = match call.dropped_after.filter(|_| !self.api.is_blocking()) {
            Some(patience) => tokio::time::timeout(patience, asking).await,
            None => Ok(asking.await),
        };
        let what = match answer {
            Ok(Ok(held)) => {
                self.granted(op, call, &held);
                return Some(held);
            }
            Ok(Err(error)) => What::Refused {
                op,
                why: first_line(&error.to_string()),
            },
            // It may have been granted at the moment in which it was dropped.
            Err(_) => What::Unknown { op },
        };
        self.journal.event(now_us(), what);
        None
    }

    fn granted(&self, op: u64, call: &Call, held: &Held) {
        let until_us = held.deadline_us();
        // A client that was stopped before it could record the grant still had it in time.
        let at_us = now_us().min(until_us);
        let what = What::Granted {
            op,
            fence: Some(held.fence()),
            slot: held.slot(),
            until_us,
        };
        self.journal.event(at_us, what);
        let nodes = held.granted_by();
        self.journal.note(at_us, &Note::Votes { op, nodes });
        if self.api.is_blocking() {
            self.journal.note(at_us, &Note::Blocking { op });
        }
        if call.renew {
            self.journal.note(at_us, &Note::Renews { op });
        }
    }

    /// Reads, waits, writes and releases.
    async fn hold(&mut self, op: u64, call: &Call, held: Held) {
        let resources = resources(call, &held);
        let alone = call.mode() != Mode::Shared;
        let mut seen = Vec::new();
        for name in &resources {
            seen.push(self.read(op, name, held.fence()).await);
        }
        let lost = self.stay(op, call, &held).await;
        // Some holders write although they know of the loss, as a program does that does not check.
        let writes = alone && (!lost || self.random.chance(50));
        if lost {
            self.journal.event(now_us(), What::Ended { op });
        }
        if writes {
            for (name, seen) in resources.iter().zip(seen) {
                self.write(op, name, held.fence(), seen).await;
            }
        }
        match lost {
            // The hold has ended, whatever the nodes answer to the release.
            true => drop(held.release().await),
            false => self.part(op, call, held).await,
        }
    }

    /// Holds for the time in `call`. Returns whether the lock was lost in that time.
    async fn stay(&self, op: u64, call: &Call, held: &Held) -> bool {
        let mut until_us = held.deadline_us();
        let end_us = now_us() + call.span.as_micros() as u64;
        while now_us() < end_us {
            let left = Duration::from_micros(end_us.saturating_sub(now_us()));
            tokio::select! {
                biased;
                why = held.lost(), if !call.ignores_loss => {
                    self.journal.note(now_us(), &Note::Lost { op, why: why.to_string() });
                    return true;
                }
                () = tokio::time::sleep(left.min(LOOK)) => {}
            }
            self.note_deadline(op, held, &mut until_us);
        }
        false
    }

    fn note_deadline(&self, op: u64, held: &Held, until_us: &mut u64) {
        let now = held.deadline_us();
        if now != *until_us {
            *until_us = now;
            self.journal
                .event(now_us(), What::Deadline { op, until_us: now });
        }
    }

    /// Ends a hold that was not lost as far as its client knows.
    async fn part(&mut self, op: u64, call: &Call, held: Held) {
        let held = match (call.end, held) {
            (HoldEnd::Downgrade, held) if call.kind == CallKind::Write => {
                let until_us = held.deadline_us();
                self.journal
                    .event(now_us(), What::Deadline { op, until_us });
                self.journal.event(now_us(), What::Downgraded { op });
                match held.downgrade().await {
                    Ok(held) => {
                        self.stay(op, call, &held).await;
                        held
                    }
                    Err(why) => {
                        let why = why.to_string();
                        self.journal.note(now_us(), &Note::Lost { op, why });
                        self.journal.event(now_us(), What::Ended { op });
                        return;
                    }
                }
            }
            (HoldEnd::Extend, held) => {
                // The deadline shows whether it worked.
                let _ = held.extend(call.ttl).await;
                self.stay(op, call, &held).await;
                held
            }
            (_, held) => held,
        };
        let (until_us, now) = (held.deadline_us(), now_us());
        self.journal.event(now, What::Deadline { op, until_us });
        self.journal.event(now, What::Ended { op });
        match call.end {
            HoldEnd::Drop => drop(held),
            // The hold has ended, whatever the nodes answer.
            _ => drop(held.release().await),
        }
    }

    /// The value of a resource in both copies; `None` if the fence is already too old.
    async fn read(&mut self, op: u64, name: &str, fence: u64) -> [Option<u64>; 2] {
        let fenced = match self.store.read_fenced(name, fence).await {
            Ok(seen) => Some(seen),
            Err(error) => self.note_store_error(op, &error),
        };
        [fenced, self.store.read(name).await.ok()]
    }

    async fn write(&mut self, op: u64, name: &str, fence: u64, seen: [Option<u64>; 2]) {
        let entry = |saw: u64| Entry {
            op,
            fence,
            saw,
            // Every write has a different value, also within one call.
            wrote: op * 8 + u64::from(name.as_bytes()[0] % 8),
            sent_us: now_us(),
        };
        if let Some(saw) = seen[0]
            && let Err(error) = self.store.write_fenced(name, entry(saw)).await
        {
            self.note_store_error(op, &error);
        }
        if let Some(saw) = seen[1] {
            let _ = self.store.write(name, entry(saw)).await;
        }
    }

    fn note_store_error(&self, op: u64, error: &StoreError) -> Option<u64> {
        match error {
            StoreError::Refused => self.journal.note(now_us(), &Note::Late { op }),
            // The server of the resources has no faults, so this is a mistake of the test.
            StoreError::Broken(error) => panic!("a resource failed: {error}"),
        }
        None
    }
}

/// The resources that a hold protects: one list per name, or per slot.
fn resources(call: &Call, held: &Held) -> Vec<String> {
    let names = call.names.iter();
    match held.slot() {
        Some(slot) => names.map(|name| format!("{name}-{slot}")).collect(),
        None => names.map(|&name| name.to_owned()).collect(),
    }
}

pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
