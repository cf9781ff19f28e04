//! Many waiters on one name of an embedded file: how often the lock is handed over, and whether any
//! caller gets an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringfence::clock::Clock;
use ringfence::{Lock, Locks};

use crate::sheet::{Aim, Cell, Sheet};

const WAITERS: [usize; 3] = [100, 1_000, 5_000];

/// What the callers of one round got.
#[derive(Default)]
struct Counts {
    grants: AtomicU64,
    errors: AtomicU64,
    over: AtomicBool,
}

pub(crate) async fn measure(rounds: usize, ms: u64) -> Sheet {
    let columns = WAITERS.map(|waiters| waiters.to_string());
    let columns = columns.each_ref().map(String::as_str);
    let title = "Embedded: waiters on one name of one file";
    let mut sheet = Sheet::new("file-queue", title, &columns);
    sheet.grows = true;
    let mut results = Vec::new();
    for _ in 0..rounds {
        let mut round = Vec::new();
        for waiters in WAITERS {
            round.push(hand_over(waiters, Duration::from_millis(ms)).await);
        }
        results.push(round);
    }
    let row = |figure: fn(&(f64, f64)) -> f64| {
        let cell = |step: usize| Cell::of(results.iter().map(|round| figure(&round[step])));
        (0..WAITERS.len()).map(cell).collect::<Vec<_>>()
    };
    let (rates, errors) = (row(|result| result.0), row(|result| result.1));
    let most = |cells: &[Option<Cell>]| cells.last().and_then(|cell| Some(cell.as_ref()?.median));
    let (rate, error) = (most(&rates), most(&errors));
    sheet.row("grants per s", rates);
    sheet.row("errors", errors);
    sheet.judge("5,000 waiters, grants per s", rate, Aim::AtLeast(1_000.0));
    sheet.judge("5,000 waiters, errors", error, Aim::AtMost(0.0));
    sheet
}

/// The grants per second of so many callers that take one lock repeatedly, and how many errors they
/// got. The measurement begins when all of them wait.
async fn hand_over(waiters: usize, time: Duration) -> (f64, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let locks = Locks::connect(&url).await.expect("a client");
    let first = locks.mutex("bench").lock().await.expect("a free lock");
    let counts = Arc::<Counts>::default();
    let callers = (0..waiters).map(|_| {
        let lock = locks.mutex("bench");
        tokio::spawn(take_turns(lock, Arc::clone(&counts)))
    });
    let callers: Vec<_> = callers.collect();
    loop {
        let seen = locks.inspect("bench").await.expect("an inspection");
        if seen.waiting >= waiters as u64 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let begun = Clock::System.now();
    first.release().await.expect("a release");
    tokio::time::sleep(time).await;
    let grants = counts.grants.load(Ordering::Relaxed);
    let took = Clock::System.now().since(begun);
    counts.over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no panic");
    }
    let errors = counts.errors.load(Ordering::Relaxed);
    (grants as f64 / took.as_secs_f64(), errors as f64)
}

async fn take_turns(lock: Lock, counts: Arc<Counts>) {
    while !counts.over.load(Ordering::Relaxed) {
        let released = match lock.lock().await {
            Ok(guard) => {
                counts.grants.fetch_add(1, Ordering::Relaxed);
                guard.release().await.is_ok()
            }
            Err(_) => false,
        };
        if !released {
            counts.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}
