//! One request in a transaction: the ledger over the rows of its names.

use std::mem;

use crate::ledger::{self, Entry, Rules};
use crate::message::{Op, Reply, Request};
use crate::name::Name;
use crate::node::CallError;
use crate::node::embedded::not_joined;

use super::error::unreadable;
use super::queue_cache::QueueBefore;
use super::store::Transaction;
use super::{child_rows, rows};

/// A wait queue with more tickets than this takes long to go through.
const QUEUE_LONG: usize = 32;

/// An entry before a request.
struct Before {
    queue: QueueBefore,
    /// Everything else.
    rest: Entry,
}

impl Before {
    fn of(entry: &mut Entry, op: &Op) -> Self {
        let queue = mem::take(&mut entry.queue);
        let rest = entry.clone();
        let before = QueueBefore::of(&queue, op);
        entry.queue = queue;
        Self {
            queue: before,
            rest,
        }
    }
}

impl Transaction<'_> {
    /// Carries out `request`: reads its entries, runs the ledger, and writes what has changed.
    pub(super) fn apply(&mut self, request: &Request) -> Result<Reply, CallError> {
        let group = self.present.group.ok_or_else(not_joined)?;
        let rules = Rules::of_group(&group);
        let entries = self.load(request, &rules);
        let mut entries = entries.map_err(|error| self.stop_if_rolled_back(error))?;
        let before: Vec<_> = entries
            .iter_mut()
            .map(|entry| Before::of(entry, &request.op))
            .collect();
        let outcome = ledger::apply(&rules, self.present.moment(), &mut entries, request);
        for ((claim, before), after) in request.claims.iter().zip(&before).zip(entries) {
            self.store(&claim.name, before, after)?;
        }
        self.wakes.extend(outcome.wakes);
        Ok(Reply {
            stamp: (!request.op.is_plain()).then_some(outcome.stamp),
            standing: self.standing(),
            answer: outcome.answer,
        })
    }

    /// Writes what has changed in the entry of `name`.
    fn store(&mut self, name: &Name, before: &Before, after: Entry) -> Result<(), CallError> {
        let now = self.present.moment();
        let (queue, before) = (&before.queue, &before.rest);
        // Expired rows are left to the sweep, so that a refusal needs no write to the disk.
        if (&before.key, &before.record) != (&after.key, &after.record) {
            self.write(|connection, _| rows::store(connection, name, &after))?;
            self.entries_written += 1;
        }
        self.write(|connection, _| {
            child_rows::store(connection, name, &before.readers, &after.readers)
        })?;
        if let (before, Some(after)) = (&before.broken, &after.broken)
            && before.as_ref() != Some(after)
        {
            self.write(|connection, _| child_rows::store_breaks(connection, name, after, now))?;
        }
        if let (before, Some(after)) = (before.latch.as_ref(), after.latch.as_ref())
            && before != Some(after)
        {
            self.write(|connection, _| {
                child_rows::store_latch(connection, name, before, after, now)
            })?;
            self.latches_written += 1;
        }
        self.long_queue |= after.queue.entries.len() > QUEUE_LONG;
        self.tickets_written +=
            self.write(|connection, _| queue.store(connection, name, &after.queue, now))?;
        let queues = &self.store.queues;
        self.write(|connection, _| queues.borrow_mut().keep(connection, name, after.queue))
    }

    fn load(&self, request: &Request, rules: &Rules) -> Result<Vec<Entry>, CallError> {
        let entries = request.claims.iter().map(|claim| {
            let what = || format!("the row of the lock `{}`", claim.name);
            self.load_one(&request.op, &claim.name, rules)
                .map_err(|error| unreadable(self.store.file.path(), &error, what))
        });
        entries.collect()
    }

    fn load_one(&self, op: &Op, name: &Name, rules: &Rules) -> rusqlite::Result<Entry> {
        let (connection, now) = (&self.store.connection, self.present.moment());
        let mut entry = rows::load(connection, name)?;
        let mut queues = self.store.queues.borrow_mut();
        entry.queue = queues.take(connection, name, now)?;
        if op.is_of_latch() || name.part_word() == Some("latch") {
            entry.latch = child_rows::load_latch(connection, name)?;
        }
        if op.reads_breaks() {
            entry.broken = child_rows::load_breaks(connection, name)?;
        }
        if entry.has_marker() {
            entry.readers = child_rows::load(connection, name, now)?;
        }
        // The two clocks may disagree: a fence above the lowest one that counts is valid at any
        // age.
        if let Some(record) = &mut entry.record
            && !record.is_lapsed(rules, now)
        {
            record.until_ms = record.until_ms.max(now.lease_ms);
        }
        entry.expire(now);
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::group::Group;
    use crate::ledger::WaitQueue;
    use crate::message::{
        Acquire, Answer, Ballot, Claim, Mode, Refresh, Release, ReleaseKind, Ticket,
    };
    use crate::node::NodeClock;
    use crate::node::embedded::Store;
    use crate::node::sqlite::file::LockFile;
    use crate::node::sqlite::schema;
    use crate::node::sqlite::store::SqliteStore;
    use crate::node::sqlite::sync::Durability;
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};

    const START_US: u64 = 1_700_000_000_000_000;

    /// A file with a lock that one caller holds and others wait for.
    struct Crowd {
        store: SqliteStore,
        time: SteppedClock,
        waiters: Vec<Ticket>,
        holder: (u8, Ballot),
        /// How often SQLite looked for an interrupt: for each row that it read or wrote, and for
        /// each statement.
        steps: Arc<AtomicU64>,
        _folder: tempfile::TempDir,
    }

    impl Crowd {
        fn new(waiters: u64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let time = SteppedClock::starting_at(Duration::from_secs(1_000));
            let clock = NodeClock::following(Clock::Stepped(time.clone()), START_US);
            let file = LockFile::prepare(&folder.path().join("locks.db")).unwrap();
            let mut connection = schema::open(&file, &clock).unwrap();
            let steps = Arc::<AtomicU64>::default();
            let counted = Arc::clone(&steps);
            let count = move || {
                counted.fetch_add(1, Ordering::Relaxed);
                false
            };
            connection.progress_handler(1, Some(count)).unwrap();
            let ticket = |number| Ticket {
                since_us: START_US + number,
                id: format!("c.{number:05}").into(),
                first: true,
                label: "waiter".into(),
            };
            let mut crowd = Self {
                store: SqliteStore::new(connection, file, clock),
                time,
                waiters: (0..waiters).map(ticket).collect(),
                holder: (0, Ballot::default()),
                steps,
                _folder: folder,
            };
            let mut transaction = crowd.store.begin(Durability::Synced).ok().unwrap();
            transaction.join(Group::new(1)).unwrap();
            transaction.commit().unwrap();
            crowd.take(1, None);
            let tickets = crowd.waiters.iter().cloned().collect();
            crowd.ask(2, Op::Refresh(Refresh { tickets }));
            crowd
        }

        fn ask(&self, who: u8, op: Op) -> Answer {
            let request = Request {
                claims: Arc::new([Claim {
                    name: Name::new("", "x").unwrap(),
                    mode: Mode::Exclusive,
                }]),
                token: Token::from_entropy([who; TOKEN_ENTROPY_BYTES]),
                op,
            };
            let mut transaction = self.store.begin(Durability::Unsynced).ok().unwrap();
            let reply = transaction.apply(&request).unwrap();
            transaction.commit().unwrap();
            reply.answer
        }

        fn acquire(&self, who: u8, ticket: Option<Ticket>) -> (Answer, Ballot) {
            let ballot = Ballot::new(START_US + self.time.now().as_micros() - 1_000_000_000);
            let op = Op::Acquire(Acquire {
                ballot,
                ttl_ms: 10_000,
                label: "holder".into(),
                ticket,
                not_after_us: None,
            });
            (self.ask(who, op), ballot)
        }

        fn take(&mut self, who: u8, ticket: Option<Ticket>) {
            self.time.step(Duration::from_micros(10));
            let (answer, ballot) = self.acquire(who, ticket);
            assert_eq!(answer, Answer::Granted);
            self.holder = (who, ballot);
        }

        /// The file has the same queue as the cache.
        fn check_queue(&self) {
            let transaction = self.store.begin(Durability::Unsynced).ok().unwrap();
            let (connection, now) = (&self.store.connection, transaction.present.moment());
            let name = Name::new("", "x").unwrap();
            let stored: WaitQueue = child_rows::load(connection, &name, now).unwrap();
            let mut queues = self.store.queues.borrow_mut();
            assert_eq!(queues.take(connection, &name, now).unwrap(), stored);
        }

        /// The holder releases, a new caller arrives behind all others, and the first waiter gets
        /// the lock. Returns the steps that this took.
        fn hand_over(&mut self) -> u64 {
            let before = self.steps.load(Ordering::Relaxed);
            let (who, ballot) = self.holder;
            let released = self.ask(
                who,
                Op::Release(Release {
                    ballot,
                    kind: ReleaseKind::Final,
                    fate_unknown: false,
                    ticket: None,
                    stays: false,
                    keep_ms: None,
                    delay_ms: 0,
                }),
            );
            assert_eq!(released, Answer::Released);
            let mut last = self.waiters.last().unwrap().clone();
            last.since_us += 1;
            self.waiters.push(last.clone());
            let (answer, _) = self.acquire(3, Some(last));
            assert!(matches!(answer, Answer::Behind { .. }), "{answer:?}");
            let first = self.waiters.remove(0);
            self.take(who ^ 1, Some(first));
            self.steps.load(Ordering::Relaxed) - before
        }
    }

    #[test]
    fn a_hand_over_reads_and_writes_as_much_whatever_the_number_of_waiters() {
        let steps = [40, 400, 2_000].map(|waiters| {
            let mut crowd = Crowd::new(waiters);
            let steps = (0..10).map(|_| crowd.hand_over()).sum::<u64>();
            crowd.check_queue();
            steps
        });
        assert!(steps[0] > 100, "they are counted: {steps:?}");
        let most = steps[0] + steps[0] / 10;
        assert!(steps.iter().all(|&count| count <= most), "{steps:?}");
    }
}
