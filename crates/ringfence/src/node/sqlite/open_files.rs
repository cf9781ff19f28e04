//! Counts the lock files that this process has open, so that a forked child does not open one.
//!
//! SQLite remembers in the process which files it has open and locked. A forked child inherits that
//! memory, but not the locks: the locks of the operating system belong to the parent. A connection
//! that the child opened then would believe itself locked, and the parent could delete the log under
//! it when it closes the file.

use std::sync::atomic::{AtomicU64, Ordering};

use super::SqliteError;

/// The process that has files open, in the upper half, and how many.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// One open file. Dropped when it is closed.
pub(super) struct OpenFile;

impl OpenFile {
    /// Counts one more file.
    ///
    /// # Errors
    /// In a forked child, if its parent had a file open at the fork.
    pub(super) fn count() -> Result<Self, SqliteError> {
        let ours = u64::from(std::process::id()) << 32;
        let counted = |open: u64| match open & u64::from(u32::MAX) {
            0 => Some(ours | 1),
            _ if open & !u64::from(u32::MAX) == ours => Some(open + 1),
            _ => None,
        };
        let open = OPEN.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted);
        open.map(|_| Self).map_err(|_| SqliteError::ForkedProcess)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::SeqCst);
    }
}
