//! The findings about an embedded file.

use ringfence::node::{Contents, FileExamination, FileMode};

use super::finding::Finding;

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
    const CHECK: &str = "file";
    const ELSEWHERE: &str = "name another file with --nodes sqlite:/path";
    match &file.contents {
        Ok(Contents::Missing) => {
            Finding::ok(CHECK, "does not exist yet: the first lock creates it")
        }
        Ok(Contents::Fresh) => Finding::ok(CHECK, "is empty: the first lock sets it up"),
        Ok(Contents::Ours { .. }) => Finding::ok(CHECK, "is a lock file of ringfence"),
        Ok(Contents::Newer) => Finding::problem(
            CHECK,
            "was made by a newer ringfence",
            "upgrade this ringfence",
        ),
        Ok(Contents::Older) => Finding::problem(
            CHECK,
            "was made by an older ringfence",
            "stop all processes that use the file, then remove it",
        ),
        Ok(Contents::OtherApplication) => {
            Finding::problem(CHECK, "is a database of another application", ELSEWHERE)
        }
        Ok(Contents::NotADatabase) => {
            Finding::problem(CHECK, "is not a SQLite database", ELSEWHERE)
        }
        Err(trouble) => Finding::problem(
            CHECK,
            format!("cannot be used: {trouble}"),
            "correct this, or name another file with --nodes sqlite:/path",
        ),
    }
}

fn file_system(file: &FileExamination) -> Finding {
    match file.network {
        Some(kind) => Finding::problem(
            "file-system",
            format!("is on a network file system ({kind}), where file locks are not reliable"),
            "use a local file; for several machines, use Redis",
        ),
        None => Finding::ok("file-system", "is on a local file system"),
    }
}

fn permissions(mode: FileMode) -> Finding {
    const CHECK: &str = "permissions";
    let bits = mode.bits;
    let whose = if mode.own {
        "your file"
    } else {
        "another user's file"
    };
    if bits & 0o002 != 0 {
        Finding::warning(
            CHECK,
            format!("has mode {bits:04o}: every user of this machine may take and release locks"),
            "chmod o-w, and let the users who need it share a group",
        )
    } else {
        Finding::ok(CHECK, format!("has mode {bits:04o} and is {whose}"))
    }
}

fn writable(file: &FileExamination) -> Finding {
    const CHECK: &str = "writable";
    let folder = file.path.parent().unwrap_or(&file.path);
    let folder = folder.display().to_string();
    let folder = folder.escape_debug();
    match (file.writable, file.folder_writable) {
        (true, true) => Finding::ok(CHECK, "is writable, and its folder too"),
        (false, true) => Finding::problem(
            CHECK,
            "is not writable for this user",
            "run as its owner, or share a file in a folder with a group \
             (install -d -m 2770 -g GROUP FOLDER)",
        ),
        (_, false) => Finding::problem(
            CHECK,
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
    const CHECK: &str = "space";
    let advice = "make room on its file system, or name a file on another one";
    match free_bytes {
        free if free < NEEDED_BYTES => Finding::problem(
            CHECK,
            format!(
                "has {} KB left on its file system, and a lock may need {} KB",
                free >> 10,
                NEEDED_BYTES >> 10
            ),
            advice,
        ),
        free if free < LITTLE_BYTES => Finding::warning(
            CHECK,
            format!("has only {} KB left on its file system", free >> 10),
            advice,
        ),
        free => Finding::ok(
            CHECK,
            format!("has {} MB left on its file system", free >> 20),
        ),
    }
}

fn log(wal: bool) -> Finding {
    const CHECK: &str = "log";
    if wal {
        Finding::ok(
            CHECK,
            "is durable: its write-ahead log is synced before a lock is granted",
        )
    } else {
        Finding::warning(
            CHECK,
            "has no write-ahead log; another program may have changed it",
            "take any lock: ringfence turns the log on again",
        )
    }
}
