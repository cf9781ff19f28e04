//! Judges a lock file and the files beside it before they are used. Two processes see each other's
//! locks only if they use the same lock file with the same log beside it, and other users may have
//! placed files there. Which owners and modes there are is the table of sharing in
//! `docs/operations.md`.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::SqliteError;
use super::file::{COMPANIONS, FILE_MAX_BYTES, beside};

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
            let denied = why_denied(path);
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

/// Whether `path` is a mount point. A container that mounts the lock file alone sees its own folder
/// around it. SQLite then makes a second `-wal` and a second `-shm` there, and two processes hold the
/// same lock.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_mount_point(path: &Path) -> bool {
    kernel_says(path).unwrap_or_else(|| is_listed(path) || is_on_other_device(path))
}

/// Systems without mounts of single files.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_mount_point(_path: &Path) -> bool {
    false
}

/// The kernel's answer; `None` before Linux 5.8, and where a sandbox denies `statx`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn kernel_says(path: &Path) -> Option<bool> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()).ok()?;
    let known = found
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT);
    known.then(|| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_listed(path: &Path) -> bool {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    fs::canonicalize(path).is_ok_and(|path| lists(&mounts, &path))
}

/// Finds mounts from another file system, where `/proc` is missing too.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_on_other_device(path: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
    path.parent()
        .is_some_and(|folder| device(path) != device(folder))
}

/// Whether `path` is a mount point in the text of `/proc/self/mountinfo`: the fifth word of a line,
/// in which white space and backslashes are octal numbers.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn lists(mounts: &[u8], path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            _ => escaped.push(byte),
        }
    }
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.any(|line| line.split(|byte| *byte == b' ').nth(4) == Some(&escaped[..]))
}

/// How several users share a file.
const SHARE: &str = "to share a lock file, make a folder with a group that all its users are in \
                     (`install -d -m 2770 -g GROUP FOLDER`) and let ringfence make the file there";

/// Why this user may not use the lock file at `path`, if the file's permissions show it. SQLite
/// reports "unable to open database file" for every reason, so the reason is examined afterwards.
pub(super) fn why_denied(path: &Path) -> Option<String> {
    let folder = path.parent().unwrap_or(path);
    let user = rustix::process::geteuid().as_raw();
    let files = [""].iter().chain(&COMPANIONS);
    for ending in files {
        let file = beside(path, ending);
        let Ok(found) = fs::symlink_metadata(&file) else {
            continue;
        };
        let name = file.file_name().unwrap_or_default().display().to_string();
        let name = name.escape_debug();
        if !may(&file, Access::READ_OK | Access::WRITE_OK) {
            let rights = rights(&found);
            let what = format!("user {user} may not read and write {name} ({rights})");
            return Some(format!("{what}; run as user {}, or: {SHARE}", found.uid()));
        }
    }
    if !may(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let rights = fs::metadata(folder).map_or_else(|error| error.to_string(), |m| rights(&m));
        return Some(format!(
            "user {user} may not make files in its folder ({rights}), and every lock needs two \
             beside the lock file; {SHARE}"
        ));
    }
    let of_folder = fs::metadata(folder).ok()?;
    let anothers = COMPANIONS.iter().find_map(|ending| {
        let found = fs::symlink_metadata(beside(path, ending)).ok()?;
        (found.uid() != user && found.uid() != of_folder.uid()).then_some((ending, found.uid()))
    });
    match anothers {
        Some((ending, owner)) if is_protected(&of_folder) => Some(format!(
            "its folder is sticky, and there the system (fs.protected_regular) keeps user {user} \
             from the file {ending} that user {owner} has made; {SHARE}"
        )),
        _ => None,
    }
}

/// Whether this user has the access, by its effective user and groups.
pub(super) fn may(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

fn rights(found: &Metadata) -> String {
    let mode = found.mode() & 0o7777;
    format!(
        "owner {}, group {}, mode {mode:04o}",
        found.uid(),
        found.gid()
    )
}

fn is_protected(folder: &Metadata) -> bool {
    let (mode, protected) = (folder.mode(), protected_regular());
    let world_writable = mode & 0o002 != 0 && protected > 0;
    mode & 0o1000 != 0 && (world_writable || mode & 0o020 != 0 && protected > 1)
}

/// Whether the kernel prevents users from opening each other's files in sticky folders: 1 in
/// world-writable folders, 2 also in group-writable ones. Other systems have no such rule.
pub(super) fn protected_regular() -> u32 {
    let text = fs::read_to_string("/proc/sys/fs/protected_regular").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_a_mount_point_and_a_new_file_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for way in [is_mount_point, is_listed] {
            assert!(way(Path::new("/")));
            assert!(!way(file.path()));
        }
        assert!(is_on_other_device(Path::new("/proc")));
        assert!(!is_on_other_device(file.path()));
    }

    #[test]
    fn a_mount_point_is_found_in_the_list_of_mounts() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/a rw\n\
            30 22 8:1 /x/locks.db /my\\040data/a\\134b/locks.db rw shared:1 - ext4 /dev/a rw\n";
        assert!(lists(mounts, Path::new("/")));
        assert!(lists(mounts, Path::new("/my data/a\\b/locks.db")));
        for other in ["/x/locks.db", "/my data/a\\b", "/my data/a\\b/locks.db2"] {
            assert!(!lists(mounts, Path::new(other)), "{other}");
        }
    }
}
