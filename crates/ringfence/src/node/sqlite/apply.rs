//! One request in a transaction: the ledger over the rows of its names.

use crate::ledger::{self, Entry, Rules};
use crate::message::{Reply, Request};
use crate::node::CallError;
use crate::node::embedded::not_joined;

use super::error::{damaged, refused};
use super::store::Transaction;
use super::{broken_rows, latch_rows, queue_rows, reader_rows, rows};

/// A wait queue with more tickets than this takes long to read.
const QUEUE_LONG: usize = 32;

impl Transaction<'_> {
    /// Carries out `request`: reads its entries, runs the ledger, and writes what has changed.
    pub(super) fn apply(&mut self, request: &Request) -> Result<Reply, CallError> {
        let group = self.present.group.ok_or_else(not_joined)?;
        let rules = Rules::of_group(&group);
        let before = self.load(request, &rules);
        let before = before.map_err(|error| self.stop_if_rolled_back(error))?;
        let mut after = before.clone();
        let outcome = ledger::apply(&rules, self.present.moment(), &mut after, request);
        let is_long = |entry: &Entry| entry.queue.entries.len() > QUEUE_LONG;
        self.long_queue |= after.iter().any(is_long);
        for ((claim, before), after) in request.claims.iter().zip(&before).zip(&after) {
            // Expired rows are left to the sweep, so that a refusal needs no write to the disk.
            if (&before.key, &before.record) != (&after.key, &after.record) {
                self.write(|connection, _| rows::store(connection, &claim.name, after))?;
                self.entries_written += 1;
            }
            let readers = (&before.readers[..], &after.readers[..]);
            self.write(|connection, _| {
                reader_rows::store(connection, &claim.name, readers.0, readers.1)
            })?;
            if let (before, Some(after)) = (&before.broken, &after.broken)
                && before.as_ref() != Some(after)
            {
                let now = self.present.moment();
                self.write(|connection, _| {
                    broken_rows::sweep(connection, now)?;
                    broken_rows::store(connection, &claim.name, after)
                })?;
            }
            let latches = (before.latch.as_ref(), after.latch.as_ref());
            if let (before, Some(after)) = latches
                && before != Some(after)
            {
                let now = self.present.moment();
                self.write(|connection, _| {
                    latch_rows::store(connection, &claim.name, before, after, now)
                })?;
                self.latches_written += 1;
            }
            let (before, after) = (&before.queue, &after.queue);
            self.tickets_written += self
                .write(|connection, _| queue_rows::store(connection, &claim.name, before, after))?;
        }
        self.wakes.extend(outcome.wakes);
        Ok(Reply {
            stamp: (!request.op.is_plain()).then_some(outcome.stamp),
            standing: self.standing(),
            answer: outcome.answer,
        })
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
            entry.queue = queue_rows::load(connection, &claim.name, now)
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
