//! What becomes of the locks in a file after a boot of the machine.
//!
//! The boot id alone proves no boot: a container may have one of its own. So the file is changed
//! only by a process that has it alone, under SQLite's exclusive lock. Every other process that has
//! the file open prevents that, and keeps its locks.

use std::process;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use crate::clock::Clock;
use crate::group::Group;
use crate::ledger::Rules;
use crate::node::{CallError, NodeClock};

use super::SqliteError;
use super::error::refused;
use super::file::LockFile;
use super::node_row::{Boot, NodeRow, not_one_machine};
use super::store::{BeginError, SqliteStore};
use super::sync::Durability;
use super::{child_rows, rows, schema};

/// How long we wait for other processes of the same boot that open the file, too.
const PATIENCE: Duration = Duration::from_secs(5);

/// If the file was last used in another boot, ends that boot in the file. Returns a connection to
/// the file.
pub(super) fn settle(
    mut connection: Connection,
    file: &LockFile,
    clock: &NodeClock,
) -> Result<Connection, SqliteError> {
    let patient_until = Clock::System.now() + PATIENCE;
    let mut pause = Duration::from_millis(1);
    while is_of_other_boot(&connection, file, clock) {
        // Our own connection is in the way, too.
        drop(connection);
        let in_use = !end_other_boot(file, clock)?;
        if in_use {
            if Clock::System.now() > patient_until {
                return Err(SqliteError::OtherBoot(file.path().to_owned()));
            }
            // Processes that pause equally long would be in each other's way again.
            thread::sleep(pause + Duration::from_micros(u64::from(process::id() % 1000)));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        connection = schema::open(file, clock)?;
    }
    Ok(connection)
}

/// An error is left to the calls: every one of them reports it.
fn is_of_other_boot(connection: &Connection, file: &LockFile, clock: &NodeClock) -> bool {
    let stored = NodeRow::load(file.path(), connection);
    let advanced = stored.and_then(|stored| stored.advance(file.path(), clock));
    advanced.is_ok_and(|(_, boot)| boot != Boot::Same)
}

/// Ends the other boot in the file, if no other process has it open. Returns whether none has.
fn end_other_boot(file: &LockFile, clock: &NodeClock) -> Result<bool, SqliteError> {
    let opening = |error| SqliteError::opening(file.path(), error);
    let connection = schema::connect_alone(file).map_err(opening)?;
    let store = SqliteStore::alone(connection, file.clone(), clock.clone());
    let ended = match store.begin_once(Durability::Unsynced) {
        Ok(transaction) => transaction.commit().map(|_| true),
        Err(BeginError::Busy(_)) => Ok(false),
        Err(BeginError::Failed(error)) => Err(error),
    };
    ended.map_err(|error| SqliteError::Database {
        path: file.path().to_owned(),
        source: error.to_string().into(),
    })
}

impl SqliteStore {
    /// Changes what is stored in the file from the state `before` to `present`, which is another
    /// boot.
    pub(super) fn end_boot(
        &self,
        before: &NodeRow,
        present: &NodeRow,
        boot: Boot,
    ) -> Result<(), CallError> {
        if !self.is_alone() {
            return Err(not_one_machine(
                self.file.path(),
                "used under another boot id since it was opened: do containers share the file? Give \
                 them the same /proc/sys/kernel/random/boot_id",
            ));
        }
        let connection = &self.connection;
        let (was, now) = (before.moment(), present.moment());
        let locks = match boot {
            Boot::Same => return Ok(()),
            // All holders are dead.
            Boot::Other => {
                let group = present.group.unwrap_or(Group::new(1));
                let retention_ms = Rules::of_group(&group).retention_ms;
                let until_ms = now.lease_ms.saturating_add(retention_ms);
                rows::free_all(connection, until_ms)
                    .and_then(|()| child_rows::clear_readers(connection))
            }
            // No process is alive that holds or waits. But a lock may be held by a receipt, or be
            // kept from others after its release. How much time has passed is not known.
            Boot::MaybeOther => {
                let by_ms = now.lease_ms.saturating_sub(was.lease_ms);
                rows::postpone(connection, by_ms)
                    .and_then(|()| child_rows::postpone_readers(connection, by_ms))
            }
        };
        locks
            .and_then(|()| child_rows::clear_waiters(connection))
            .and_then(|()| child_rows::carry_latches_on(connection, now))
            .map_err(|error| refused(self.file.path(), &error))
    }
}
