//! Which transactions are synced to the disk, and what follows a failed sync.
//!
//! After a boot every holder is dead, and wait queues and leases of the old boot are void. The
//! operating system keeps them when a process dies. So most transactions need no sync.

use crate::message::Op;
use crate::node::embedded::Job;
use crate::node::{CallError, Trouble, TroubleKind};

use super::store::{BeginError, SqliteStore};

/// Whether a transaction is on disk before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// A power cut may lose it, and all transactions behind it.
    Unsynced,
    /// It may accept ballots, so it is synced if the promise on disk has to be raised.
    Promised,
    /// It is on disk, and everything before it.
    Synced,
}

impl Durability {
    /// What the transaction of `batch` needs.
    pub(super) fn of(batch: &[Job]) -> Self {
        let needs = batch.iter().map(|job| match job {
            Job::Call(call) => match &call.request.op {
                // Arrivals at a latch outlive a boot.
                Op::Arrive(_) => Durability::Synced,
                // These write no ballot.
                Op::Inspect
                | Op::Attend(_)
                | Op::Refresh(_)
                | Op::RefreshSlots(_)
                | Op::PlainAcquire(_)
                | Op::PlainExtend(_)
                | Op::PlainRelease => Durability::Unsynced,
                Op::Acquire(_)
                | Op::AcquireSlot(_)
                | Op::Extend(_)
                | Op::Release(_)
                | Op::ReleaseSlot(_)
                | Op::Restore(_)
                | Op::Downgrade(_) => Durability::Promised,
            },
            // The first ballot that is accepted under the values of a group syncs them too.
            Job::Probe(_) | Job::Join(..) | Job::Init(..) => Durability::Unsynced,
        });
        needs.max().unwrap_or(Durability::Unsynced)
    }
}

impl SqliteStore {
    pub(super) fn set_durability(&self, durability: Durability) -> Result<(), BeginError> {
        if self.durability.get() != durability {
            self.execute(match durability {
                Durability::Synced => "PRAGMA synchronous = FULL",
                Durability::Unsynced | Durability::Promised => "PRAGMA synchronous = NORMAL",
            })?;
            self.durability.set(durability);
        }
        Ok(())
    }

    /// After a failed sync the system may report success for the next one, although what it could
    /// not write is lost. So everything in the log is written anew, into the database.
    pub(super) fn recover_from_failed_sync(&self) -> Result<(), BeginError> {
        if self.sync_failed.get() {
            self.set_durability(Durability::Synced)?;
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            let busy = self
                .connection
                .query_row(sql, [], |row| row.get::<_, bool>(0));
            let busy = busy.map_err(|error| self.begin_error(&error))?;
            if busy {
                let detail = format!(
                    "{}: a sync to the disk failed, and other processes keep the log from being \
                     written again",
                    self.file.path().display()
                );
                let trouble = Trouble::new(TroubleKind::Other, detail);
                return Err(BeginError::Busy(CallError::Refused(trouble)));
            }
            self.sync_failed.set(false);
        }
        Ok(())
    }
}
