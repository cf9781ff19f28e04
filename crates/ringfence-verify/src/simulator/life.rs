//! What a client does with the product: takes locks, works under them and releases them, like a
//! user's program. Records everything in true time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{AcquireError, Guard, Lock, Locks, Owner};
use ringfence_core::time::Timestamp;

use crate::history::{Mode, What};

use super::dial::Dial;
use super::held::{Held, LeftLock};
use super::keep::{Keep, ROUNDED};
use super::plan::{End, Step, Want};
use super::port::Outbox;
use super::resource::Visit;

/// The events of all clients, with their times in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Witness(Arc<Mutex<Vec<(u64, What)>>>);

impl Witness {
    pub(super) fn note(&self, at: u64, what: What) {
        lock(&self.0).push((at, what));
    }

    pub(super) fn take(&self) -> Vec<(u64, What)> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// The work of one client.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) client: u64,
    pub(super) locks: Locks,
    pub(super) clock: Clock,
    pub(super) outbox: Outbox,
    pub(super) witness: Witness,
    pub(super) open_work: OpenWork,
    /// The owner for which its owned locks are taken.
    pub(super) owner: Owner,
    /// By which fraction its clock may be wrong.
    pub(super) drift: f64,
    /// Whether the plan has no faults.
    pub(super) calm: bool,
}

/// The open calls and holds of a client. The world needs them to judge the client after it was
/// killed.
#[derive(Clone, Default)]
pub(super) struct OpenWork(Arc<Mutex<OpenCalls>>);

#[derive(Default)]
struct OpenCalls {
    asking: BTreeSet<u64>,
    held: BTreeMap<u64, Holding>,
    finished: bool,
}

/// One hold.
struct Holding {
    held: Arc<Held>,
    /// The deadline that was last recorded.
    deadline: u64,
    keep: Keep,
}

impl Life {
    /// Does `steps` one after the other.
    pub(super) async fn task(self, steps: Vec<Step>) {
        for step in steps {
            self.sleep(step.after).await;
            self.perform(&step).await;
        }
    }

    async fn perform(&self, step: &Step) {
        match &step.want {
            Want::Observe(name) => self.observe(step, name).await,
            Want::Arrive(latch, count, party) => {
                self.arrive(step, latch, *count, party).await;
            }
            Want::Await(latch, count) => self.wait_at(step, latch, *count).await,
            _ => self.take(step).await,
        }
    }

    async fn take(&self, step: &Step) {
        let op = step.op;
        self.note(What::Invoked {
            op,
            client: self.client,
            mode: mode(&step.want),
            names: step.want.names(),
            waits: step.wait != Some(Duration::ZERO),
            owner: step.owned.then_some(self.client),
        });
        if let Some(held) = self.ask(step, self.acquire(step)).await {
            self.hold(step, held).await;
        }
    }

    /// Makes a call, and drops it if the step says so. Records a refusal.
    pub(super) async fn ask<T, E: ToString>(
        &self,
        step: &Step,
        asked: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let op = step.op;
        lock(&self.open_work.0).asking.insert(op);
        let answer = match step.cancel {
            None => Some(asked.await),
            Some(after) => tokio::select! {
                biased;
                answer = asked => Some(answer),
                () = self.sleep(after) => None,
            },
        };
        lock(&self.open_work.0).asking.remove(&op);
        let why = match answer {
            Some(Ok(answer)) => return Some(answer),
            Some(Err(error)) => error.to_string(),
            None => "cancelled".to_owned(),
        };
        self.note(What::Refused { op, why });
        None
    }

    async fn acquire(&self, step: &Step) -> Result<Held, AcquireError> {
        let label = format!("op{}", step.op);
        let tries = step.wait == Some(Duration::ZERO);
        // One body for all kinds with the same settings.
        macro_rules! take {
            ($lock:expr, $wait:ident, $now:ident) => {{
                let mut lock = $lock.ttl(step.ttl).label(&label);
                if let Some(wait) = step.wait {
                    lock = lock.wait(wait);
                }
                match tries {
                    true => lock.$now().await,
                    false => lock.$wait().await,
                }
            }};
        }
        let locks = &self.locks;
        match &step.want {
            Want::Mutex(name) => {
                let lock = self.on_terms(step, locks.mutex(name));
                take!(lock, lock, try_lock).map(Held::Lock)
            }
            Want::Multi(names) => {
                let lock = self.on_terms(step, locks.multi(names));
                take!(lock, lock, try_lock).map(Held::Lock)
            }
            Want::Read(name) => {
                let lock = locks.rw_lock(name).renew(step.renew);
                take!(lock, read, try_read).map(Held::Share)
            }
            Want::Write(name) | Want::Downgrade(name) => {
                let lock = locks.rw_lock(name).renew(step.renew);
                take!(lock, write, try_write).map(Held::Lock)
            }
            Want::Permit(name, permits) => {
                let semaphore = locks.semaphore(name, *permits).renew(step.renew);
                take!(semaphore, acquire, try_acquire).map(Held::Permit)
            }
            Want::Plain(name) => self.acquire_plain(step, name).await,
            Want::Lead(name) => self.campaign(step, name, &label).await,
            Want::Observe(_) | Want::Arrive(..) | Want::Await(..) => {
                unreachable!("observers and latch calls hold nothing")
            }
        }
    }

    async fn acquire_plain(&self, step: &Step, name: &str) -> Result<Held, AcquireError> {
        let lock = self.locks.plain_mutex(name).renew(step.renew);
        let mut lock = lock.ttl(step.ttl);
        if let Some(wait) = step.wait {
            lock = lock.wait(wait);
        }
        match step.wait == Some(Duration::ZERO) {
            true => lock.try_lock().await.map(Held::Plain),
            false => lock.lock().await.map(Held::Plain),
        }
    }

    async fn campaign(&self, step: &Step, name: &str, label: &str) -> Result<Held, AcquireError> {
        let mut election = self.locks.election(name).ttl(step.ttl).label(label);
        election = election.lock_delay(step.lock_delay);
        if let Some(wait) = step.wait {
            election = election.wait(wait);
        }
        election.campaign().await.map(Held::Lead)
    }

    fn on_terms(&self, step: &Step, lock: Lock) -> Lock {
        let lock = lock.renew(step.renew).lock_delay(step.lock_delay);
        let lock = lock.hold_at_least(step.at_least);
        match step.owned {
            true => lock.owner(&self.owner),
            false => lock,
        }
    }

    async fn hold(&self, step: &Step, held: Held) {
        let op = step.op;
        let until_us = self.true_us(held.deadline());
        self.note(What::Granted {
            op,
            fence: held.fence(),
            slot: held.slot(),
            until_us,
        });
        let granted = self.clock.now();
        let keep = Keep::new(self, step, &held);
        let held = self.while_held(step, held, keep).await;
        let held = match (&step.want, held) {
            (Want::Downgrade(_), Some(Held::Lock(guard))) => {
                self.note(What::Downgraded { op });
                match guard.downgrade().await {
                    Ok(guard) => self.while_held(step, Held::Share(guard), keep).await,
                    Err(_) => None,
                }
            }
            (_, held) => held,
        };
        let held = match (step.end, held) {
            (End::Leave, Some(Held::Lock(guard))) => {
                return self.leave(step, guard, (keep, granted)).await;
            }
            (_, held) => held,
        };
        self.note(What::Ended { op });
        let Some(held) = held else { return };
        let from = self.outbox.now();
        if held.deadline() <= self.clock.now() {
            let kept = keep.after_loss(op, held.deadline(), &self.outbox.dial());
            self.note_if(kept);
        }
        if step.end == End::Release && held.release().await {
            let kept = keep.after_release(op, from, &self.outbox.dial());
            self.note_if(kept);
        }
    }

    /// Leaves the lock behind, and extends and releases it by its receipt. Both may come after its
    /// deadline, or within the lock delay.
    async fn leave(&self, step: &Step, guard: Guard, (keep, granted): (Keep, Timestamp)) {
        let names = step.want.names();
        let terms = self.on_terms(step, self.locks.multi(&names));
        let left = Arc::new(Held::Left(LeftLock::of(guard)));
        let holding = Holding {
            held: Arc::clone(&left),
            deadline: left.deadline().as_nanos(),
            keep,
        };
        lock(&self.open_work.0).held.insert(step.op, holding);
        self.sleep(step.after).await;
        let Held::Left(left) = &*left else { return };
        if let Some(ttl) = step.extend
            && let Ok(valid) = terms.extend_receipt(&left.receipt, ttl).await
        {
            left.extended_until(self.clock.now() + valid);
            // Its new deadline is recorded when the client has run.
            self.sleep(step.after).await;
        }
        // The world abandons a client that is killed meanwhile.
        let Some(holding) = lock(&self.open_work.0).held.remove(&step.op) else {
            return;
        };
        self.note(What::Ended { op: step.op });
        let deadline = holding.held.deadline();
        // The nodes decide what is late. Without faults, and if nothing has lengthened the lease,
        // the lease has ended there at this time, apart from the delay.
        let is_as_granted = self.calm && !step.renew && step.extend.is_none();
        let ended = granted + step.ttl.mul_f64(1.0 + 2.0 * self.drift) + ROUNDED;
        if is_as_granted && self.clock.now() > ended {
            self.note_if(keep.after_loss(step.op, deadline, &self.outbox.dial()));
        }
        let _ = terms.release_receipt(&left.receipt).await;
    }

    fn note_if(&self, what: Option<What>) {
        if let Some(what) = what {
            self.note(what);
        }
    }

    /// Works while the lock is held, or longer. Returns the guard without releasing it.
    async fn while_held(&self, step: &Step, held: Held, keep: Keep) -> Option<Held> {
        let held = Arc::new(held);
        let holding = Holding {
            held: Arc::clone(&held),
            deadline: held.deadline().as_nanos(),
            keep,
        };
        lock(&self.open_work.0).held.insert(step.op, holding);
        let work = self.work(step, &held);
        if step.ignores_loss {
            work.await;
        } else {
            tokio::select! {
                biased;
                () = held.lost() => {}
                () = work => {}
            }
        }
        lock(&self.open_work.0).held.remove(&step.op);
        Arc::into_inner(held)
    }

    async fn work(&self, step: &Step, held: &Held) {
        let until = self.clock.now() + step.hold;
        if let Some(ttl) = step.extend {
            self.clock
                .sleep_until(self.clock.now() + step.hold / 3)
                .await;
            held.extend(ttl).await;
        }
        for _ in 0..step.updates {
            if let Some(fence) = held.fence() {
                self.update(&step.want, fence, held.shares()).await;
            }
        }
        self.clock.sleep_until(until).await;
    }

    /// Reads the resource and writes the next value. The resource refuses it if a client with a
    /// higher fence was there in between.
    async fn update(&self, want: &Want, fence: u64, shares: bool) {
        for name in want.names() {
            if matches!(want, Want::Permit(..)) {
                return;
            }
            if shares {
                let _ = self.outbox.visit(&name, Visit::Read { fence }).await;
                continue;
            }
            let opened = self.outbox.visit(&name, Visit::Open { fence }).await;
            let Ok(Some(saw)) = opened else { return };
            let value = saw + 1;
            let write = Visit::Write { fence, saw, value };
            let _ = self.outbox.visit(&name, write).await;
        }
    }

    pub(super) async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now() + span).await;
    }

    pub(super) fn note(&self, what: What) {
        self.witness.note(self.outbox.now(), what);
    }

    fn true_us(&self, deadline: Timestamp) -> u64 {
        self.outbox.dial().when(deadline.as_nanos()) / 1_000
    }
}

impl OpenWork {
    pub(super) fn finish(&self) {
        lock(&self.0).finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        lock(&self.0).finished
    }

    /// Records the deadlines that have moved; with `all`, every deadline, because the clock has
    /// changed.
    pub(super) fn observe(&self, outbox: &Outbox, witness: &Witness, all: bool) {
        for (op, holding) in &mut lock(&self.0).held {
            let deadline = holding.held.deadline().as_nanos();
            // A deadline that has passed on the client's clock has passed, whatever the clock did
            // since.
            let ahead = deadline > outbox.dial().at(outbox.now());
            if deadline != holding.deadline || (all && ahead) {
                holding.deadline = deadline;
                let until_us = outbox.dial().when(deadline) / 1_000;
                witness.note(outbox.now(), What::Deadline { op: *op, until_us });
            }
        }
    }

    /// The client is killed at `now`: the results of its open calls are unknown, and its holds have
    /// ended.
    pub(super) fn abandon(&self, now: u64, dial: &Dial, witness: &Witness) {
        let mut underway = lock(&self.0);
        for op in std::mem::take(&mut underway.asking) {
            witness.note(now, What::Unknown { op });
        }
        let held = std::mem::take(&mut underway.held);
        drop(underway);
        for (op, holding) in held {
            witness.note(now, What::Ended { op });
            let deadline = Timestamp::from_nanos(holding.deadline);
            if let Some(kept) = holding.keep.after_loss(op, deadline, dial) {
                witness.note(now, kept);
            }
        }
    }
}

fn mode(want: &Want) -> Mode {
    match want {
        Want::Read(_) => Mode::Shared,
        Want::Permit(_, of) => Mode::Permit { of: *of },
        _ => Mode::Exclusive,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
