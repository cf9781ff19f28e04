//! What a client does with the product: takes locks, works under them, and gives them back, as a
//! caller would. Everything it does with a lock is written down in true time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::time::Timestamp;
use ringfence::{AcquireError, Guard, Leadership, Locks, PlainGuard, ReadGuard, SemaphoreGuard};

use crate::history::{Mode, What};

use super::plan::{End, Step, Want};
use super::port::Outbox;
use super::resource::Visit;

/// What all clients write down, with the nanosecond.
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

/// One client's life.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) client: u64,
    pub(super) locks: Locks,
    pub(super) clock: Clock,
    pub(super) outbox: Outbox,
    pub(super) witness: Witness,
    pub(super) affairs: Affairs,
}

/// What a client has under way: what the world must know to judge it, also if it is killed.
#[derive(Clone, Default)]
pub(super) struct Affairs(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    asking: BTreeSet<u64>,
    held: BTreeMap<u64, (Arc<Held>, u64)>,
    finished: bool,
}

/// Whatever is held.
pub(super) enum Held {
    Lock(Guard),
    Share(ReadGuard),
    Permit(SemaphoreGuard),
    Lead(Leadership),
    Plain(PlainGuard),
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
        let op = step.op;
        self.note(What::Invoked {
            op,
            client: self.client,
            mode: mode(&step.want),
            names: step.want.names(),
            waits: step.wait != Some(Duration::ZERO),
        });
        lock(&self.affairs.0).asking.insert(op);
        let acquired = match step.cancel {
            None => Some(self.acquire(step).await),
            Some(after) => tokio::select! {
                biased;
                acquired = self.acquire(step) => Some(acquired),
                () = self.sleep(after) => None,
            },
        };
        lock(&self.affairs.0).asking.remove(&op);
        let refused = |why: String| self.note(What::Refused { op, why });
        match acquired {
            None => refused("cancelled".to_owned()),
            Some(Err(error)) => refused(error.to_string()),
            Some(Ok(held)) => self.hold(step, held).await,
        }
    }

    async fn acquire(&self, step: &Step) -> Result<Held, AcquireError> {
        let label = format!("op{}", step.op);
        let tries = step.wait == Some(Duration::ZERO);
        // One body for kinds that are set up alike.
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
                let lock = locks.mutex(name).renew(step.renew);
                take!(lock, lock, try_lock).map(Held::Lock)
            }
            Want::Multi(names) => {
                let lock = locks.multi(names).renew(step.renew);
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
            Want::Plain(name) => {
                let lock = locks.plain_mutex(name).renew(step.renew);
                let mut lock = lock.ttl(step.ttl);
                if let Some(wait) = step.wait {
                    lock = lock.wait(wait);
                }
                match tries {
                    true => lock.try_lock().await.map(Held::Plain),
                    false => lock.lock().await.map(Held::Plain),
                }
            }
            Want::Lead(name) => {
                let mut election = locks.election(name).ttl(step.ttl).label(&label);
                if let Some(wait) = step.wait {
                    election = election.wait(wait);
                }
                election.campaign().await.map(Held::Lead)
            }
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
        let held = self.while_held(step, held).await;
        let held = match (&step.want, held) {
            (Want::Downgrade(_), Some(Held::Lock(guard))) => {
                self.note(What::Downgraded { op });
                match guard.downgrade().await {
                    Ok(guard) => self.while_held(step, Held::Share(guard)).await,
                    Err(_) => None,
                }
            }
            (_, held) => held,
        };
        self.note(What::Ended { op });
        if let (Some(held), End::Release) = (held, step.end) {
            held.release().await;
        }
    }

    /// Works as long as the lock is held, or longer. Gives it back to the caller, and not to the nodes.
    async fn while_held(&self, step: &Step, held: Held) -> Option<Held> {
        let held = Arc::new(held);
        let entry = (Arc::clone(&held), held.deadline().as_nanos());
        lock(&self.affairs.0).held.insert(step.op, entry);
        let work = self.work(step, &held);
        if step.heedless {
            work.await;
        } else {
            tokio::select! {
                biased;
                () = held.lost() => {}
                () = work => {}
            }
        }
        lock(&self.affairs.0).held.remove(&step.op);
        Arc::into_inner(held)
    }

    async fn work(&self, step: &Step, held: &Held) {
        let until = self.clock.now() + step.hold;
        if step.extend {
            self.clock
                .sleep_until(self.clock.now() + step.hold / 3)
                .await;
            held.extend(step.ttl).await;
        }
        for _ in 0..step.updates {
            if let Some(fence) = held.fence() {
                self.update(&step.want, fence, held.shares()).await;
            }
        }
        self.clock.sleep_until(until).await;
    }

    /// Reads the resource, and writes what follows from that; refused if somebody came in between.
    async fn update(&self, want: &Want, fence: u64, shares: bool) {
        for name in want.names() {
            if matches!(want, Want::Permit(..)) {
                return;
            }
            if shares {
                let _ = self.outbox.visit(&name, Visit::Look { fence }).await;
                continue;
            }
            let opened = self.outbox.visit(&name, Visit::Open { fence }).await;
            let Ok(Some(saw)) = opened else { return };
            let value = saw + 1;
            let write = Visit::Write { fence, saw, value };
            let _ = self.outbox.visit(&name, write).await;
        }
    }

    async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now() + span).await;
    }

    fn note(&self, what: What) {
        self.witness.note(self.outbox.now(), what);
    }

    fn true_us(&self, deadline: Timestamp) -> u64 {
        self.outbox.dial().when(deadline.as_nanos()) / 1_000
    }
}

impl Affairs {
    pub(super) fn finish(&self) {
        lock(&self.0).finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        lock(&self.0).finished
    }

    /// Writes down the deadlines that have moved; all of them if `all`, since the clock has changed.
    pub(super) fn observe(&self, outbox: &Outbox, witness: &Witness, all: bool) {
        for (op, (held, known)) in &mut lock(&self.0).held {
            let deadline = held.deadline().as_nanos();
            // What has passed on the client's clock has passed, whatever the clock did since.
            let ahead = deadline > outbox.dial().at(outbox.now());
            if deadline != *known || (all && ahead) {
                *known = deadline;
                let until_us = outbox.dial().when(deadline) / 1_000;
                witness.note(outbox.now(), What::Deadline { op: *op, until_us });
            }
        }
    }

    /// The client is gone at `now`: what it asked for nobody knows, and what it held it no longer counts on.
    pub(super) fn abandon(&self, now: u64, witness: &Witness) {
        let mut open = lock(&self.0);
        for op in std::mem::take(&mut open.asking) {
            witness.note(now, What::Unknown { op });
        }
        let held = std::mem::take(&mut open.held);
        drop(open);
        for op in held.keys() {
            witness.note(now, What::Ended { op: *op });
        }
    }
}

impl Held {
    fn deadline(&self) -> Timestamp {
        match self {
            Self::Lock(guard) => guard.deadline(),
            Self::Share(guard) => guard.deadline(),
            Self::Permit(guard) => guard.deadline(),
            Self::Lead(lead) => lead.deadline(),
            Self::Plain(guard) => guard.deadline(),
        }
    }

    fn fence(&self) -> Option<u64> {
        match self {
            Self::Lock(guard) => Some(guard.fence()),
            Self::Share(guard) => Some(guard.fence()),
            Self::Permit(guard) => Some(guard.fence()),
            Self::Lead(lead) => Some(lead.fence()),
            Self::Plain(_) => None,
        }
    }

    fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            _ => None,
        }
    }

    fn shares(&self) -> bool {
        matches!(self, Self::Share(_))
    }

    async fn lost(&self) {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Share(guard) => guard.lost().await,
            Self::Permit(guard) => guard.lost().await,
            Self::Lead(lead) => lead.lost().await,
            Self::Plain(guard) => guard.lost().await,
        };
    }

    /// Extends, and works on whatever comes of it: a failed extend never releases.
    async fn extend(&self, ttl: Duration) {
        let _ = match self {
            Self::Lock(guard) => guard.extend(ttl).await,
            Self::Share(guard) => guard.extend(ttl).await,
            Self::Permit(guard) => guard.extend(ttl).await,
            Self::Plain(guard) => guard.extend(ttl).await,
            Self::Lead(_) => return,
        };
    }

    /// Releases; what the nodes say to it is theirs.
    async fn release(self) {
        let _ = match self {
            Self::Lock(guard) => guard.release().await,
            Self::Share(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
            Self::Lead(lead) => lead.resign().await,
            Self::Plain(guard) => guard.release().await,
        };
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
