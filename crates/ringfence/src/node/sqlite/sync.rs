//! Which transactions are synced to the disk, and what follows a failed sync.
//!
//! After a boot every holder is dead, and wait queues and leases of the old boot are void. The
//! operating system keeps them when a process dies. So most transactions need no sync.
//!
//! After a failed sync the system may report success for the next one, although what it could not
//! write is lost, and it may report the failure to one process only. Therefore every sync has a
//! number. The node's row says which sync was begun, in a transaction before it, and which was the
//! last that succeeded. A process that finds a sync unfinished, its own or another's, copies the
//! whole log into the database before it syncs anything itself.
//!
//! SQLite could copy the log by itself, but it would not report that a sync of the copy failed.

use std::fs;
use std::thread;
use std::time::Duration;

use crate::message::{Ballot, Op};
use crate::node::embedded::Job;
use crate::node::{CallError, Trouble, TroubleKind};

use super::file::beside;
use super::store::{BeginError, SqliteStore, Transaction};

/// How often we look whether another process's sync has succeeded, before it counts as failed.
/// After that a sync that is only slow costs us a needless copy of the log.
const LOOKS_MAX: usize = 30;
/// The pause between two such looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a transaction is begun, if other processes begin syncs of their own meanwhile.
const BEGINS_MAX: usize = 3 * LOOKS_MAX;

/// Whether a transaction is on disk before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// A power cut may lose it, and all transactions behind it.
    Unsynced,
    /// It may accept ballots up to this one, so it is synced if that is above the promise on disk.
    Promised(Ballot),
    /// It is on disk, and everything before it.
    Synced,
}

impl Durability {
    /// What the transaction of `batch` needs.
    pub(super) fn of(batch: &[Job]) -> Self {
        let needs = batch.iter().map(|job| match job {
            Job::Call(call) => match (&call.request.op, call.request.op.facts().ballot) {
                // Arrivals at a latch outlive a boot.
                (Op::Arrive(_), _) => Durability::Synced,
                (_, Some(ballot)) => Durability::Promised(ballot),
                (_, None) => Durability::Unsynced,
            },
            // The first ballot that is accepted under the values of a group syncs them too.
            Job::Probe(_) | Job::Join(..) | Job::Init(..) => Durability::Unsynced,
        });
        needs.max().unwrap_or(Durability::Unsynced)
    }
}

impl SqliteStore {
    /// Begins a write transaction, so that no later statement fails because the file is busy. Waits
    /// a little for other processes.
    pub(super) fn begin(&self, durability: Durability) -> Result<Transaction<'_>, BeginError> {
        let mut unfinished = Unfinished::default();
        for _ in 0..BEGINS_MAX {
            let transaction = self.begin_once(Durability::Unsynced)?;
            if transaction.is_enough_for(durability) {
                return Ok(transaction);
            }
            if let Some(number) = transaction.present.unfinished_sync()
                && !unfinished.is_made_good(number)
            {
                drop(transaction);
                self.settle(number, &mut unfinished)?;
                continue;
            }
            let number = transaction.begin_sync()?;
            if let Some(transaction) = self.begin_synced(number)? {
                return Ok(transaction);
            }
        }
        Err(self.busy("other processes sync it all the time"))
    }

    /// Begins the transaction that the sync of this number is for. `None` if another process has
    /// begun a sync since: it may have failed.
    fn begin_synced(&self, number: u64) -> Result<Option<Transaction<'_>>, BeginError> {
        let mut transaction = self.begin_once(Durability::Synced)?;
        if transaction.present.unfinished_sync() != Some(number) {
            return Ok(None);
        }
        transaction.end_sync();
        transaction.present.promise();
        Ok(Some(transaction))
    }

    /// Waits for the sync of this number. If it does not succeed, copies the log into the database.
    fn settle(&self, number: u64, unfinished: &mut Unfinished) -> Result<(), BeginError> {
        if unfinished.may_be_slow(number) {
            thread::sleep(PAUSE);
            return Ok(());
        }
        self.empty_log()?;
        unfinished.made_good = Some(number);
        Ok(())
    }

    pub(super) fn set_durability(&self, durability: Durability) -> Result<(), BeginError> {
        if self.durability.get() != durability {
            self.execute(match durability {
                Durability::Synced => "PRAGMA synchronous = FULL",
                Durability::Unsynced | Durability::Promised(_) => "PRAGMA synchronous = NORMAL",
            })?;
            self.durability.set(durability);
        }
        Ok(())
    }

    pub(super) fn busy(&self, why: &str) -> BeginError {
        let detail = format!("{}: {why}", self.file.path().display());
        let trouble = Trouble::new(TroubleKind::Other, detail);
        BeginError::Busy(CallError::Refused(trouble))
    }
}

impl Transaction<'_> {
    /// Whether this unsynced transaction is enough for jobs that need `durability`.
    fn is_enough_for(&self, durability: Durability) -> bool {
        match durability {
            Durability::Unsynced => true,
            Durability::Promised(ballot) => self.present.has_promised(ballot),
            Durability::Synced => false,
        }
    }

    /// The same, and nothing else is synced when it is committed. SQLite syncs the first
    /// transaction of a log that is begun anew, which may be the case after a sync.
    pub(super) fn needs_no_sync(&self, durability: Durability) -> bool {
        self.is_enough_for(durability) && !self.changed && self.present.unfinished_sync().is_none()
    }

    /// Commits the number of a sync that is about to begin.
    pub(super) fn begin_sync(mut self) -> Result<u64, BeginError> {
        let number = self.present.begin_sync();
        self.changed = true;
        match self.commit() {
            Ok(_) => Ok(number),
            // No call is part of this transaction.
            Err(error) => Err(BeginError::Failed(CallError::Refused(
                error.trouble().clone(),
            ))),
        }
    }

    /// Writes that the sync has succeeded. If this is part of what is synced, it is not committed
    /// otherwise.
    pub(super) fn end_sync(&mut self) {
        self.present.end_sync();
        self.changed = true;
    }
}

/// What we know of syncs that have not succeeded.
#[derive(Debug, Default)]
struct Unfinished {
    number: Option<u64>,
    looks: usize,
    /// After this sync was begun, the log was copied into the database.
    made_good: Option<u64>,
}

impl Unfinished {
    fn is_made_good(&self, number: u64) -> bool {
        self.made_good == Some(number)
    }

    /// Whether the sync of this number may still succeed, so that it is worth waiting for.
    fn may_be_slow(&mut self, number: u64) -> bool {
        if self.number != Some(number) {
            (self.number, self.looks) = (Some(number), 0);
        }
        self.looks += 1;
        self.looks <= LOOKS_MAX
    }
}

/// The log is copied when it has this many pages, which takes several syncs: so many that few calls
/// wait for it, and so few that the log stays small.
const PAGES_MAX: u64 = 4_000;
/// If a copy was not complete, because another process read the log, the next one is made when the
/// log has grown by this many pages.
const PAGES_AGAIN: u64 = 1_000;
/// A process that opens the file empties a log that is longer than this. The first process that
/// opens it reads the whole log, and `ringfence run` opens it each time.
const BYTES_AT_OPEN: u64 = 400 << 10;

/// Whether the log is copied when it has grown from about `before` pages to `after`.
pub(super) fn is_copy_due(before: u64, after: u64) -> bool {
    let again = |pages: u64| {
        pages
            .checked_sub(PAGES_MAX)
            .map(|beyond| beyond / PAGES_AGAIN)
    };
    again(after) > again(before)
}

impl SqliteStore {
    /// Copies the log into the database. Other processes go on meanwhile. Ignores errors: every
    /// sync of the copy that may have failed is noted as unfinished, and the log stays as it is.
    pub(super) fn copy_long_log(&self) {
        self.copy_due.set(false);
        let _ = self.copy_log("PRAGMA wal_checkpoint(PASSIVE)");
    }

    /// Empties a long log, if no other process uses it.
    pub(super) fn empty_long_log(&self) {
        let log = fs::symlink_metadata(beside(self.file.real(), "-wal"));
        if log.is_ok_and(|log| log.len() > BYTES_AT_OPEN) {
            let _ = self.copy_log("PRAGMA wal_checkpoint(TRUNCATE)");
        }
    }

    fn copy_log(&self, sql: &str) -> Result<(), BeginError> {
        let transaction = self.begin_once(Durability::Unsynced)?;
        if transaction.present.unfinished_sync().is_some() {
            // Another process copies it now, or the next process that syncs will do it.
            return Ok(());
        }
        let number = transaction.begin_sync()?;
        let complete = self.checkpoint(sql)?;
        let mut transaction = self.begin_once(Durability::Unsynced)?;
        if transaction.present.unfinished_sync() == Some(number) {
            transaction.end_sync();
            if complete {
                // The next transaction begins the log anew.
                transaction.present.log_pages = 0;
            }
            // If it is lost, the next process copies the log once more.
            let _ = transaction.commit();
        }
        Ok(())
    }

    /// Copies the whole log into the database and empties it: what is in the log may not be on the
    /// disk.
    pub(super) fn empty_log(&self) -> Result<(), BeginError> {
        self.set_durability(Durability::Synced)?;
        match self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)")? {
            true => Ok(()),
            false => Err(self.busy(
                "a sync to the disk failed, and other processes keep the log from being written \
                 again",
            )),
        }
    }

    /// Runs a checkpoint. Returns whether it has copied the whole log.
    fn checkpoint(&self, sql: &str) -> Result<bool, BeginError> {
        let complete = self.connection.query_row(sql, [], |row| {
            let (busy, pages, copied): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(!busy && pages == copied)
        });
        complete.map_err(|error| self.begin_error(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::node::NodeClock;
    use crate::node::sqlite::file::LockFile;
    use crate::node::sqlite::schema;

    fn open(path: &Path) -> SqliteStore {
        open_at(path, NodeClock::system())
    }

    fn open_at(path: &Path, clock: NodeClock) -> SqliteStore {
        let file = LockFile::prepare(path).unwrap();
        let connection = schema::open(&file, &clock).unwrap();
        SqliteStore::new(connection, file, clock)
    }

    fn begin_sync(store: &SqliteStore) -> u64 {
        let transaction = store.begin_once(Durability::Unsynced);
        let number = transaction.and_then(Transaction::begin_sync);
        number.ok().expect("a sync")
    }

    #[test]
    fn renewals_of_an_old_ballot_need_no_sync() {
        let folder = tempfile::tempdir().unwrap();
        let time = SteppedClock::starting_at(Duration::from_secs(1_000));
        let start_us = 1_700_000_000_000_000;
        let clock = NodeClock::following(Clock::Stepped(time.clone()), start_us);
        let store = open_at(&folder.path().join("locks.db"), clock);
        let syncs = |ballot| {
            let begun = store.begin(Durability::Promised(Ballot::new(ballot)));
            let begun = begun.ok().expect("a transaction");
            begun.commit().unwrap();
            store.durability.get() == Durability::Synced
        };
        assert!(syncs(start_us), "nothing was promised");
        assert!(!syncs(start_us + 1));
        time.step(Duration::from_secs(3600));
        assert!(!syncs(start_us + 1), "an hour of renewals");
        assert!(syncs(start_us + 3_600_000_000));
        // Far above the ceiling, so it is refused whatever was promised.
        assert!(!syncs(start_us + 7_200_000_000));
    }

    #[test]
    fn a_sync_that_another_one_followed_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let (one, other) = (open(&path), open(&path));
        let (first, second) = (begin_sync(&one), begin_sync(&other));
        let begins = |store: &SqliteStore, number| {
            let begun = store.begin_synced(number).ok().expect("no error");
            begun.map(|transaction| transaction.commit().unwrap())
        };
        assert_eq!(begins(&one, first), None);
        assert_eq!(begins(&other, second), Some(Vec::new()));
        assert_eq!(begins(&other, second), None, "it has succeeded");
    }

    #[test]
    fn a_sync_counts_as_failed_after_a_while_and_every_one_is_made_good_by_itself() {
        let mut unfinished = Unfinished::default();
        for number in [7, 8] {
            let looks = (0..=LOOKS_MAX).filter(|_| unfinished.may_be_slow(number));
            assert_eq!(looks.count(), LOOKS_MAX);
        }
        unfinished.made_good = Some(8);
        assert!(unfinished.is_made_good(8));
        assert!(!unfinished.is_made_good(9), "it was begun after the copy");
    }

    #[test]
    fn a_long_log_is_copied_once_and_again_when_it_has_grown() {
        let grown = PAGES_MAX + PAGES_AGAIN;
        let lengths = [0, PAGES_MAX - 1, PAGES_MAX, PAGES_MAX + 1, grown, grown + 1];
        let due = lengths.windows(2).map(|pair| is_copy_due(pair[0], pair[1]));
        assert_eq!(due.collect::<Vec<_>>(), [false, true, false, true, false]);
    }

    #[test]
    fn a_log_that_all_processes_have_filled_is_copied_by_one_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let stores = [open(&path), open(&path)];
        let write = |store: &SqliteStore| {
            let mut transaction = store.begin_once(Durability::Unsynced).ok().unwrap();
            transaction.changed = true;
            let pages = transaction.present.log_pages;
            transaction.commit().unwrap();
            pages
        };
        let due = |store: &&SqliteStore| store.copy_due.get();
        let mut turns = stores.iter().cycle();
        while !stores.iter().any(|store| due(&store)) {
            let pages = write(turns.next().unwrap());
            assert!(pages < PAGES_MAX);
        }
        let in_file = || fs::read(&path).unwrap().len();
        let before = in_file();
        let store = stores.iter().find(due).unwrap();
        store.copy_long_log();
        assert!(!store.copy_due.get());
        assert!(in_file() > before, "the tables are in the file now");
        assert!(write(store) < 10, "and counted from the beginning");
    }
}
