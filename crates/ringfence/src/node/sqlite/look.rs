//! Looks at a lock file without changing anything: neither the file nor its companions are created
//! or written, so a look works on a read-only file system and in a folder of another user.
//!
//! Each question copies the file into memory, and the copy answers: there the usual code may free
//! the holders of an earlier boot. A missing file is an empty one.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use crate::group::Group;
use crate::node::embedded::{Answered, Job, Store};
use crate::node::{CallError, NodeClock, Trouble, TroubleKind};

use super::SqliteError;
use super::file::{LockFile, beside};
use super::pending::Pending;
use super::schema;
use super::sharing::{self, FileUse};
use super::store::{BeginError, SqliteStore};
use super::sync::Durability;
use super::worker::WorkerMessage;

/// How long a look waits while another process recovers the log.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers jobs until all clones of the node are dropped.
pub(super) fn run(
    file: &Path,
    clock: &NodeClock,
    inbox: &Receiver<WorkerMessage>,
    pending: &Pending,
) {
    for message in inbox {
        let WorkerMessage::Job(job) = message else {
            continue;
        };
        let answered = answer(file, clock, job);
        pending.end(1);
        answered.deliver();
    }
}

fn answer(file: &Path, clock: &NodeClock, job: Job) -> Answered {
    if changes(&job) {
        let trouble = Trouble::new(TroubleKind::Other, "the file was opened to look only");
        return job.fail(CallError::Refused(trouble));
    }
    let store = match copy(file, clock) {
        Ok(store) => store,
        Err(error) => {
            let trouble = Trouble::new(TroubleKind::Other, error.to_string());
            return job.fail(CallError::Refused(trouble));
        }
    };
    match store.begin_once(Durability::Unsynced) {
        Ok(mut transaction) => {
            // A file that no client has used yet belongs to no group. One that does keeps its own.
            let _ = transaction.join(Group::new(1));
            job.run(&mut transaction)
        }
        Err(BeginError::Busy(error) | BeginError::Failed(error)) => job.fail(error),
    }
}

fn changes(job: &Job) -> bool {
    match job {
        Job::Call(call) => !call.request.op.only_looks(),
        Job::Init(..) => true,
        Job::Probe(_) | Job::Join(..) => false,
    }
}

/// A store in memory with everything that is in `file` now.
pub(super) fn copy(file: &Path, clock: &NodeClock) -> Result<SqliteStore, SqliteError> {
    let opening = |error| SqliteError::opening(file, error);
    let mut copy = Connection::open_in_memory().map_err(opening)?;
    schema::restrict(&copy).map_err(opening)?;
    let found = found(file)?;
    if found.is_some() {
        read(file, &mut copy).map_err(opening)?;
    }
    schema::prepare(&mut copy, file, clock)?;
    let copied = LockFile::copied(file, found.as_ref());
    Ok(SqliteStore::new(copy, copied, clock.clone()))
}

/// The file, or `None` if there is none yet. A missing folder is more likely a typing error.
pub(super) fn found(file: &Path) -> Result<Option<Metadata>, SqliteError> {
    match fs::symlink_metadata(file) {
        Ok(found) if found.is_symlink() => Err(SqliteError::Link(file.to_owned())),
        Ok(found) if !found.is_file() => Err(SqliteError::NotAFile(file.to_owned())),
        Ok(found) => sharing::refuse_unfit(file, FileUse::Look).map(|()| Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && may_be_made(file) => Ok(None),
        Err(error) => Err(SqliteError::file(file, error)),
    }
}

fn may_be_made(file: &Path) -> bool {
    let is_default = super::file::default_path().is_ok_and(|default| default == file);
    is_default || file.parent().is_some_and(Path::is_dir)
}

/// Copies `file`. While it is in use its log belongs to it, and SQLite reads both. If it is not in
/// use, SQLite would create a log to read it; so it is told that the file does not change.
fn read(file: &Path, copy: &mut Connection) -> rusqlite::Result<()> {
    let in_use = || {
        ["-shm", "-wal"]
            .iter()
            .any(|ending| beside(file, ending).exists())
    };
    if !in_use() {
        let done = read_from(&unchanging(file), copy);
        // Another process may have begun to use it meanwhile.
        if !in_use() {
            return done;
        }
    }
    read_from(&uri(file, ""), copy)
}

fn read_from(uri: &str, copy: &mut Connection) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let source = Connection::open_with_flags(uri, flags)?;
    source.busy_timeout(PATIENCE)?;
    schema::restrict(&source)?;
    // The header and the log may claim more pages than the file has.
    schema::limit_size(copy, &source)?;
    let backup = Backup::new(&source, copy)?;
    backup.run_to_completion(i32::MAX, Duration::from_millis(10), None)
}

fn unchanging(file: &Path) -> String {
    uri(file, "?immutable=1")
}

/// The path as a URI for SQLite.
fn uri(file: &Path, parameters: &str) -> String {
    let mut uri = String::from("file:");
    for c in real(file).display().to_string().chars() {
        match c {
            '%' => uri += "%25",
            '?' => uri += "%3f",
            '#' => uri += "%23",
            c => uri.push(c),
        }
    }
    uri + parameters
}

/// The path without a link in its folders.
fn real(file: &Path) -> PathBuf {
    let folder = file
        .parent()
        .and_then(|folder| fs::canonicalize(folder).ok());
    let name = file.file_name().unwrap_or_default();
    folder.map_or_else(|| file.to_owned(), |folder| folder.join(name))
}
