//! The node's thread: all waiting jobs go into one transaction, so that they share one write to the
//! disk.

use std::iter;
use std::sync::mpsc::Receiver;

use crate::message::Wake;
use crate::node::CallError;
use crate::node::backlog::Backlog;
use crate::node::embedded::{Answered, Job};

use super::pending::Pending;
use super::store::{BeginError, SqliteStore, Transaction};
use super::sync::Durability;
use super::wake_socket::WakeSockets;

/// The most calls in one transaction: enough to share a write, few enough to let other processes
/// in.
const BATCH_MAX: usize = 256;

/// How many attempts to begin a transaction may fail before all its jobs fail. Each attempt takes
/// as long as SQLite itself waits. Expired calls are answered earlier.
const BEGIN_MAX: usize = 200;

/// Carries out jobs until all clones of the node are dropped.
pub(super) fn run(
    store: SqliteStore,
    wake_sockets: &WakeSockets,
    inbox: &Receiver<Job>,
    pending: &Pending,
) {
    let mut backlog = Backlog::default();
    while let Some(batch) = next_batch(&mut backlog, inbox) {
        let count = batch.len();
        let (answered, wakes) = carry_out(&store, batch);
        pending.end(count);
        // Wakes first: waiters are idle until they arrive.
        wake_sockets.send(wakes);
        for answered in answered {
            answered.deliver();
        }
        store.copy_long_log();
    }
}

/// The jobs of the next transaction: all that wait, or if there are too many, releases first.
/// `None` once all clones of the node are dropped.
fn next_batch(backlog: &mut Backlog<Job>, inbox: &Receiver<Job>) -> Option<Vec<Job>> {
    if backlog.len == 0 {
        let first = inbox.recv().ok()?;
        let urgency = first.urgency();
        backlog.push(first, urgency);
    }
    for job in inbox.try_iter() {
        let urgency = job.urgency();
        backlog.push(job, urgency);
    }
    Some(iter::from_fn(|| backlog.pop()).take(BATCH_MAX).collect())
}

fn carry_out(store: &SqliteStore, mut batch: Vec<Job>) -> (Vec<Answered>, Vec<Wake>) {
    let mut answered = Vec::with_capacity(batch.len());
    let mut wakes = Vec::new();
    for tries in 1.. {
        let expired = batch.extract_if(.., |job| job.has_expired(store.clock()));
        answered.extend(expired.map(Job::expire));
        if batch.is_empty() {
            break;
        }
        match store.begin(Durability::of(&batch)) {
            Ok(transaction) => {
                answered.extend(commit(transaction, batch, &mut wakes));
                break;
            }
            Err(BeginError::Busy(_)) if tries < BEGIN_MAX => {}
            Err(BeginError::Busy(error) | BeginError::Failed(error)) => {
                answered.extend(batch.into_iter().map(|job| job.fail(error.clone())));
                break;
            }
        }
    }
    (answered, wakes)
}

/// Carries out `batch` in one transaction. A request reads everything before it writes, so a failed
/// read has changed nothing. A failed write fails the whole transaction.
fn commit(
    mut transaction: Transaction<'_>,
    batch: Vec<Job>,
    wakes: &mut Vec<Wake>,
) -> Vec<Answered> {
    let mut answered = Vec::with_capacity(batch.len());
    for job in batch {
        answered.push(match transaction.failure() {
            Some(error) => job.fail(error.clone()),
            None => job.run(&mut transaction),
        });
    }
    let outcome = match transaction.failure() {
        Some(error) => Err(error.clone()),
        None => transaction.commit(),
    };
    match outcome {
        Ok(to_be_told) => {
            wakes.extend(to_be_told);
            answered
        }
        Err(error) => but_all(answered, &error),
    }
}

fn but_all(answered: Vec<Answered>, error: &CallError) -> Vec<Answered> {
    answered
        .into_iter()
        .map(|answer| answer.or_error(error))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::message::{Op, PlainAcquire};
    use crate::node::backlog::tests::call_of;
    use crate::time::Timestamp;

    fn job(who: usize, op: Op) -> Job {
        Job::Call(call_of(who, op, Timestamp::ZERO))
    }

    fn is_release(job: &Job) -> bool {
        matches!(job, Job::Call(call) if matches!(call.request.op, Op::PlainRelease))
    }

    #[test]
    fn releases_go_into_the_first_transaction() {
        let (to, inbox) = channel();
        let acquire = || Op::PlainAcquire(PlainAcquire { ttl_ms: 1 });
        for who in 0..2 * BATCH_MAX {
            to.send(job(who, acquire())).unwrap();
        }
        to.send(job(5_000, Op::PlainRelease)).unwrap();
        // A release whose acquire still waits: it must not go before that.
        to.send(job(2 * BATCH_MAX - 1, Op::PlainRelease)).unwrap();
        let mut backlog = Backlog::default();
        let first = next_batch(&mut backlog, &inbox).unwrap();
        assert_eq!(first.len(), BATCH_MAX);
        assert!(is_release(&first[0]));
        assert_eq!(first.iter().filter(|job| is_release(job)).count(), 1);
        drop(to);
        let second = next_batch(&mut backlog, &inbox).unwrap();
        let third = next_batch(&mut backlog, &inbox).unwrap();
        assert_eq!((second.len(), third.len()), (BATCH_MAX, 2));
        assert!(!is_release(&third[0]) && is_release(&third[1]));
        assert!(next_batch(&mut backlog, &inbox).is_none());
    }
}
