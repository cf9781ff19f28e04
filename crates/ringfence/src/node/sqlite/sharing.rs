//! Judges a lock file and the files beside it before they are used. Two processes see each other's
//! locks only if they use the same lock file with the same log beside it, and other users may have
//! placed files there. Which owners and modes there are is the table of sharing in
//! `docs/operations.md`.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::SqliteError;
use super::denied::{self, rights};
use super::file::{COMPANIONS, FILE_MAX_BYTES, beside};
use super::mount::is_mount_point;

/// What a file is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileUse {
    Lock,
    /// Nothing is written, so owner and mode do not matter.
    Look,
}

/// Refuses a lock file at `path` that cannot be relied on. None of its files may be a link, have a
/// second hard link or be a mount point, and for a lock the owner and mode of each must be in the
/// table of sharing. (SQLite itself follows no symbolic link. The system must prevent a hard link that is
/// made after this check, as `fs.protected_hardlinks` does.)
pub(super) fn refuse_unfit(path: &Path, purpose: FileUse) -> Result<(), SqliteError> {
    let failed = |source| SqliteError::file(path, source);
    let folder = fs::metadata(path.parent().unwrap_or(path)).map_err(failed)?;
    let mut of_lock_file = None;
    for ending in [""].iter().chain(&COMPANIONS) {
        let file = beside(path, ending);
        let found = match fs::symlink_metadata(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(failed)?,
        };
        if !found.is_file() {
            return Err(SqliteError::Linked(file));
        }
        if *ending == JOURNAL {
            return Err(SqliteError::Journal(file));
        }
        if found.nlink() > 1 {
            return Err(SqliteError::SecondName(file));
        }
        if is_mount_point(&file) {
            return Err(SqliteError::MountPoint(file));
        }
        let unfit = match (purpose, &of_lock_file) {
            (FileUse::Look, _) => None,
            (FileUse::Lock, None) => unfit(&found, &folder),
            (FileUse::Lock, Some(lock_file)) => unlike(&found, lock_file),
        };
        if let Some(why) = unfit {
            // A user who may not use the lock file at all is told so.
            let denied = denied::why(path);
            let denied = denied.filter(|_| of_lock_file.is_none());
            return Err(match denied {
                Some(why) => SqliteError::Denied { path: file, why },
                None => SqliteError::Sharing {
                    path: file,
                    why: format!("{}: {why}", rights(&found)),
                },
            });
        }
        if of_lock_file.is_none() && found.size() > FILE_MAX_BYTES.cast_unsigned() {
            return Err(SqliteError::TooLarge {
                path: file,
                most: FILE_MAX_BYTES,
            });
        }
        of_lock_file.get_or_insert(found);
    }
    Ok(())
}

/// A rollback journal overwrites the lock file when SQLite opens it. Ringfence makes none.
const JOURNAL: &str = "-journal";

/// Why the owner and mode of a lock file are in no row of the table, if they are not.
fn unfit(found: &Metadata, folder: &Metadata) -> Option<&'static str> {
    let mode = bits(found);
    if mode & !0o600 == 0 {
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        return (!is_own).then_some("only its owner may use it: run as that user");
    }
    // Whether the system now lets users share the file is another question.
    let fits = [0o660, 0o666].contains(&mode) && mode & !mode_in(folder, found.gid(), 0) == 0;
    (!fits).then_some(
        "ringfence gives no file in this folder this mode. If it is a lock file, `chmod 600` it, or share a file in a folder \
         with a group (install -d -m 2770 -g GROUP FOLDER)",
    )
}

/// Why a file beside the lock file cannot be its log, if it cannot: SQLite gives it the mode of the
/// lock file.
fn unlike(found: &Metadata, lock_file: &Metadata) -> Option<&'static str> {
    (bits(found) != bits(lock_file) || !is_of_sharer(found.uid(), found.gid(), lock_file)).then_some(
        "it belongs to a lock file with another owner or mode; another user may have placed it there",
    )
}

/// Whether a file with this owner and group may be of a user who shares the lock file.
pub(super) fn is_of_sharer(uid: u32, gid: u32, lock_file: &Metadata) -> bool {
    match bits(lock_file) & 0o066 {
        0 => uid == lock_file.uid(),
        0o060 => gid == lock_file.gid(),
        _ => true,
    }
}

fn bits(found: &Metadata) -> u32 {
    found.mode() & 0o7777
}

/// The mode of a new file. A folder that is made for sharing decides it: one that passes its group
/// on (setgid), or prevents users from removing each other's files (sticky). In every other folder
/// only the owner may use the file: also where all users may replace it.
pub(super) fn mode_in(folder: &Metadata, group_of_file: u32, protected_regular: u32) -> u32 {
    let bits = folder.mode();
    let (setgid, sticky) = (bits & 0o2000 != 0, bits & 0o1000 != 0);
    let for_group = bits & 0o020 != 0 && folder.gid() == group_of_file;
    let for_all = bits & 0o002 != 0;
    // If the system prevents users from opening each other's files, they cannot share the log. Then
    // the file is not shared either.
    let group_may = (!sticky && !for_all)
        || sticky && protected_regular < 2 && !(for_all && protected_regular > 0);
    let all_may = protected_regular < 1;
    let mut mode = 0o600;
    if (setgid || sticky) && for_group && group_may {
        mode |= 0o060;
    }
    if sticky && for_all && all_may {
        mode |= 0o066;
    }
    mode
}
