//! What a process wrote to its files and what it synced, in order: from that a test makes the
//! states in which a power cut may leave the disk.
//!
//! A write that was not synced may be lost, or only some of its sectors may be on the disk,
//! whatever was written later. A sync covers everything that was written to the same file before
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::preload::Preload;

const SOURCE: &str = include_str!("disk_journal.c");

/// The smallest piece that a disk writes whole.
const SECTOR_BYTES: usize = 512;

/// Records what processes write to one folder.
#[derive(Debug)]
pub struct DiskJournal {
    watched: PathBuf,
    own: TempDir,
}

/// Something that happened to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskEvent {
    /// Which file, by its name in the folder. Empty for the folder itself.
    pub file: String,
    /// What happened.
    pub action: DiskAction,
}

/// What happened to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskAction {
    /// These bytes were written here.
    Write(u64, Vec<u8>),
    /// It was cut or extended to this length.
    Truncate(u64),
    /// Everything before is on the disk.
    Sync,
}

/// The files of the folder, by name.
pub type DiskImage = BTreeMap<String, Vec<u8>>;

impl DiskJournal {
    /// Records what is written to the files of `folder`.
    ///
    /// # Panics
    /// If there is no such folder.
    pub fn of(folder: &Path) -> Self {
        let own = tempfile::Builder::new()
            .prefix("ringfence-disk-")
            .tempdir()
            .expect("cannot make a temporary folder");
        let watched = fs::canonicalize(folder).expect("no such folder");
        Self { watched, own }
    }

    /// The environment of a process that is to be recorded.
    pub fn environment(&self) -> [(String, String); 4] {
        let text = |path: &Path| path.display().to_string();
        let variable = |name: &str, path: &Path| (name.to_owned(), text(path));
        [
            library().environment(),
            variable("RINGFENCE_DISK_JOURNAL", &self.journal()),
            variable("RINGFENCE_DISK_FOLDER", &self.watched),
            variable("RINGFENCE_SYNC_FAILS", &self.sync_fails()),
        ]
    }

    /// From now on syncs fail, or succeed again.
    pub fn let_syncs_fail(&self, fail: bool) {
        let done = match fail {
            true => fs::write(self.sync_fails(), ""),
            false => fs::remove_file(self.sync_fails()),
        };
        done.expect("cannot change whether syncs fail");
    }

    /// What has happened so far.
    pub fn events(&self) -> Vec<DiskEvent> {
        let bytes = fs::read(self.journal()).expect("no process was recorded");
        let mut rest = &bytes[..];
        let mut events = Vec::new();
        while !rest.is_empty() {
            events.push(self.next(&mut rest));
        }
        events
    }

    fn next(&self, rest: &mut &[u8]) -> DiskEvent {
        let kind = u32::from_ne_bytes(take(rest));
        let path_length = u32::from_ne_bytes(take(rest)) as usize;
        let (offset, length) = (
            u64::from_ne_bytes(take(rest)),
            u64::from_ne_bytes(take(rest)),
        );
        let path = String::from_utf8(take_slice(rest, path_length)).expect("a path");
        let file = Path::new(&path).strip_prefix(&self.watched);
        DiskEvent {
            file: file.expect("a file of the folder").display().to_string(),
            action: match kind {
                1 => DiskAction::Write(offset, take_slice(rest, length as usize)),
                2 => DiskAction::Truncate(length),
                3 => DiskAction::Sync,
                _ => panic!("an unknown record in the journal: {kind}"),
            },
        }
    }

    fn journal(&self) -> PathBuf {
        self.own.path().join("journal")
    }

    fn sync_fails(&self) -> PathBuf {
        self.own.path().join("sync-fails")
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (taken, left) = rest.split_first_chunk().expect("a whole record");
    *rest = left;
    *taken
}

fn take_slice(rest: &mut &[u8], length: usize) -> Vec<u8> {
    let (taken, left) = rest.split_at(length);
    *rest = left;
    taken.to_vec()
}

/// What is on the disk after a power cut that follows `events`. `survives` decides for each sector
/// that was not synced, and for each file that never was.
pub fn disk_after(events: &[DiskEvent], mut survives: impl FnMut() -> bool) -> DiskImage {
    let mut last_sync: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        if event.action == DiskAction::Sync {
            last_sync.insert(&event.file, index);
        }
    }
    let mut image = DiskImage::new();
    for (index, event) in events.iter().enumerate() {
        let synced = last_sync
            .get(&*event.file)
            .is_some_and(|last| *last > index);
        let file = image.entry(event.file.clone()).or_default();
        match &event.action {
            DiskAction::Write(offset, bytes) => {
                let mut at = *offset as usize;
                for piece in sectors(at, bytes) {
                    if synced || survives() {
                        let end = at + piece.len();
                        if file.len() < end {
                            file.resize(end, 0);
                        }
                        file[at..end].copy_from_slice(piece);
                    }
                    at += piece.len();
                }
            }
            DiskAction::Truncate(length) if synced || survives() => {
                file.resize(*length as usize, 0);
            }
            DiskAction::Truncate(_) | DiskAction::Sync => {}
        }
    }
    let was_synced = |name: &str| last_sync.contains_key(name);
    image.retain(|name, _| !name.is_empty() && (was_synced(name) || survives()));
    image
}

/// `bytes`, which begin at `at`, cut where a sector ends.
fn sectors(at: usize, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = (SECTOR_BYTES - at % SECTOR_BYTES).min(bytes.len());
    let (first, rest) = bytes.split_at(first);
    std::iter::once(first).chain(rest.chunks(SECTOR_BYTES))
}

fn library() -> &'static Preload {
    static LIBRARY: OnceLock<Preload> = OnceLock::new();
    LIBRARY.get_or_init(|| Preload::compile(SOURCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(file: &str, action: DiskAction) -> DiskEvent {
        DiskEvent {
            file: file.to_owned(),
            action,
        }
    }

    #[test]
    fn what_was_synced_survives_and_the_rest_sector_by_sector() {
        let events = [
            event("a", DiskAction::Write(0, vec![1; 600])),
            event("a", DiskAction::Sync),
            event("a", DiskAction::Write(500, vec![2; 600])),
            event("b", DiskAction::Write(0, vec![3; 4])),
        ];
        let lost = disk_after(&events, || false);
        assert_eq!(lost, DiskImage::from([("a".to_owned(), vec![1; 600])]));
        let kept = disk_after(&events, || true);
        assert_eq!(kept["a"], [vec![1; 500], vec![2; 600]].concat());
        assert_eq!(kept["b"], [3; 4]);
        let mut nth = 0;
        let torn = disk_after(&events, || {
            nth += 1;
            nth == 2
        });
        assert_eq!(torn["a"], [vec![1; 512], vec![2; 512]].concat());
    }
}
