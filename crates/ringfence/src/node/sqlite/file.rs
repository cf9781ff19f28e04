//! The path of a lock file: creates the file if it is missing, and refuses paths where SQLite's
//! locks cannot be relied on. `sharing.rs` judges the files that are there already.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{self, Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::SqliteError;
use super::sharing::{self, FileUse, protected_regular};

/// The smallest page that an SQLite database can have.
pub(super) const PAGE_MIN_BYTES: u64 = 512;
/// The size of the pages of a new lock file.
pub(super) const PAGE_BYTES: u16 = 4096;
/// The largest lock file: enough for millions of names.
pub(super) const FILE_MAX_BYTES: i64 = 1 << 30;

/// The first bytes of every SQLite database.
pub(super) const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The endings of the files that SQLite keeps beside a database.
pub(super) const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// An existing file, and its identity when it was opened.
#[derive(Debug, Clone)]
pub(super) struct LockFile {
    path: PathBuf,
    /// The same file by a path that has no link in it.
    real: PathBuf,
    device: u64,
    inode: u64,
    /// Whether a copy in memory stands for it. The path may then lead to no file.
    is_copy: bool,
}

impl LockFile {
    /// The absolute path of a lock file that need not exist.
    pub(super) fn locate(path: &Path) -> Result<PathBuf, SqliteError> {
        let path = path::absolute(path).map_err(|source| SqliteError::File {
            path: path.to_owned(),
            source,
        })?;
        let folder = path.parent().unwrap_or(&path);
        refuse_network(&path, if path.exists() { &path } else { folder })?;
        Ok(path)
    }

    /// The file at `path`, of which a copy is in memory. `found` is `None` if there is no file yet.
    pub(super) fn copied(path: &Path, found: Option<&Metadata>) -> Self {
        Self {
            path: path.to_owned(),
            real: path.to_owned(),
            device: found.map_or(0, MetadataExt::dev),
            inode: found.map_or(0, MetadataExt::ino),
            is_copy: true,
        }
    }

    /// Makes sure that a usable lock file exists at `path`.
    pub(super) fn prepare(path: &Path) -> Result<Self, SqliteError> {
        // Absolute, so that no name (`:memory:`) means something else to SQLite.
        let path = path::absolute(path).map_err(|source| SqliteError::File {
            path: path.to_owned(),
            source,
        })?;
        let folder = path.parent().unwrap_or(&path);
        if default_path().is_ok_and(|default| default == path) {
            make_folders(folder)?;
        }
        // A new file will be on its folder's file system.
        let metadata = fs::symlink_metadata(&path);
        refuse_network(&path, if metadata.is_ok() { &path } else { folder })?;
        let metadata = match metadata {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_file(&path, folder),
            found => found,
        };
        let metadata = metadata.map_err(|source| SqliteError::file(&path, source))?;
        if metadata.is_symlink() {
            return Err(SqliteError::Link(path));
        }
        if !metadata.is_file() {
            return Err(SqliteError::NotAFile(path));
        }
        sharing::refuse_unfit(&path, FileUse::Lock)?;
        // SQLite takes a file without a whole page for an empty database and would overwrite it.
        if (1..PAGE_MIN_BYTES).contains(&metadata.len()) {
            return Err(SqliteError::NotADatabase(path));
        }
        let real = fs::canonicalize(folder).map_err(|source| SqliteError::file(&path, source))?;
        let real = real.join(path.file_name().unwrap_or_default());
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            path,
            real,
            is_copy: false,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path for SQLite. SQLite refuses a path with a link in it, so that no link can be placed
    /// there after our check.
    pub(super) fn real(&self) -> &Path {
        &self.real
    }

    /// Whether the path still leads to this file. If the file is removed while in use, the next
    /// process creates a new one, and two clients could hold the same lock.
    pub(super) fn is_in_place(&self) -> bool {
        let is_same = |now: Metadata| (now.dev(), now.ino()) == self.identity();
        self.is_copy || fs::symlink_metadata(&self.path).is_ok_and(is_same)
    }

    /// Whether a copy in memory stands for it.
    pub(super) fn is_copy(&self) -> bool {
        self.is_copy
    }

    pub(super) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

pub(super) fn default_path() -> Result<PathBuf, SqliteError> {
    path_in(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
}

fn path_in(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, SqliteError> {
    // XDG: relative paths must be ignored.
    let absolute = |dir: OsString| Some(PathBuf::from(dir)).filter(|dir| dir.is_absolute());
    let state = state.and_then(absolute).or_else(|| {
        let home = home.and_then(absolute)?;
        Some(home.join(".local/state"))
    });
    let state = state.ok_or(SqliteError::NoHome)?;
    Ok(state.join("ringfence/locks.db"))
}

fn make_folders(folder: &Path) -> Result<(), SqliteError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(folder)
        .map_err(|source| SqliteError::Folder {
            path: folder.to_owned(),
            source,
        })
}

/// Creates a database without tables. SQLite itself would make it world-readable; its companions
/// inherit this mode. It would also make a rollback journal for a moment, which other processes
/// refuse to see. So the file gets its name when it is complete.
fn make_file(path: &Path, folder: &Path) -> io::Result<Metadata> {
    // Closing any descriptor of a file drops all locks of the process on it, including SQLite's. So
    // only a file that this very call has created is opened here, and one at a time.
    static ONE_AT_A_TIME: Mutex<u32> = Mutex::new(0);
    let mut serial = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    *serial = serial.wrapping_add(1);
    let unnamed = beside(path, &format!("-new-{}-{serial}", process::id()));
    let made = write_new(&unnamed, folder, &empty_database()).and_then(|()| name(&unnamed, path));
    match made {
        Ok(()) => File::open(folder)?.sync_all()?,
        Err(error) => {
            let _ = fs::remove_file(&unnamed);
            match error.kind() {
                io::ErrorKind::AlreadyExists => {}
                // A file system that cannot name it only if the name is free. SQLite takes an empty
                // file for an empty database.
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {
                    write_new(path, folder, &[])?;
                }
                _ => return Err(error),
            }
        }
    }
    fs::symlink_metadata(path)
}

fn write_new(path: &Path, folder: &Path, contents: &[u8]) -> io::Result<()> {
    let of_folder = fs::metadata(folder)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut made = options.open(path)?;
    let group = made.metadata()?.gid();
    let mode = sharing::mode_in(&of_folder, group, protected_regular());
    if mode != 0o600 {
        // Through the handle: independent of the umask and of what the path leads to by now.
        made.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    made.write_all(contents)?;
    made.sync_all()
}

/// Gives the file `unnamed` its name, unless there is a file of this name.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn name(unnamed: &Path, path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(
        CWD,
        unnamed,
        CWD,
        path,
        RenameFlags::NOREPLACE,
    )?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn name(_unnamed: &Path, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The only page of an SQLite database that has a write-ahead log and no tables: the header of the
/// database, and that of an empty page.
fn empty_database() -> Vec<u8> {
    let mut page = vec![0; usize::from(PAGE_BYTES)];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let size = PAGE_BYTES.to_be_bytes();
    put(0, MAGIC);
    put(16, &size);
    // Versions 2 are a write-ahead log; then the fractions of a page that an entry may use.
    put(18, &[2, 2, 0, 64, 32, 32]);
    // The change counter, the number of pages, and for which counter that number is valid.
    put(24, &[0, 0, 0, 1, 0, 0, 0, 1]);
    put(92, &[0, 0, 0, 1]);
    // A leaf of a table, whose contents begin at the end of the page.
    put(100, &[13]);
    put(105, &size);
    page
}

/// The companion of `path` with this ending.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn refuse_network(path: &Path, on: &Path) -> Result<(), SqliteError> {
    match network(on) {
        Some(kind) => Err(SqliteError::Network {
            path: path.to_owned(),
            kind,
        }),
        None => Ok(()),
    }
}

/// The kind of network file system of `path`, if any.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn network(path: &Path) -> Option<&'static str> {
    // If this fails, opening the file gives a better error.
    let found = rustix::fs::statfs(path).ok()?;
    // The type is signed on some systems, but the magic numbers have 32 bits on all.
    network_kind(found.f_type as u32)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn network(_path: &Path) -> Option<&'static str> {
    None
}

/// The file systems that machines may share, by their magic number: a write-ahead log needs memory
/// that all users of the file share. FUSE may be local, but sshfs looks the same.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn network_kind(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b => "SMB",
        0xff53_4d42 => "CIFS",
        0xfe53_4d42 => "SMB2",
        0x0102_1997 => "9P",
        0x6573_5546 => "FUSE",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x4750_4653 => "GPFS",
        0x786f_4256 => "VirtualBox shared folder",
        _ => return None,
    })
}

/// The process that has lock files open, in the upper half, and how many.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// One lock file that this process has open. Dropped when it is closed. They are counted so that a
/// forked child does not open one: SQLite remembers in the process which files it has open and
/// locked. A forked child inherits that memory, but not the locks, which belong to the parent. A
/// connection that the child opened then would believe itself locked, and the parent could delete
/// the log under it when it closes the file.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_is_in_the_users_state_folder() {
        let path = |state: Option<&str>, home: Option<&str>| {
            path_in(state.map(Into::into), home.map(Into::into)).ok()
        };
        let at_home = Some(PathBuf::from("/h/.local/state/ringfence/locks.db"));
        assert_eq!(path(None, Some("/h")), at_home);
        assert_eq!(path(Some("relative"), Some("/h")), at_home);
        let state = Some(PathBuf::from("/s/ringfence/locks.db"));
        assert_eq!(path(Some("/s"), None), state);
        assert_eq!(path(None, Some("")), None);
    }

    #[test]
    fn without_a_home_the_error_says_what_to_do() {
        let error = path_in(None, None).unwrap_err().to_string();
        assert!(error.contains("`sqlite:/path`"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_known_by_their_magic_number() {
        assert_eq!(network_kind(0x6969), Some("NFS"));
        assert_eq!(network_kind(0xff53_4d42), Some("CIFS"));
        assert_eq!(network_kind(0xef53), None, "ext4");
        assert_eq!(network_kind(0x0102_1994), None, "tmpfs");
    }
}
