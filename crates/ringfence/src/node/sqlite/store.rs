//! One transaction on the lock file: the ledger over rows, at one point in time.

use std::cell::Cell;
use std::mem;

use rusqlite::Connection;

use crate::group::Group;
use crate::ledger::{self, Entry, Rules};
use crate::message::{Op, Reply, Request, Standing, Wake};
use crate::node::embedded::{Store, list_portion, not_joined, not_new};
use crate::node::{CallError, Facts, InitMode, NodeClock, Tier, Trouble, TroubleKind};

use super::error::{damaged, is_busy, refused, trouble};
use super::file::LockFile;
use super::log::LogLength;
use super::node_row::NodeRow;
use super::sync::Durability;
use super::{broken_rows, latch_rows, list_rows, queue_rows, reader_rows, rows};

/// The file of one node and its connection.
pub(super) struct SqliteStore {
    pub(super) connection: Connection,
    pub(super) file: LockFile,
    clock: NodeClock,
    /// Whether the next transaction is synced.
    pub(super) durability: Cell<Durability>,
    pub(super) log: LogLength,
}

/// Why a transaction did not begin.
pub(super) enum BeginError {
    /// Another process has locked the file: a retry may succeed.
    Busy(CallError),
    Failed(CallError),
}

/// One transaction. Dropped without [`commit`](Self::commit), it has done nothing.
pub(super) struct Transaction<'s> {
    store: &'s SqliteStore,
    /// The time of this transaction: all of it happens at one point in time.
    pub(super) present: NodeRow,
    /// The node's own row has to be written, even if no entry was.
    pub(super) changed: bool,
    entries_written: u32,
    tickets_written: u32,
    latches_written: u32,
    /// The wakes to send after the commit.
    wakes: Vec<Wake>,
    /// A write failed: this transaction will not be committed, so its answers do not count.
    failed: Option<CallError>,
}

impl SqliteStore {
    pub(super) fn new(
        mut connection: Connection,
        file: LockFile,
        clock: NodeClock,
    ) -> rusqlite::Result<Self> {
        Ok(Self {
            log: LogLength::of(&mut connection)?,
            connection,
            file,
            clock,
            // As `schema.rs` leaves it.
            durability: Cell::new(Durability::Synced),
        })
    }

    pub(super) fn clock(&self) -> &NodeClock {
        &self.clock
    }

    pub(super) fn begin_once(&self, durability: Durability) -> Result<Transaction<'_>, BeginError> {
        self.set_durability(durability)?;
        self.execute("BEGIN IMMEDIATE")?;
        self.present().map_err(|error| {
            self.roll_back();
            BeginError::Failed(error)
        })
    }

    pub(super) fn execute(&self, sql: &str) -> Result<(), BeginError> {
        let done = self.connection.execute_batch(sql);
        done.map_err(|error| self.begin_error(&error))
    }

    pub(super) fn begin_error(&self, error: &rusqlite::Error) -> BeginError {
        let call_error = refused(self.file.path(), error);
        match is_busy(error) {
            true => BeginError::Busy(call_error),
            false => BeginError::Failed(call_error),
        }
    }

    fn present(&self) -> Result<Transaction<'_>, CallError> {
        let path = self.file.path();
        if !self.file.is_in_place() {
            let detail = format!("{}: removed or replaced while in use", path.display());
            return Err(CallError::Refused(Trouble::new(
                TroubleKind::Garbage,
                detail,
            )));
        }
        let stored = NodeRow::load(path, &self.connection)?;
        let (present, booted) = stored.advance(path, &self.clock)?;
        if booted {
            let group = present.group.unwrap_or(Group::new(1));
            let retention_ms = Rules::of_group(&group).retention_ms;
            let until_ms = present.moment().lease_ms.saturating_add(retention_ms);
            rows::free_all(&self.connection, until_ms)
                .and_then(|()| queue_rows::clear(&self.connection))
                .and_then(|()| reader_rows::clear(&self.connection))
                .and_then(|()| latch_rows::carry_on(&self.connection, present.moment()))
                .map_err(|error| refused(path, &error))?;
        }
        Ok(Transaction {
            store: self,
            present,
            changed: booted,
            entries_written: 0,
            tickets_written: 0,
            latches_written: 0,
            wakes: Vec::new(),
            failed: None,
        })
    }

    /// Ignores errors: a transaction that cannot be rolled back is not committed either.
    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

impl Transaction<'_> {
    /// The write that failed, if any: then this transaction will not be committed.
    pub(super) fn failure(&self) -> Option<&CallError> {
        self.failed.as_ref()
    }

    /// Commits and returns the wakes to send. After an error it is unknown whether the commit took
    /// effect.
    pub(super) fn commit(mut self) -> Result<Vec<Wake>, CallError> {
        let written = self.entries_written + self.tickets_written + self.latches_written;
        if self.changed || written > 0 {
            self.finish()?;
        }
        if let Err(error) = self.store.connection.execute_batch("COMMIT") {
            let path = self.store.file.path();
            return Err(CallError::Unknown(trouble(path, &error)));
        }
        Ok(mem::take(&mut self.wakes))
    }

    /// The end of every writing transaction: stores the node's clock, so that it never goes back,
    /// and sweeps lapsed rows, so that the file does not grow with every name that was ever locked.
    fn finish(&mut self) -> Result<(), CallError> {
        let now = self.present.moment();
        let entries_max = self.entries_written.saturating_mul(2);
        let tickets_max = self.tickets_written.saturating_mul(2);
        let latches_max = self.latches_written.saturating_mul(2);
        self.write(|connection, present| {
            if let Some(group) = &present.group
                && entries_max > 0
            {
                let ground = now.ground(&Rules::of_group(group));
                rows::sweep(connection, now, ground, entries_max)?;
                reader_rows::sweep(connection, now, entries_max)?;
            }
            if tickets_max > 0 {
                queue_rows::sweep(connection, now, tickets_max)?;
            }
            if latches_max > 0 {
                latch_rows::sweep(connection, now, latches_max)?;
            }
            present.update(connection)
        })
    }

    fn write<T>(
        &mut self,
        write: impl FnOnce(&Connection, &NodeRow) -> rusqlite::Result<T>,
    ) -> Result<T, CallError> {
        write(&self.store.connection, &self.present).map_err(|error| {
            let error = refused(self.store.file.path(), &error);
            self.failed = Some(error.clone());
            error
        })
    }

    /// After some errors SQLite rolls back by itself. A later write would then be outside any
    /// transaction, so nothing more may be written.
    fn stop_if_rolled_back(&mut self, error: CallError) -> CallError {
        if self.store.connection.is_autocommit() {
            self.failed = Some(error.clone());
        }
        error
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

    /// The first `most` names behind `cursor`; with `breaks` those with broken holds.
    fn names_behind(
        &mut self,
        cursor: &str,
        most: u32,
        breaks: bool,
    ) -> Result<Vec<String>, CallError> {
        let found = list_rows::names(&self.store.connection, cursor, most, breaks);
        let found = found.map_err(|error| refused(self.store.file.path(), &error));
        found.map_err(|error| self.stop_if_rolled_back(error))
    }

    fn standing(&self) -> Standing {
        Standing {
            incarnation: 1,
            born_us: 0,
            clock_us: self.present.moment().clock_us,
            server: Standing::server_of(&self.run_id()),
            replicated: false,
            epoch: None,
        }
    }

    fn run_id(&self) -> String {
        let (device, inode) = self.store.file.identity();
        format!("sqlite-{device}-{inode}")
    }

    fn facts(&self) -> Facts {
        let now = self.store.clock.now();
        Facts {
            standing: Some(self.standing()),
            clock_us: self.present.moment().clock_us,
            sent: now,
            received: now,
            group: self.present.group,
            run_id: self.run_id(),
            version: format!("SQLite {}", rusqlite::version()),
            tier: Tier::Durable,
        }
    }
}

impl Transaction<'_> {
    fn apply(&mut self, request: &Request) -> Result<Reply, CallError> {
        let group = self.present.group.ok_or_else(not_joined)?;
        let rules = Rules::of_group(&group);
        let before = self.load(request, &rules);
        let before = before.map_err(|error| self.stop_if_rolled_back(error))?;
        let mut after = before.clone();
        let outcome = ledger::apply(&rules, self.present.moment(), &mut after, request);
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
}

impl Store for Transaction<'_> {
    fn carry_out(&mut self, request: &Request) -> Result<Reply, CallError> {
        match &request.op {
            Op::List(list) => list_portion(
                self,
                request,
                list,
                |transaction, cursor, most| transaction.names_behind(cursor, most, list.breaks),
                Self::apply,
            ),
            _ => self.apply(request),
        }
    }

    fn probe(&mut self) -> Result<Facts, CallError> {
        Ok(self.facts())
    }

    fn join(&mut self, group: Group) -> Result<Facts, CallError> {
        refuse_quorum(&group)?;
        match &self.present.group {
            Some(ours) if *ours != group => return Err(CallError::other_group(ours, &group)),
            Some(_) => {}
            None => {
                self.present.group = Some(group);
                self.changed = true;
            }
        }
        Ok(self.facts())
    }

    fn init(&mut self, group: Group, mode: InitMode) -> Result<Facts, CallError> {
        // A file is always a group of one node: a regroup changes nothing.
        let force = mode == InitMode::Force || mode.regroups();
        refuse_quorum(&group)?;
        let path = self.store.file.path();
        let is_empty = rows::is_empty(&self.store.connection);
        if !force && !is_empty.map_err(|error| refused(path, &error))? {
            return Err(not_new("it holds locks or remembers some"));
        }
        if !force && self.present.group.is_some() {
            return Err(not_new("it votes already"));
        }
        if mode.writes() {
            self.present.group = Some(group);
            self.changed = true;
        }
        Ok(self.facts())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.store.roll_back();
    }
}

/// A file is a whole group: it cannot be one of several nodes, whose clocks must agree.
fn refuse_quorum(group: &Group) -> Result<(), CallError> {
    if group.nodes == 1 {
        return Ok(());
    }
    Err(CallError::other_group(&Group { nodes: 1, ..*group }, group))
}
