//! Whether a file is a mount point.
//!
//! A container that mounts the lock file alone sees its own folder around it. SQLite then makes a
//! second `-wal` and a second `-shm` there, and two processes hold the same lock.

use std::path::Path;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn is_mount_point(path: &Path) -> bool {
    kernel_says(path).unwrap_or_else(|| is_listed(path) || is_on_other_device(path))
}

/// Systems without mounts of single files.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn is_mount_point(_path: &Path) -> bool {
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
    use std::fs;
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    fs::canonicalize(path).is_ok_and(|path| lists(&mounts, &path))
}

/// Finds mounts from another file system, where `/proc` is missing too.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_on_other_device(path: &Path) -> bool {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
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
