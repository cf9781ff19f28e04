//! The node's thread: all waiting jobs go into one transaction, so that they share one write to the
//! disk.

use std::sync::mpsc::Receiver;
use std::{iter, mem};

use crate::message::Wake;
use crate::node::CallError;
use crate::node::backlog::Backlog;
use crate::node::embedded::{Answered, Job};

use super::direct::Desk;
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

/// A message to the node's thread.
pub(super) enum WorkerMessage {
    Job(Job),
    /// There is something to do at the desk.
    Look,
}

/// Carries out jobs until all clones of the node are dropped.
pub(super) fn run(
    desk: &Desk,
    wake_sockets: &WakeSockets,
    inbox: &Receiver<WorkerMessage>,
    pending: &Pending,
) {
    let mut backlog = Backlog::default();
    loop {
        // Without a lock: this may take long.
        let message = match backlog.len {
            0 => match inbox.recv() {
                Ok(message) => Some(message),
                Err(_) => break,
            },
            _ => None,
        };
        let mut work = desk.lock();
        let handed_over = mem::take(&mut work.first);
        let (batch, withdrawn) = next_batch(&mut backlog, handed_over, message, inbox);
        let count = batch.len();
        let (answered, wakes, crowded) = carry_out(&work.store, batch);
        work.crowded = crowded || count > 1;
        work.copy_due |= work.store.log.is_due();
        drop(work);
        pending.end(count + withdrawn);
        // Wakes first: waiters are idle until they arrive.
        wake_sockets.send(wakes);
        for answered in answered {
            answered.deliver();
        }
        copy_log(desk);
    }
}

fn copy_log(desk: &Desk) {
    let mut work = desk.lock();
    if mem::take(&mut work.copy_due) {
        work.store.copy_long_log();
    }
}

/// The jobs of the next transaction: all that wait, or if there are too many, releases first. Jobs
/// that were handed over were sent before those in the inbox, of which `message` is the first. Also
/// returns how many jobs were withdrawn because their callers have given up.
fn next_batch(
    backlog: &mut Backlog<Job>,
    handed_over: Vec<Job>,
    message: Option<WorkerMessage>,
    inbox: &Receiver<WorkerMessage>,
) -> (Vec<Job>, usize) {
    let sent = message.into_iter().chain(inbox.try_iter());
    for message in handed_over.into_iter().map(WorkerMessage::Job).chain(sent) {
        if let WorkerMessage::Job(job) = message {
            let urgency = job.urgency();
            backlog.push(job, urgency);
        }
    }
    let waiting = backlog.len;
    let jobs = iter::from_fn(|| backlog.pop()).filter_map(Job::if_wanted);
    let batch: Vec<Job> = jobs.take(BATCH_MAX).collect();
    let withdrawn = waiting - backlog.len - batch.len();
    (batch, withdrawn)
}

/// Carries out `batch`. The last value is whether it took long.
fn carry_out(store: &SqliteStore, mut batch: Vec<Job>) -> (Vec<Answered>, Vec<Wake>, bool) {
    let mut answered = Vec::with_capacity(batch.len());
    let mut wakes = Vec::new();
    let mut long = false;
    for tries in 1.. {
        let expired = batch.extract_if(.., |job| job.has_expired(store.clock()));
        answered.extend(expired.map(Job::expire));
        if batch.is_empty() {
            break;
        }
        match store.begin(Durability::of(&batch)) {
            Ok(transaction) => {
                let committed = commit(transaction, batch, &mut wakes);
                answered.extend(committed.0);
                long = committed.1;
                break;
            }
            Err(BeginError::Busy(_)) if tries < BEGIN_MAX => {}
            Err(BeginError::Busy(error) | BeginError::Failed(error)) => {
                answered.extend(batch.into_iter().map(|job| job.fail(error.clone())));
                break;
            }
        }
    }
    (answered, wakes, long)
}

/// Carries out `batch` in one transaction. A request reads everything before it writes, so a failed
/// read has changed nothing. A failed write fails the whole transaction. The second value is
/// whether it took long.
pub(super) fn commit(
    mut transaction: Transaction<'_>,
    batch: Vec<Job>,
    wakes: &mut Vec<Wake>,
) -> (Vec<Answered>, bool) {
    let mut answered = Vec::with_capacity(batch.len());
    for job in batch {
        answered.push(match transaction.failure() {
            Some(error) => job.fail(error.clone()),
            None => job.run(&mut transaction),
        });
    }
    let long = transaction.has_long_queue();
    let outcome = match transaction.failure() {
        Some(error) => Err(error.clone()),
        None => transaction.commit(),
    };
    let answered = match outcome {
        Ok(to_be_told) => {
            wakes.extend(to_be_told);
            answered
        }
        Err(error) => but_all(answered, &error),
    };
    (answered, long)
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
        let send = |job| to.send(WorkerMessage::Job(job)).unwrap();
        let acquire = || Op::PlainAcquire(PlainAcquire { ttl_ms: 1 });
        for who in 0..2 * BATCH_MAX {
            send(job(who, acquire()));
        }
        send(job(5_000, Op::PlainRelease));
        // A release whose acquire still waits: it must not go before that.
        send(job(2 * BATCH_MAX - 1, Op::PlainRelease));
        let mut backlog = Backlog::default();
        let mut next = || next_batch(&mut backlog, Vec::new(), None, &inbox).0;
        let first = next();
        assert_eq!(first.len(), BATCH_MAX);
        assert!(is_release(&first[0]));
        assert_eq!(first.iter().filter(|job| is_release(job)).count(), 1);
        let (second, third) = (next(), next());
        assert_eq!((second.len(), third.len()), (BATCH_MAX, 2));
        assert!(!is_release(&third[0]) && is_release(&third[1]));
        assert!(next().is_empty());
    }

    #[test]
    fn a_job_that_was_handed_over_goes_before_those_that_were_sent_after_it() {
        let (to, inbox) = channel();
        // The acquire was begun on its caller's thread. Before it was handed over, another thread
        // sent its undo.
        let acquire = job(1, Op::PlainAcquire(PlainAcquire { ttl_ms: 1 }));
        let message = Some(WorkerMessage::Job(job(1, Op::PlainRelease)));
        to.send(WorkerMessage::Look).unwrap();
        to.send(WorkerMessage::Job(job(1, Op::PlainRelease)))
            .unwrap();
        let (batch, _) = next_batch(&mut Backlog::default(), vec![acquire], message, &inbox);
        let releases: Vec<_> = batch.iter().map(is_release).collect();
        assert_eq!(releases, [false, true, true]);
    }
}
