//! Why a lock file cannot be opened, and what a failing file means for a call.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::node::{CallError, Trouble, TroubleKind};

use super::rows::is_damage;
use super::schema::FORMAT;
use super::sharing::why_denied;

/// Why a lock file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The environment does not say where the user's state is kept.
    #[error("no HOME and no XDG_STATE_HOME for the lock file; name the file: `sqlite:/path`")]
    NoHome,
    /// The SQLite that the program was built with may damage a file that several processes use.
    #[error(
        "SQLite {0} may damage a lock file that several processes use: build the program with \
         SQLite 3.51.3 or later, which is in rusqlite 0.39 and later. sqlx 0.8 prevents that, sqlx \
         0.9 does not"
    )]
    Library(String),
    /// The folder of the file is missing and cannot be created, or cannot be read.
    #[error("{}: the folder of the lock file cannot be used", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file cannot be created or read.
    #[error("{}: the lock file cannot be created or read", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// This is a forked child, and its parent had a lock file open.
    #[error(
        "this is a forked child of a process that had a lock file open, so SQLite cannot lock files \
         here; fork before the file is opened, or exec after the fork"
    )]
    ForkedProcess,
    /// The path leads to a folder or a device.
    #[error("{}: not a file", .0.display())]
    NotAFile(PathBuf),
    /// The path is a symbolic link.
    #[error(
        "{}: a symbolic link, which is not followed: name the file that it leads to", .0.display()
    )]
    Link(PathBuf),
    /// The lock file, or a file beside it, is a link or not a file.
    #[error(
        "{}: a link to another file, or no file at all, where a file of the lock file's own \
         belongs; a user who may write to the folder has placed it there: examine and remove it",
        .0.display()
    )]
    Linked(PathBuf),
    /// The lock file, or a file beside it, has a second hard link.
    #[error(
        "{}: has a second hard link, and processes that use it by two names would not see each \
         other's locks: remove the other name", .0.display()
    )]
    SecondName(PathBuf),
    /// The lock file, or a file beside it, is a mount point.
    #[error(
        "{}: is a mount point by itself, and processes that use the same file elsewhere would not \
         see its locks: mount the folder, not the file", .0.display()
    )]
    MountPoint(PathBuf),
    /// A rollback journal is beside the lock file.
    #[error(
        "{}: a rollback journal, which ringfence never makes: SQLite would overwrite the lock file \
         with it; another user or program has placed it there: remove it", .0.display()
    )]
    Journal(PathBuf),
    /// The owner or the mode of the lock file, or of a file beside it, is not one that ringfence
    /// gives it.
    #[error("{}: {why}", .path.display())]
    Sharing {
        /// The file.
        path: PathBuf,
        /// What it has, and what it needs.
        why: String,
    },
    /// The process has left its time namespace, but only its children are in the new one.
    #[error(
        "{}: this process and its children are in different time namespaces, so its clock since \
         boot cannot be compared with that of other processes", .0.display()
    )]
    TimeNamespace(PathBuf),
    /// The file was last used under another boot id, and another process has it open.
    #[error(
        "{}: a process that sees another boot id has it open: do containers share the file? Give \
         them the same /proc/sys/kernel/random/boot_id", .0.display()
    )]
    OtherBoot(PathBuf),
    /// The file is too large for a lock file.
    #[error("{}: larger than {most} bytes, so not a lock file", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The largest size of a lock file.
        most: i64,
    },
    /// This user may not use the lock file.
    #[error("{}: {why}", .path.display())]
    Denied {
        /// The lock file.
        path: PathBuf,
        /// What is not permitted, and what to do.
        why: String,
    },
    /// The file is on a network file system, where processes of different machines would not see
    /// each other's locks.
    #[error(
        "{}: on a network file system ({kind}), where SQLite's locks cannot be relied on; \
         use a local file, or Redis for several machines", .path.display()
    )]
    Network {
        /// The file.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
    /// The file may be read but not written.
    #[error("{}: the lock file may not be written", .0.display())]
    ReadOnly(PathBuf),
    /// The file is something else.
    #[error("{}: not an SQLite database, so not a lock file", .0.display())]
    NotADatabase(PathBuf),
    /// The file is a database with other contents.
    #[error("{}: an SQLite database of another application", .0.display())]
    OtherApplication(PathBuf),
    /// The tables of the file are not ours.
    #[error(
        "{}: its tables are not those of a lock file: another program has changed it", .0.display()
    )]
    OtherTables(PathBuf),
    /// A later version of ringfence has made the file.
    #[error(
        "{}: made by a newer ringfence (format {found}; this one knows {known})", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: i64,
        /// The format that we know.
        known: i64,
    },
    /// An earlier version of ringfence has made the file.
    #[error(
        "{}: made by an older ringfence (format {found}; this one knows {known}); stop all \
         processes that use the file, then remove it", .path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: i64,
        /// The format that we know.
        known: i64,
    },
    /// Any other error of SQLite.
    #[error("{}: the lock file cannot be opened", .path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The node's thread could not be started.
    #[error("the lock file's thread cannot be started")]
    Thread(#[source] io::Error),
}

impl SqliteError {
    /// The system's error when `path` is created or examined.
    pub(super) fn file(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match why_denied(&path) {
            Some(why) if source.kind() == io::ErrorKind::PermissionDenied => {
                Self::Denied { path, why }
            }
            _ => Self::File { path, source },
        }
    }

    /// A file that SQLite could open for reading only.
    pub(super) fn read_only(path: &Path) -> Self {
        let path = path.to_owned();
        match why_denied(&path) {
            Some(why) => Self::Denied { path, why },
            None => Self::ReadOnly(path),
        }
    }

    /// A file of ours in another format.
    pub(super) fn other_format(path: &Path, found: i64) -> Self {
        let (path, known) = (path.to_owned(), FORMAT);
        match found > known {
            true => Self::Newer { path, found, known },
            false => Self::Older { path, found, known },
        }
    }

    /// SQLite's error when `path` is opened.
    pub(super) fn opening(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(path),
            Some(code @ (ErrorCode::CannotOpen | ErrorCode::ReadOnly)) => match why_denied(&path) {
                Some(why) => Self::Denied { path, why },
                None if code == ErrorCode::ReadOnly => Self::ReadOnly(path),
                None => Self::Database {
                    path,
                    source: Box::new(error),
                },
            },
            _ => Self::Database {
                path,
                source: Box::new(error),
            },
        }
    }
}

/// The trouble for SQLite's `error` in a call. The caller decides whether the call took effect.
pub(super) fn trouble(path: &Path, error: &rusqlite::Error) -> Trouble {
    use ErrorCode::{
        DatabaseBusy, DatabaseCorrupt, DatabaseLocked, NotADatabase, PermissionDenied, ReadOnly,
    };
    let kind = match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => TroubleKind::Timeout,
        Some(DatabaseCorrupt | NotADatabase) => TroubleKind::Garbage,
        Some(PermissionDenied | ReadOnly) => TroubleKind::Denied,
        _ => TroubleKind::Other,
    };
    Trouble::new(kind, format!("{}: {error}", path.display()))
}

/// A call that SQLite failed before anything was committed.
pub(super) fn refused(path: &Path, error: &rusqlite::Error) -> CallError {
    CallError::Refused(trouble(path, error))
}

/// A call that could not read `what`: SQLite failed, or the row has a value that we never write.
pub(super) fn unreadable(
    path: &Path,
    error: &rusqlite::Error,
    what: impl FnOnce() -> String,
) -> CallError {
    match is_damage(error) {
        true => damaged(path, &what()),
        false => refused(path, error),
    }
}

/// The error for stored data that we never write. It is neither used nor repaired.
pub(super) fn damaged(path: &Path, what: &str) -> CallError {
    let detail = format!("{}: damaged: {what}", path.display());
    CallError::Refused(Trouble::new(TroubleKind::Garbage, detail))
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
