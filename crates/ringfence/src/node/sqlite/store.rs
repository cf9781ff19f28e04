//! One transaction on the lock file, at one point in time. The ledger over its rows is `apply.rs`.

use std::cell::{Cell, RefCell};
use std::mem;

use rusqlite::Connection;

use crate::group::Group;
use crate::ledger::{QueueEntry, Rules, Seat};
use crate::message::{Op, Reply, Request, Standing, Wake};
use crate::node::embedded::{Store, list_portion, not_new};
use crate::node::{CallError, Facts, InitMode, NodeClock, Tier, Trouble, TroubleKind};

use super::error::{is_busy, refused, trouble};
use super::file::LockFile;
use super::node_row::{Boot, NodeRow};
use super::queue_cache::QueueCache;
use super::schema::without_waiting;
use super::sync::{Durability, is_copy_due};
use super::{child_rows, rows};

/// Lapsed rows are swept after so many entries were written.
const SWEEP_EVERY: u32 = 16;

/// The file of one node and its connection.
pub(super) struct SqliteStore {
    pub(super) connection: Connection,
    pub(super) file: LockFile,
    clock: NodeClock,
    /// Whether no other process uses what the connection leads to.
    is_alone: bool,
    /// Whether the next transaction is synced.
    pub(super) durability: Cell<Durability>,
    /// Whether the log is to be copied now.
    pub(super) copy_due: Cell<bool>,
    pub(super) queues: RefCell<QueueCache>,
    /// How many entries were written since lapsed rows were last swept.
    unswept: Cell<u32>,
}

/// Why a transaction did not begin.
pub(super) enum BeginError {
    /// Another process has locked the file: a retry may succeed.
    Busy(CallError),
    Failed(CallError),
}

/// One transaction. Dropped without [`commit`](Self::commit), it has done nothing.
pub(super) struct Transaction<'s> {
    pub(super) store: &'s SqliteStore,
    /// The time of this transaction: all of it happens at one point in time.
    pub(super) present: NodeRow,
    /// The node's own row has to be written, even if no entry was.
    pub(super) changed: bool,
    pub(super) entries_written: u32,
    pub(super) tickets_written: u32,
    pub(super) latches_written: u32,
    /// A wait queue that was read is long.
    pub(super) long_queue: bool,
    /// The wakes to send after the commit.
    pub(super) wakes: Vec<Wake>,
    /// A write failed: this transaction will not be committed, so its answers do not count.
    failed: Option<CallError>,
}

impl SqliteStore {
    pub(super) fn new(connection: Connection, file: LockFile, clock: NodeClock) -> Self {
        Self {
            copy_due: Cell::default(),
            queues: RefCell::default(),
            // Many processes write one lock only, and each sweeps.
            unswept: Cell::new(SWEEP_EVERY),
            connection,
            is_alone: file.is_copy(),
            file,
            clock,
            // As `schema.rs` leaves it.
            durability: Cell::new(Durability::Synced),
        }
    }

    /// The store of a connection that has the file alone, if it can begin a transaction at all.
    pub(super) fn alone(connection: Connection, file: LockFile, clock: NodeClock) -> Self {
        Self {
            is_alone: true,
            ..Self::new(connection, file, clock)
        }
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }

    pub(super) fn clock(&self) -> &NodeClock {
        &self.clock
    }

    /// Begins an unsynced transaction, if that takes no waiting.
    pub(super) fn begin_at_once(&self) -> Result<Transaction<'_>, BeginError> {
        without_waiting(|| self.begin_once(Durability::Unsynced))
    }

    pub(super) fn begin_once(&self, durability: Durability) -> Result<Transaction<'_>, BeginError> {
        self.set_durability(durability)?;
        self.run("BEGIN IMMEDIATE")
            .map_err(|error| self.begin_error(&error))?;
        self.present().map_err(|error| {
            self.roll_back();
            BeginError::Failed(error)
        })
    }

    pub(super) fn execute(&self, sql: &str) -> Result<(), BeginError> {
        let done = self.connection.execute_batch(sql);
        done.map_err(|error| self.begin_error(&error))
    }

    /// Runs a statement that is compiled once. Not for a PRAGMA: some take effect only when they
    /// are compiled.
    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute([]).map(drop)
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
        let checked = self.queues.borrow_mut().check(&self.connection);
        checked.map_err(|error| refused(path, &error))?;
        let stored = NodeRow::load(path, &self.connection)?;
        let (present, boot) = stored.advance(path, &self.clock)?;
        let booted = boot != Boot::Same;
        if booted {
            self.end_boot(&stored, &present, boot)?;
        }
        Ok(Transaction {
            store: self,
            present,
            changed: booted,
            entries_written: 0,
            tickets_written: 0,
            latches_written: 0,
            long_queue: false,
            wakes: Vec::new(),
            failed: None,
        })
    }

    /// How many lapsed entries a transaction sweeps that has written so many: on average twice as
    /// many, so that the file does not grow.
    fn sweeps_max(&self, entries_written: u32) -> u32 {
        let unswept = self.unswept.get().saturating_add(entries_written);
        let is_due = entries_written > 0 && unswept >= SWEEP_EVERY;
        self.unswept.set(if is_due { 0 } else { unswept });
        if is_due { unswept.saturating_mul(2) } else { 0 }
    }

    /// Ignores errors: a transaction that cannot be rolled back is not committed either.
    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            self.queues.borrow_mut().clear();
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

impl Transaction<'_> {
    /// The write that failed, if any: then this transaction will not be committed.
    pub(super) fn failure(&self) -> Option<&CallError> {
        self.failed.as_ref()
    }

    /// Whether it has read a wait queue that is long.
    pub(super) fn has_long_queue(&self) -> bool {
        self.long_queue
    }

    /// Commits and returns the wakes to send. After an error it is unknown whether the commit took
    /// effect.
    pub(super) fn commit(mut self) -> Result<Vec<Wake>, CallError> {
        let written = self.entries_written + self.tickets_written + self.latches_written;
        if self.changed || written > 0 {
            self.finish()?;
        }
        if let Err(error) = self.store.run("COMMIT") {
            self.store.queues.borrow_mut().clear();
            let path = self.store.file.path();
            return Err(CallError::Unknown(trouble(path, &error)));
        }
        Ok(mem::take(&mut self.wakes))
    }

    /// The end of every writing transaction: stores the node's clock, so that it never goes back,
    /// and sweeps lapsed rows, so that the file does not grow with every name that was ever locked.
    fn finish(&mut self) -> Result<(), CallError> {
        self.count_pages();
        let now = self.present.moment();
        let entries_max = self.store.sweeps_max(self.entries_written);
        let tickets_max = self.tickets_written.saturating_mul(2);
        let latches_max = self.latches_written.saturating_mul(2);
        self.write(|connection, present| {
            if let Some(group) = &present.group
                && entries_max > 0
            {
                let ground = now.ground(&Rules::of_group(group));
                rows::sweep(connection, now, ground, entries_max)?;
                child_rows::sweep::<Seat>(connection, now, entries_max)?;
            }
            if tickets_max > 0 {
                child_rows::sweep::<QueueEntry>(connection, now, tickets_max)?;
            }
            if latches_max > 0 {
                child_rows::sweep_latches(connection, now, latches_max)?;
            }
            present.store(connection)
        })
    }

    /// Counts about as many pages as the transaction writes. Tickets of one name share pages.
    fn count_pages(&mut self) {
        let rows = self.entries_written + self.latches_written + self.tickets_written / 16;
        let (before, after) = (
            self.present.log_pages,
            self.present.log_pages + u64::from(rows) + 2,
        );
        self.present.log_pages = after;
        if is_copy_due(before, after) {
            self.store.copy_due.set(true);
        }
    }

    pub(super) fn write<T>(
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
    pub(super) fn stop_if_rolled_back(&mut self, error: CallError) -> CallError {
        if self.store.connection.is_autocommit() {
            self.store.queues.borrow_mut().clear();
            self.failed = Some(error.clone());
        }
        error
    }

    /// The first `most` names behind `cursor`; with `breaks` those with broken holds.
    fn names_behind(
        &mut self,
        cursor: &str,
        most: u32,
        breaks: bool,
    ) -> Result<Vec<String>, CallError> {
        let found = rows::names(&self.store.connection, cursor, most, breaks);
        let found = found.map_err(|error| refused(self.store.file.path(), &error));
        found.map_err(|error| self.stop_if_rolled_back(error))
    }

    pub(super) fn standing(&self) -> Standing {
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
