//! How the processes that use a file take turns: only one at a time can write, and SQLite has no
//! queue for the others. Each tries again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

/// How often SQLite itself tries before it reports that the database is busy.
const BUSY_MAX: i32 = 150;

/// Whether a connection waits while the file is locked.
#[derive(Debug)]
pub(super) struct Patience(Arc<AtomicBool>);

impl Patience {
    /// Makes `connection` wait, until [`set`](Self::set) changes that.
    pub(super) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let waits = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&waits);
        connection.busy_handler(Some(move |tries| {
            asked.load(Ordering::Relaxed) && wait(tries)
        }))?;
        Ok(Self(waits))
    }

    pub(super) fn set(&self, waits: bool) {
        self.0.store(waits, Ordering::Relaxed);
    }
}

/// Waits before the next try, after `tries` that failed. Returns whether to try again.
fn wait(tries: i32) -> bool {
    match pause(tries) {
        Duration::ZERO => thread::yield_now(),
        pause => thread::sleep(pause),
    }
    tries < BUSY_MAX
}

/// The pause after `tries` that failed. (SQLite's own handler backs off up to 100 ms, which is too
/// long for a lock.)
///
/// A transaction is short, so the first pause is. If the file is still locked, other processes use
/// it all the time: then this one waits for a while, and tries often only after that. So a process
/// that has waited long has the best chance, and those that come later leave it the processor.
fn pause(tries: i32) -> Duration {
    match tries {
        0 => Duration::from_micros(50),
        1..4 => Duration::from_micros(500),
        4..100 if tries % 2 == 0 => Duration::ZERO,
        4..100 => Duration::from_micros(20),
        _ => Duration::from_millis(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_connection_waits_for_another_one_only_if_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.db");
        let blocker = Connection::open(&path).unwrap();
        blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut connection = Connection::open(&path).unwrap();
        let patience = Patience::of(&mut connection).unwrap();
        // The shortest of several: the machine may be busy.
        let shortest = || {
            let took = (0..5).map(|_| {
                let begun = Clock::System.now();
                connection.execute_batch("BEGIN IMMEDIATE").unwrap_err();
                Clock::System.now().since(begun)
            });
            took.min().unwrap()
        };
        let all_pauses: Duration = (0..BUSY_MAX).map(pause).sum();
        assert!(shortest() >= all_pauses);
        patience.set(false);
        assert!(shortest() < all_pauses / 2);
        patience.set(true);
        assert!(shortest() >= all_pauses);
    }
}
