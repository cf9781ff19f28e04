//! Findings about an embedded file.

use std::path::PathBuf;

use ringfence::admin::{Contents, Examination, FileExamination, FileMode, Found, Machine};
use ringfence::node::TroubleKind;

use super::{only, trouble};
use crate::command::doctor::diagnosis::Diagnosis;
use crate::command::doctor::finding::FindingVerdict;

fn file() -> FileExamination {
    FileExamination {
        path: PathBuf::from("/var/lib/locks.db"),
        network: None,
        contents: Ok(Contents::Ours { wal: true }),
        mode: Some(FileMode {
            bits: 0o600,
            own: true,
        }),
        writable: true,
        folder_writable: true,
        free_bytes: Some(1 << 30),
    }
}

fn of_file(file: FileExamination) -> Diagnosis {
    let examination = Examination {
        node: "sqlite:/var/lib/locks.db".to_owned(),
        machine: Machine::ThisOne,
        found: Ok(Found::File(Box::new(file))),
    };
    Diagnosis::of(&[examination], None)
}

#[test]
fn a_usable_lock_file_has_no_problems() {
    for contents in [
        Contents::Missing,
        Contents::Fresh,
        Contents::Ours { wal: true },
    ] {
        let file = FileExamination {
            contents: Ok(contents),
            ..file()
        };
        assert_eq!(of_file(file).verdict(), FindingVerdict::Ok, "{contents:?}");
    }
}

#[test]
fn a_file_that_cannot_hold_locks_is_a_problem() {
    let with = |contents| FileExamination { contents, ..file() };
    let missing = trouble(TroubleKind::Other, "its folder does not exist");
    for (file, check) in [
        (with(Ok(Contents::Newer)), "file"),
        (with(Ok(Contents::Older)), "file"),
        (with(Ok(Contents::OtherApplication)), "file"),
        (with(Ok(Contents::NotADatabase)), "file"),
        (with(Err(missing)), "file"),
        (
            FileExamination {
                network: Some("NFS"),
                ..file()
            },
            "file-system",
        ),
        (
            FileExamination {
                writable: false,
                ..file()
            },
            "writable",
        ),
        (
            FileExamination {
                folder_writable: false,
                ..file()
            },
            "writable",
        ),
    ] {
        let diagnosis = of_file(file);
        assert_eq!(only(&diagnosis, check).verdict, FindingVerdict::Problem);
        assert!(!diagnosis.has_quorum(), "{diagnosis:?}");
    }
    let open = FileMode {
        bits: 0o666,
        own: true,
    };
    let open = of_file(FileExamination {
        mode: Some(open),
        ..file()
    });
    assert_eq!(only(&open, "permissions").verdict, FindingVerdict::Warning);
    let plain = of_file(with(Ok(Contents::Ours { wal: false })));
    assert_eq!(only(&plain, "log").verdict, FindingVerdict::Warning);
}

#[test]
fn a_file_system_that_is_full_is_a_problem_and_one_that_is_nearly_full_a_warning() {
    for (free_bytes, verdict) in [
        (Some(0), FindingVerdict::Problem),
        (Some(60 << 10), FindingVerdict::Problem),
        (Some(1 << 20), FindingVerdict::Warning),
        (Some(1 << 30), FindingVerdict::Ok),
        (None, FindingVerdict::Ok),
    ] {
        let diagnosis = of_file(FileExamination {
            free_bytes,
            ..file()
        });
        assert_eq!(
            diagnosis.verdict(),
            verdict,
            "{free_bytes:?}: {diagnosis:#?}"
        );
        let is_usable = verdict != FindingVerdict::Problem;
        assert_eq!(diagnosis.has_quorum(), is_usable, "{diagnosis:#?}");
    }
}
