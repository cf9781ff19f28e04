//! What was found about an embedded file, as findings.

use ringfence::node::{Contents, FileExamination, FileMode};

use super::finding::Finding;

pub(super) fn findings(file: &FileExamination) -> Vec<Finding> {
    let mut findings = vec![contents(file)];
    if file.contents.is_ok() {
        findings.push(file_system(file));
        findings.extend(file.mode.map(permissions));
        findings.push(writable(file));
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
        Ok(Contents::Missing) => Finding::ok(CHECK, "is not there yet: the first lock makes it"),
        Ok(Contents::Fresh) => Finding::ok(CHECK, "is empty: the first lock sets it up"),
        Ok(Contents::Ours { .. }) => Finding::ok(CHECK, "is a lock file of ringfence"),
        Ok(Contents::Newer) => Finding::problem(
            CHECK,
            "was written by a newer ringfence",
            "upgrade this ringfence",
        ),
        Ok(Contents::OtherApplication) => {
            Finding::problem(CHECK, "is a database of another application", ELSEWHERE)
        }
        Ok(Contents::NotADatabase) => Finding::problem(CHECK, "is no SQLite database", ELSEWHERE),
        Err(trouble) => Finding::problem(
            CHECK,
            format!("cannot be used: {trouble}"),
            "mend the path in --nodes, or make its folder",
        ),
    }
}

fn file_system(file: &FileExamination) -> Finding {
    match file.network {
        Some(kind) => Finding::problem(
            "file-system",
            format!("is on a network file system ({kind}), where locks cannot be relied on"),
            "use a local file, or Redis for several machines",
        ),
        None => Finding::ok("file-system", "is on a local file system"),
    }
}

fn permissions(mode: FileMode) -> Finding {
    const CHECK: &str = "permissions";
    let bits = mode.bits;
    let whose = if mode.own { "yours" } else { "another user's" };
    if bits & 0o002 != 0 {
        Finding::warning(
            CHECK,
            format!("has mode {bits:04o}: anybody on this machine may take and free locks"),
            "chmod o-w, and give those who need it a group",
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
        (true, true) => Finding::ok(CHECK, "may be written, and so may its folder"),
        (false, true) => Finding::problem(
            CHECK,
            "may not be written by this user",
            "run as its owner, or share a file through a folder with a group \
             (install -d -m 2770 -g GROUP FOLDER)",
        ),
        (_, false) => Finding::problem(
            CHECK,
            format!("needs two files beside it, and {folder} may not be written"),
            "name another file with --nodes sqlite:/path; a folder for several users is made with \
             install -d -m 2770 -g GROUP FOLDER",
        ),
    }
}

fn log(wal: bool) -> Finding {
    const CHECK: &str = "log";
    if wal {
        Finding::ok(
            CHECK,
            "is durable: a write-ahead log, synced before a lock counts",
        )
    } else {
        Finding::warning(
            CHECK,
            "has no write-ahead log, as if another program had changed it",
            "take any lock: ringfence sets it again",
        )
    }
}
