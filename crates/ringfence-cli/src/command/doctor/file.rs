//! The findings about an embedded file.

use ringfence::admin::{Contents, FileExamination, FileMode};

use super::finding::{Check, Finding};

pub(super) fn findings(file: &FileExamination) -> Vec<Finding> {
    let mut findings = vec![contents(file)];
    if file.contents.is_ok() {
        findings.push(file_system(file));
        findings.extend(file.mode.map(permissions));
        findings.push(writable(file));
        findings.extend(file.free_bytes.map(space));
    }
    if let Ok(Contents::Ours { wal }) = file.contents {
        findings.push(log(wal));
    }
    findings
}

fn contents(file: &FileExamination) -> Finding {
    const CHECK: Check = Check("file");
    const ELSEWHERE: &str = "name another file with --nodes sqlite:/path";
    match &file.contents {
        Ok(Contents::Missing) => CHECK.ok("does not exist yet: the first lock creates it"),
        Ok(Contents::Fresh) => CHECK.ok("is empty: the first lock sets it up"),
        Ok(Contents::Ours { .. }) => CHECK.ok("is a lock file of ringfence"),
        Ok(Contents::Newer) => {
            CHECK.problem("was made by a newer ringfence", "upgrade this ringfence")
        }
        Ok(Contents::Older) => CHECK.problem(
            "was made by an older ringfence",
            "stop all processes that use the file, then remove it",
        ),
        Ok(Contents::OtherApplication) => {
            CHECK.problem("is a database of another application", ELSEWHERE)
        }
        Ok(Contents::NotADatabase) => CHECK.problem("is not a SQLite database", ELSEWHERE),
        Err(trouble) => CHECK.problem(
            format!("cannot be used: {trouble}"),
            "correct this, or name another file with --nodes sqlite:/path",
        ),
    }
}

fn file_system(file: &FileExamination) -> Finding {
    match file.network {
        Some(kind) => Check("file-system").problem(
            format!("is on a network file system ({kind}), where file locks are not reliable"),
            "use a local file; for several machines, use Redis",
        ),
        None => Check("file-system").ok("is on a local file system"),
    }
}

fn permissions(mode: FileMode) -> Finding {
    const CHECK: Check = Check("permissions");
    let bits = mode.bits;
    let whose = if mode.own {
        "your file"
    } else {
        "another user's file"
    };
    if bits & 0o002 != 0 {
        CHECK.warning(
            format!("has mode {bits:04o}: every user of this machine may take and release locks"),
            "chmod o-w, and let the users who need it share a group",
        )
    } else {
        CHECK.ok(format!("has mode {bits:04o} and is {whose}"))
    }
}

fn writable(file: &FileExamination) -> Finding {
    const CHECK: Check = Check("writable");
    let folder = file.path.parent().unwrap_or(&file.path);
    let folder = folder.display().to_string();
    let folder = folder.escape_debug();
    match (file.writable, file.folder_writable) {
        (true, true) => CHECK.ok("is writable, and its folder too"),
        (false, true) => CHECK.problem(
            "is not writable for this user",
            "run as its owner, or share a file in a folder with a group \
             (install -d -m 2770 -g GROUP FOLDER)",
        ),
        (_, false) => CHECK.problem(
            format!("needs two files beside it, but {folder} is not writable for this user"),
            "name another file with --nodes sqlite:/path; create a folder for several users with \
             install -d -m 2770 -g GROUP FOLDER",
        ),
    }
}

/// What a lock may write beside a file that is not in use: the index of the log, and some pages.
const NEEDED_BYTES: u64 = 64 << 10;
/// With less than this, other programs may soon leave too little.
const LITTLE_BYTES: u64 = 16 << 20;

fn space(free_bytes: u64) -> Finding {
    const CHECK: Check = Check("space");
    let advice = "make room on its file system, or name a file on another one";
    match free_bytes {
        free if free < NEEDED_BYTES => CHECK.problem(
            format!(
                "has {} KB left on its file system, and a lock may need {} KB",
                free >> 10,
                NEEDED_BYTES >> 10
            ),
            advice,
        ),
        free if free < LITTLE_BYTES => CHECK.warning(
            format!("has only {} KB left on its file system", free >> 10),
            advice,
        ),
        free => CHECK.ok(format!("has {} MB left on its file system", free >> 20)),
    }
}

fn log(wal: bool) -> Finding {
    const CHECK: Check = Check("log");
    if wal {
        CHECK.ok("is durable: its write-ahead log is synced before a lock is granted")
    } else {
        CHECK.warning(
            "has no write-ahead log; another program may have changed it",
            "take any lock: ringfence turns the log on again",
        )
    }
}
