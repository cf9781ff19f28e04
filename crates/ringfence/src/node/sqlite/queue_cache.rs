//! Long wait queues in memory: to read thousands of tickets for each of their owners' attempts
//! would make the file slower the more callers wait.
//!
//! A queue is kept from one request to the next as long as no other connection writes to the file.
//! Only the tickets that a request names, and those that its grant has passed, can change, so only
//! these are compared and written.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::ledger::{Moment, QueueEntry, WaitQueue};
use crate::message::{Act, Op, Ticket};
use crate::name::Name;

use super::child_rows;

/// A shorter wait queue is read anew each time.
const KEPT_MIN: usize = 4;
/// The most queues that are kept.
const QUEUES_MAX: usize = 16;

/// The queues that were read or written last.
#[derive(Debug, Default)]
pub(super) struct QueueCache {
    /// SQLite's number for the state of the file. It changes with every commit of another
    /// connection.
    version: i64,
    queues: HashMap<Name, WaitQueue>,
}

impl QueueCache {
    /// Forgets everything if another connection has written since the last transaction. To be called
    /// at the beginning of each transaction.
    pub(super) fn check(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.queues.is_empty() {
            return Ok(());
        }
        if data_version(connection)? != self.version {
            self.clear();
        }
        Ok(())
    }

    /// Forgets everything: a transaction was rolled back, or its fate is unknown.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
    }

    /// Keeps a queue as it is in the file after this transaction.
    pub(super) fn keep(
        &mut self,
        connection: &Connection,
        name: &Name,
        queue: WaitQueue,
    ) -> rusqlite::Result<()> {
        if queue.entries.len() < KEPT_MIN {
            return Ok(());
        }
        if self.queues.is_empty() {
            self.version = data_version(connection)?;
        }
        if self.queues.len() >= QUEUES_MAX {
            self.queues.clear();
        }
        self.queues.insert(name.clone(), queue);
        Ok(())
    }

    /// The queue of `name` at `now`.
    pub(super) fn take(
        &mut self,
        connection: &Connection,
        name: &Name,
        now: Moment,
    ) -> rusqlite::Result<WaitQueue> {
        match self.queues.remove(name) {
            Some(queue) => Ok(queue),
            None => child_rows::load(connection, name, now),
        }
    }
}

/// What has to be known of a queue to write what a request changes in it.
pub(super) enum QueueBefore {
    Whole(WaitQueue),
    /// Of a long queue: its length, and the tickets that the request names.
    Named(usize, Vec<(Ticket, Option<QueueEntry>)>),
}

impl QueueBefore {
    pub(super) fn of(queue: &WaitQueue, op: &Op) -> Self {
        if queue.entries.len() < KEPT_MIN {
            return Self::Whole(queue.clone());
        }
        let Some(tickets) = named(op) else {
            return Self::Whole(queue.clone());
        };
        let named = tickets.iter().map(|ticket| {
            let found = find(queue, ticket).cloned();
            (ticket.clone(), found)
        });
        Self::Named(queue.entries.len(), named.collect())
    }

    /// Writes the differences in `after`. Returns the number of rows written.
    pub(super) fn store(
        &self,
        connection: &Connection,
        name: &Name,
        after: &WaitQueue,
        now: Moment,
    ) -> rusqlite::Result<u32> {
        let (mut length, named) = match self {
            Self::Whole(before) => {
                return child_rows::store(connection, name, &before.entries, &after.entries);
            }
            Self::Named(length, named) => (*length, named),
        };
        let changes = named.iter().map(|(ticket, old)| (old, find(after, ticket)));
        for change in changes.clone() {
            match change {
                (None, Some(_)) => length += 1,
                (Some(_), None) => length = length.saturating_sub(1),
                _ => {}
            }
        }
        if length != after.entries.len() {
            // Others were passed, and have left the queue.
            let before: WaitQueue = child_rows::load(connection, name, now)?;
            return child_rows::store(connection, name, &before.entries, &after.entries);
        }
        let mut written = 0;
        for (old, new) in changes {
            written += child_rows::store_one(connection, name, old.as_ref(), new)?;
        }
        Ok(written)
    }
}

/// The tickets that can enter, change or leave by themselves in a request; `None` if it may change
/// the whole queue.
fn named(op: &Op) -> Option<&[Ticket]> {
    let facts = op.facts();
    // A latch that opens empties its queue.
    (facts.act != Act::Latch).then_some(facts.tickets)
}

fn find<'q>(queue: &'q WaitQueue, ticket: &Ticket) -> Option<&'q QueueEntry> {
    let order =
        |entry: &QueueEntry| (entry.since_us, &*entry.id).cmp(&(ticket.since_us, &ticket.id));
    let at = queue.entries.binary_search_by(order).ok()?;
    queue.entries.get(at)
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    let mut version = connection.prepare_cached("PRAGMA data_version")?;
    version.query_row([], |row| row.get(0))
}
