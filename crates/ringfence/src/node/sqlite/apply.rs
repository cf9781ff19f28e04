//! One request in a transaction: the ledger over the rows of its names.

use std::mem;

use crate::ledger::{self, Entry, Rules};
use crate::message::{Op, Reply, Request};
use crate::name::Name;
use crate::node::CallError;
use crate::node::embedded::not_joined;

use super::error::{damaged, refused};
use super::queue_cache::QueueBefore;
use super::store::Transaction;
use super::{broken_rows, latch_rows, queue_rows, reader_rows, rows};

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
            reader_rows::store(connection, name, &before.readers, &after.readers)
        })?;
        if let (before, Some(after)) = (&before.broken, &after.broken)
            && before.as_ref() != Some(after)
        {
            self.write(|connection, _| {
                broken_rows::sweep(connection, now)?;
                broken_rows::store(connection, name, after)
            })?;
        }
        if let (before, Some(after)) = (before.latch.as_ref(), after.latch.as_ref())
            && before != Some(after)
        {
            self.write(|connection, _| latch_rows::store(connection, name, before, after, now))?;
            self.latches_written += 1;
        }
        self.long_queue |= after.queue.entries.len() > QUEUE_LONG;
        self.tickets_written +=
            self.write(|connection, _| queue.store(connection, name, &after.queue, now))?;
        debug_assert_eq!(
            queue_rows::load(&self.store.connection, name, now)
                .ok()
                .and_then(Result::ok),
            Some(after.queue.clone()),
            "the file has the queue of `{name}`"
        );
        let queues = &self.store.queues;
        self.write(|connection, _| queues.borrow_mut().keep(connection, name, after.queue))
    }

    fn load(&self, request: &Request, rules: &Rules) -> Result<Vec<Entry>, CallError> {
        let path = self.store.file.path();
        let now = self.present.moment();
        let mut entries = Vec::with_capacity(request.claims.len());
        for claim in request.claims.iter() {
            let connection = &self.store.connection;
            let makes_no_sense =
                |_| damaged(path, &format!("the row of the lock `{}`", claim.name));
            let mut entry = rows::load(connection, &claim.name)
                .map_err(|error| refused(path, &error))?
                .map_err(makes_no_sense)?;
            let queue = (self.store.queues.borrow_mut()).take(connection, &claim.name, now);
            entry.queue = queue
                .map_err(|error| refused(path, &error))?
                .map_err(makes_no_sense)?;
            if request.op.is_of_latch() || claim.name.part_word() == Some("latch") {
                entry.latch = latch_rows::load(connection, &claim.name)
                    .map_err(|error| refused(path, &error))?
                    .map_err(makes_no_sense)?;
            }
            if request.op.reads_breaks() {
                entry.broken = broken_rows::load(connection, &claim.name)
                    .map_err(|error| refused(path, &error))?
                    .map_err(makes_no_sense)?;
            }
            if entry.has_marker() {
                entry.readers = reader_rows::load(connection, &claim.name, now)
                    .map_err(|error| refused(path, &error))?
                    .map_err(makes_no_sense)?;
            }
            // The two clocks may disagree: a fence above the lowest one that counts is valid at any
            // age.
            if let Some(record) = &mut entry.record
                && !record.is_lapsed(rules, now)
            {
                record.until_ms = record.until_ms.max(now.lease_ms);
            }
            entry.expire(now);
            entries.push(entry);
        }
        Ok(entries)
    }
}
