//! One client process: several tasks that each want one lock after the other, with the product's own
//! client, and write down what came of it.
//!
//! It goes on until its standard input ends, so it does not outlive whoever started it.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence::Locks;
use tokio::sync::watch;

use crate::history::{Mode, What};
use crate::random::Random;

use super::journal::{Journal, Note, now_us};
use super::store::{Entry, Store, Trouble};
use super::wish::{End, Held, Kind, Wish};

/// How many calls a client has under way at once.
pub(super) const TASKS: u64 = 3;
/// The calls of a client have numbers of their own, and so have those of its tasks.
pub(super) const OPS_OF_CLIENT: u64 = 1_000_000;
pub(super) const OPS_OF_TASK: u64 = 100_000;
/// What it says once it knows every node's clock.
pub(super) const WARM: &str = "warm";
/// How long a node may take: the machine that runs all of this is busy.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);
/// How often a holder looks whether its deadline has moved.
const LOOK: Duration = Duration::from_millis(40);

/// Who a client is, and where it finds what it needs.
#[derive(Debug, Clone)]
pub struct Seat {
    /// Its number in the history.
    pub number: u64,
    /// What decides what it wants.
    pub seed: u64,
    /// The nodes' URLs, each through a proxy of its own.
    pub nodes: String,
    /// The URL of what the locks guard.
    pub store: String,
    /// Where it writes down what happens.
    pub journal: PathBuf,
}

impl Seat {
    /// Works until standard input ends.
    ///
    /// # Errors
    /// If it cannot begin: nothing of what happens later is an error.
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
        let locks = builder.node_timeout(NODE_TIMEOUT).connect().await?;
        let warming = tokio::spawn(tell_when_warm(locks.clone()));
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let worker = Worker {
                    client: self.number,
                    next_op: self.number * OPS_OF_CLIENT + task * OPS_OF_TASK,
                    random: Random::apart(self.seed, 1 + self.number * TASKS + task),
                    locks: locks.clone(),
                    store: store.clone(),
                    journal: Arc::clone(&journal),
                };
                tokio::spawn(worker.work(stop.clone()))
            })
            .collect();
        for task in tasks {
            task.await?;
        }
        warming.abort();
        locks.close().await;
        Ok(())
    }
}

fn until_input_ends() -> watch::Receiver<bool> {
    let (tell, told) = watch::channel(false);
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        let _ = tell.send(true);
    });
    told
}

/// A client that never saw a node's clock cannot tell that it was set.
async fn tell_when_warm(locks: Locks) {
    let mut heard = vec![false; locks.node_names().len()];
    while !heard.iter().all(|heard| *heard) {
        for (heard, node) in heard.iter_mut().zip(locks.nodes().await) {
            *heard |= node.facts.is_ok();
        }
        tokio::time::sleep(LOOK).await;
    }
    // Nobody listens if the run is over.
    let _ = writeln!(std::io::stdout(), "{WARM}");
}

pub(super) struct Worker {
    pub(super) client: u64,
    next_op: u64,
    pub(super) random: Random,
    pub(super) locks: Locks,
    store: Store,
    pub(super) journal: Arc<Journal>,
}

impl Worker {
    async fn work(mut self, stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let wish = Wish::draw(&mut self.random);
            let op = self.next_op;
            self.next_op += 1;
            if matches!(wish.kind, Kind::Arrive | Kind::Await) {
                self.meet(op, &wish).await;
                continue;
            }
            let pause_ms = match self.ask(op, &wish).await {
                Some(held) => {
                    self.hold(op, &wish, held).await;
                    self.random.between(1, 40)
                }
                // Without a majority the next call would be refused at once, too.
                None => self.random.between(20, 150),
            };
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    async fn ask(&mut self, op: u64, wish: &Wish) -> Option<Held> {
        let invoked = What::Invoked {
            op,
            client: self.client,
            mode: wish.mode(),
            names: wish.names.iter().map(|&name| name.to_owned()).collect(),
            waits: wish.wait.is_some() || wish.kind == Kind::Lead,
            owner: None,
        };
        self.journal.event(now_us(), invoked);
        let asking = wish.ask(&self.locks);
        let answer = match wish.dropped_after {
            Some(patience) => tokio::time::timeout(patience, asking).await,
            None => Ok(asking.await),
        };
        let what = match answer {
            Ok(Ok(held)) => {
                self.granted(op, &held);
                return Some(held);
            }
            Ok(Err(error)) => What::Refused {
                op,
                why: first_line(&error.to_string()),
            },
            // It may have been granted in the very moment in which it was dropped.
            Err(_) => What::Unknown { op },
        };
        self.journal.event(now_us(), what);
        None
    }

    fn granted(&self, op: u64, held: &Held) {
        let until_us = held.deadline_us();
        // A client that was stopped before it could look was granted it all the same, in time.
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
    }

    /// Reads, takes its time, writes, and gives it back.
    async fn hold(&mut self, op: u64, wish: &Wish, held: Held) {
        let resources = resources(wish, &held);
        let alone = wish.mode() != Mode::Shared;
        let mut seen = Vec::new();
        for name in &resources {
            seen.push(self.read(op, name, held.fence()).await);
        }
        let lost = self.stay(op, wish, &held).await;
        // Some write although they were told, as a program does that does not look.
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
            // It has ended, whatever the nodes say to the release.
            true => drop(held.release().await),
            false => self.part(op, wish, held).await,
        }
    }

    /// Holds on for as long as the wish says; whether it was lost meanwhile.
    async fn stay(&self, op: u64, wish: &Wish, held: &Held) -> bool {
        let mut until_us = held.deadline_us();
        let end_us = now_us() + wish.span.as_micros() as u64;
        while now_us() < end_us {
            let left = Duration::from_micros(end_us.saturating_sub(now_us()));
            tokio::select! {
                biased;
                why = held.lost(), if !wish.deaf => {
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

    /// Ends a hold that was not lost, as far as its client knows.
    async fn part(&mut self, op: u64, wish: &Wish, held: Held) {
        let held = match (wish.end, held) {
            (End::Downgrade, Held::Alone(guard)) if wish.kind == Kind::Write => {
                let until_us = guard.exact_deadline().as_micros();
                self.journal
                    .event(now_us(), What::Deadline { op, until_us });
                self.journal.event(now_us(), What::Downgraded { op });
                match guard.downgrade().await {
                    Ok(guard) => {
                        let held = Held::Sharing(guard);
                        self.stay(op, wish, &held).await;
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
            (End::Extend, held) => {
                // Whether it worked shows in the deadline.
                let _ = held.extend(wish.ttl).await;
                self.stay(op, wish, &held).await;
                held
            }
            (_, held) => held,
        };
        let (until_us, now) = (held.deadline_us(), now_us());
        self.journal.event(now, What::Deadline { op, until_us });
        self.journal.event(now, What::Ended { op });
        match wish.end {
            End::Drop => drop(held),
            // What the nodes say to it changes nothing: it has ended.
            _ => drop(held.release().await),
        }
    }

    /// What a resource shows in both its copies; `None` if the fence is too old already.
    async fn read(&mut self, op: u64, name: &str, fence: u64) -> [Option<u64>; 2] {
        let fenced = match self.store.read_fenced(name, fence).await {
            Ok(seen) => Some(seen),
            Err(trouble) => self.note_trouble(op, &trouble),
        };
        [fenced, self.store.read(name).await.ok()]
    }

    async fn write(&mut self, op: u64, name: &str, fence: u64, seen: [Option<u64>; 2]) {
        let entry = |saw: u64| Entry {
            op,
            fence,
            saw,
            // No two writes are alike, also not those of one call.
            wrote: op * 8 + u64::from(name.as_bytes()[0] % 8),
            sent_us: now_us(),
        };
        if let Some(saw) = seen[0]
            && let Err(trouble) = self.store.write_fenced(name, entry(saw)).await
        {
            self.note_trouble(op, &trouble);
        }
        if let Some(saw) = seen[1] {
            let _ = self.store.write(name, entry(saw)).await;
        }
    }

    fn note_trouble(&self, op: u64, trouble: &Trouble) -> Option<u64> {
        match trouble {
            Trouble::Refused => self.journal.note(now_us(), &Note::Late { op }),
            // The resources are always there: if not, the run is worth nothing.
            Trouble::Broken(error) => panic!("a resource failed: {error}"),
        }
        None
    }
}

/// What is guarded by a hold: one list for each name, or for its slot.
fn resources(wish: &Wish, held: &Held) -> Vec<String> {
    let names = wish.names.iter();
    match held.slot() {
        Some(slot) => names.map(|name| format!("{name}-{slot}")).collect(),
        None => names.map(|&name| name.to_owned()).collect(),
    }
}

pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
