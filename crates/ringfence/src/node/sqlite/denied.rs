//! Error messages for a user who may not use a lock file: the reason, and what to do.
//!
//! SQLite reports "unable to open database file" for every reason. The real reason is examined
//! afterwards, and reported only if it is certain.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::file::{COMPANIONS, beside};

/// How several users share a file.
const SHARE: &str = "to share a lock file, make a folder with a group that all its users are in \
                     (`install -d -m 2770 -g GROUP FOLDER`) and let ringfence make the file there";

/// Why this user may not use the lock file at `path`, if the file's permissions show it.
pub(super) fn why(path: &Path) -> Option<String> {
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
fn may(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}

pub(super) fn rights(found: &Metadata) -> String {
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
