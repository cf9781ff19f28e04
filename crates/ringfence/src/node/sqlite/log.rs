//! The log of the database, and when it is copied into the database.
//!
//! SQLite could do this by itself, but it would not report that a sync of the copy failed.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;

use super::file::beside;
use super::store::{BeginError, SqliteStore};
use super::sync::Durability;

/// The log is copied when it has this many pages, which takes several syncs: so many that few calls
/// wait for it, and so few that the log stays small.
const PAGES_MAX: usize = 4_000;
/// If a copy was not complete, because another process read the log, the next one is made when the
/// log has grown by this many pages.
const PAGES_AGAIN: usize = 1_000;
/// A process that opens the file empties a log that is longer than this. The first process that
/// opens it reads the whole log, and `ringfence run` opens it each time.
const BYTES_AT_OPEN: u64 = 400 << 10;

/// How long the log was at the last commit, and when it was copied.
#[derive(Debug, Default)]
pub(super) struct LogLength {
    pages: Arc<AtomicUsize>,
    /// How long it was when it was last copied.
    copied: AtomicUsize,
}

impl LogLength {
    /// Follows the log of `connection`.
    pub(super) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let length = Self::default();
        let pages = Arc::clone(&length.pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count| {
            pages.store(usize::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(length)
    }

    /// Whether it is to be copied now. Then the next copy is due later.
    pub(super) fn is_due(&self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        let copied = self.copied.load(Ordering::Relaxed);
        // A log that is shorter than before was begun anew.
        let copied = if pages < copied { 0 } else { copied };
        let due = pages >= PAGES_MAX && (copied == 0 || pages >= copied + PAGES_AGAIN);
        let copied = if due { pages } else { copied };
        self.copied.store(copied, Ordering::Relaxed);
        due
    }
}

impl SqliteStore {
    /// Copies the log into the database. Other processes go on meanwhile. Ignores errors: every
    /// sync of the copy that may have failed is noted as unfinished, and the log stays as it is.
    pub(super) fn copy_long_log(&self) {
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
        self.checkpoint(sql)?;
        let mut transaction = self.begin_once(Durability::Unsynced)?;
        if transaction.present.unfinished_sync() == Some(number) {
            transaction.end_sync();
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

    /// Runs a checkpoint. Returns whether it is complete.
    fn checkpoint(&self, sql: &str) -> Result<bool, BeginError> {
        let busy = self
            .connection
            .query_row(sql, [], |row| row.get::<_, bool>(0));
        Ok(!busy.map_err(|error| self.begin_error(&error))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_copied_once_and_again_when_it_has_grown() {
        let log = LogLength::default();
        let due = |pages| {
            log.pages.store(pages, Ordering::Relaxed);
            log.is_due()
        };
        let grown = PAGES_MAX + PAGES_AGAIN;
        let lengths = [
            PAGES_MAX - 1,
            PAGES_MAX,
            PAGES_MAX + 1,
            grown,
            grown + 1,
            // Begun anew.
            1,
            PAGES_MAX,
        ];
        assert_eq!(
            lengths.map(due),
            [false, true, false, true, false, false, true]
        );
    }
}
