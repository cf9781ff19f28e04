//! The examination of a lock file. It creates and changes nothing, neither the file nor its
//! companions.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{self, Path};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD, OFlags, accessat};

use crate::node::{Contents, FileExamination, FileMode, Trouble, TroubleKind};

use super::SqliteError;
use super::file::{MAGIC, PAGE_BYTES, PAGE_MIN_BYTES, beside, default_path, network};
use super::schema::{APPLICATION_ID, FORMAT, refuse_library};
use super::sharing::{FileUse, refuse_unfit};

/// The offsets of header fields of an SQLite database.
const HEAD_BYTES: usize = 100;
const WRITE_VERSION: usize = 18;
const USER_VERSION: usize = 60;
const APPLICATION: usize = 68;

/// Examines the lock file at `path`.
pub(crate) fn examine(path: &Path) -> FileExamination {
    let path = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(&path);
    // The folders of the user's default file are created when they are needed.
    let is_default = default_path().is_ok_and(|default| default == path);
    let folder = if is_default { existing(folder) } else { folder };
    let found = fs::symlink_metadata(&path);
    let may = |path, access| accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
    let folder_writable = may(folder, Access::WRITE_OK | Access::EXEC_OK);
    FileExamination {
        network: network(if found.is_ok() { &path } else { folder }),
        contents: contents(&path, folder, &found).and_then(|contents| fit(&path, contents)),
        mode: found.as_ref().ok().map(|found| FileMode {
            bits: found.permissions().mode() & 0o777,
            own: found.uid() == rustix::process::geteuid().as_raw(),
        }),
        writable: match &found {
            Ok(_) => may(&path, Access::READ_OK | Access::WRITE_OK),
            Err(_) => folder_writable,
        },
        folder_writable,
        free_bytes: free_bytes(folder),
        path,
    }
}

/// How much our user may still write to the file system of `folder`.
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The nearest existing folder on the path.
fn existing(folder: &Path) -> &Path {
    let on_the_way = folder.ancestors();
    let mut there = on_the_way.skip_while(|folder| !folder.exists());
    there.next().unwrap_or(folder)
}

fn contents(
    path: &Path,
    folder: &Path,
    found: &io::Result<fs::Metadata>,
) -> Result<Contents, Trouble> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
            return Ok(Contents::Missing);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(trouble("its folder does not exist"));
        }
        Err(error) => return Err(trouble(&error.to_string())),
        Ok(found) if found.is_symlink() => {
            return Err(trouble("it is a symbolic link, which is not followed"));
        }
        Ok(found) if !found.is_file() => return Err(trouble("it is not a file")),
        Ok(found) if found.len() == 0 && !beside(path, "-wal").exists() => {
            return Ok(Contents::Fresh);
        }
        Ok(found) if (1..PAGE_MIN_BYTES).contains(&found.len()) => {
            return Ok(Contents::NotADatabase);
        }
        Ok(_) => {}
    }
    // If the log's index exists, the file may be in use, perhaps in this very process: then only
    // SQLite may open it, since closing it here would drop SQLite's locks. If not, SQLite would
    // create the index; but then the file is not in use, and its header has all the facts.
    let head = if beside(path, "-shm").exists() {
        asked_of_sqlite(path).map_err(|error| trouble(&error.to_string()))?
    } else {
        read_head(path).map_err(|error| trouble(&error.to_string()))?
    };
    // As we have made it, before its first use.
    let is_new = found
        .as_ref()
        .is_ok_and(|found| found.len() == u64::from(PAGE_BYTES));
    Ok(match head {
        Some(head) if is_new && head.is_empty() => Contents::Fresh,
        Some(head) => head.contents(),
        None => Contents::NotADatabase,
    })
}

/// A lock file must be fit for use. The mode of another file does not matter.
fn fit(path: &Path, contents: Contents) -> Result<Contents, Trouble> {
    refuse_library(rusqlite::version_number()).map_err(|error| trouble(&error.to_string()))?;
    let is_ours = matches!(contents, Contents::Fresh | Contents::Ours { .. });
    match refuse_unfit(path, FileUse::Lock) {
        Ok(()) => Ok(contents),
        Err(SqliteError::Sharing { .. } | SqliteError::Denied { .. }) if !is_ours => Ok(contents),
        Err(error) => Err(trouble(&error.to_string())),
    }
}

/// The header of a database.
struct Head {
    application: i64,
    format: i64,
    wal: bool,
}

impl Head {
    fn is_empty(&self) -> bool {
        self.wal && (self.application, self.format) == (0, 0)
    }

    fn contents(self) -> Contents {
        match (self.application, self.format) {
            (APPLICATION_ID, FORMAT) => Contents::Ours { wal: self.wal },
            (APPLICATION_ID, format) if format > FORMAT => Contents::Newer,
            (APPLICATION_ID, _) => Contents::Older,
            _ => Contents::OtherApplication,
        }
    }
}

/// `None` if the file is not a database.
fn read_head(path: &Path) -> io::Result<Option<Head>> {
    let mut head = [0; HEAD_BYTES];
    // Another user may replace the file meanwhile: follow no link, and wait for no pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits() as i32);
    options.open(path)?.read_exact(&mut head)?;
    let number = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        i64::from(i32::from_be_bytes(bytes))
    };
    Ok(head.starts_with(MAGIC).then(|| Head {
        application: number(APPLICATION),
        format: number(USER_VERSION),
        wal: head[WRITE_VERSION] == 2,
    }))
}

fn asked_of_sqlite(path: &Path) -> rusqlite::Result<Option<Head>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = match number("PRAGMA application_id") {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            return Ok(None);
        }
        application => application?,
    };
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    Ok(Some(Head {
        application,
        format: number("PRAGMA user_version")?,
        wal: journal == "wal",
    }))
}

fn trouble(what: &str) -> Trouble {
    Trouble::new(
        TroubleKind::Other,
        what.escape_debug().to_string().replace("\\'", "'"),
    )
}
