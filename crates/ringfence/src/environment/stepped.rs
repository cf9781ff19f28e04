//! A clock for tests, which moves only when a test steps it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::time::Timestamp;

/// A clock for tests. It does not move until it is stepped.
#[derive(Debug, Clone, Default)]
pub struct SteppedClock(Arc<Stepped>);

#[derive(Debug, Default)]
struct Stepped {
    nanos: AtomicU64,
    stepped: Notify,
    /// The wake-up time of each sleeper, with a number that makes it unique.
    sleepers: Mutex<BTreeSet<(Timestamp, u64)>>,
    slept: AtomicU64,
}

/// A registered sleeper. Dropping it removes the registration.
struct Sleeper<'a>(&'a Stepped, (Timestamp, u64));

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.0.with_sleepers(|sleepers| sleepers.remove(&self.1));
    }
}

impl Stepped {
    fn with_sleepers<T>(&self, look: impl FnOnce(&mut BTreeSet<(Timestamp, u64)>) -> T) -> T {
        look(&mut self.sleepers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SteppedClock {
    /// A clock whose present moment is `start` after its beginning.
    pub fn starting_at(start: Duration) -> Self {
        let clock = Self::default();
        clock.step(start);
        clock
    }

    /// A number that no other clock in use has. Clones have the same number.
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.nanos.load(Ordering::SeqCst))
    }

    /// Moves the clock forward and wakes the sleepers whose time has come.
    pub fn step(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanos.fetch_add(nanos, Ordering::SeqCst);
        self.0.stepped.notify_waiters();
    }

    /// The earliest wake-up time of a sleeper: stepping the clock to an earlier time wakes no task.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.0.with_sleepers(|sleepers| Some(sleepers.first()?.0))
    }

    pub(super) async fn reached(&self, until: Timestamp) {
        if self.now() >= until {
            return;
        }
        let sleeper = (until, self.0.slept.fetch_add(1, Ordering::Relaxed));
        self.0.with_sleepers(|sleepers| sleepers.insert(sleeper));
        let _sleeper = Sleeper(&self.0, sleeper);
        loop {
            let stepped = self.0.stepped.notified();
            tokio::pin!(stepped);
            stepped.as_mut().enable();
            if self.now() >= until {
                return;
            }
            stepped.await;
        }
    }
}
