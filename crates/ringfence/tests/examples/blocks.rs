//! Every block of code of the README and of the documents is tested. Rust is compiled: as a doctest
//! of the crate that includes the document, or as a test of this program. Shell is run by
//! `ringfence-cli/tests/cli/pages.rs`; the others are listed here.

use std::fs;
use std::process::Command;

use crate::examples::{document, output_of, root};

/// The files that include documents as doctests.
const INCLUDING: [&str; 2] = ["crates/ringfence/src/lib.rs", "peers/src/lib.rs"];
/// Includes pages of `docs` by links beside it.
const GUIDE: &str = "crates/ringfence/src/guide.rs";
/// Its blocks are compared with tests that are run, in `user_tests.rs`.
const RUN_AS_TESTS: &str = "docs/testing.md";
/// The blocks in other languages: the document, the language, how many, and what runs them.
const OTHERS: &[(&str, &str, usize, &str)] = &[
    ("README.md", "toml", 1, "the test below"),
    ("docs/dashboard.md", "yaml", 1, "cli/dashboard/answers.rs"),
    ("docs/migrating.md", "go", 1, "peers/tests/interop"),
    ("docs/migrating.md", "js", 1, "peers/tests/interop"),
    ("docs/migrating.md", "python", 1, "peers/tests/interop"),
    ("docs/operations.md", "ini", 4, "./verify: systemd-analyze"),
    (
        "docs/operations.md",
        "yaml",
        2,
        "cli/services.rs; ./verify long: Kubernetes' types",
    ),
    ("docs/resources.md", "python", 1, "resource/guide.rs"),
    ("docs/resources.md", "sql", 6, "resource/guide.rs"),
    ("docs/testing.md", "toml", 1, "the test below"),
    ("docs/when-not.md", "sql", 1, "resource/guide.rs"),
];
/// The languages that other tests find by themselves; `text` is output.
const FOUND: &[&str] = &["rust", "rust,no_run", "console", "sh", "text"];

#[test]
fn every_rust_block_of_the_documents_is_compiled() {
    let including = INCLUDING.map(document).concat();
    let guide = document(GUIDE);
    let is_tested = |item: &&str| !item.contains("#[cfg(not(doctest))]");
    let guide: String = guide.split("\n\n").filter(is_tested).collect();
    let mut with_rust = 0;
    for path in documents() {
        let text = document(&path);
        let fences = text.lines().filter(|line| line.starts_with("```rust"));
        let fences: Vec<&str> = fences.collect();
        if fences.is_empty() {
            continue;
        }
        with_rust += 1;
        let page = path.replace("docs/", "guide/");
        let is_included = including.contains(&format!("/{path}\")]"))
            || guide.contains(&format!("(\"{page}\")]"));
        assert!(
            is_included || path == RUN_AS_TESTS,
            "{path} has Rust that no doctest compiles: include it in {GUIDE}"
        );
        let ignored = fences.iter().any(|fence| fence.contains("ignore"));
        assert!(!ignored, "{path} has Rust that is not compiled");
    }
    assert!(with_rust > 3, "only {with_rust} documents have Rust");
}

#[test]
fn every_other_block_is_listed_with_its_test() {
    for path in documents() {
        let text = document(&path);
        let opening = text.lines().filter_map(|line| {
            let language = line.trim_start().strip_prefix("```")?;
            Some(language).filter(|language| !language.is_empty())
        });
        let opening: Vec<&str> = opening.collect();
        for language in &opening {
            let listed = OTHERS
                .iter()
                .find(|(page, of, ..)| page == &path && of == language);
            let blocks = opening.iter().filter(|one| *one == language).count();
            let is_tested =
                FOUND.contains(language) || listed.is_some_and(|(_, _, count, _)| *count == blocks);
            assert!(
                is_tested,
                "{path}: a test runs {blocks} blocks of {language}? {listed:?}"
            );
        }
    }
}

#[test]
fn cargo_accepts_the_dependencies_that_readers_copy() {
    for (page, features) in [("README.md", ""), ("docs/testing.md", "test-util")] {
        let text = document(page);
        let (_, rest) = text.split_once("```toml\n").expect("a block");
        let (block, _) = rest.split_once("```").expect("its end");
        let here = root().canonicalize().unwrap();
        let block = block.replace("../ringfence/", &format!("{}/", here.display()));
        let folder = tempfile::tempdir().unwrap();
        let package = "[package]\nname = \"reader\"\nedition = \"2024\"\n[workspace]\n";
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("src/lib.rs"), "").unwrap();
        fs::write(
            folder.path().join("Cargo.toml"),
            format!("{package}{block}"),
        )
        .unwrap();
        // The versions of this workspace, which are on this machine.
        fs::copy(here.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--offline", "--depth", "1", "--edges", "normal,dev"]);
        tree.args(["--format", "{p} {f}"])
            .current_dir(folder.path());
        let tree = output_of(&mut tree);
        let line = tree.lines().find(|line| line.contains(" ringfence v"));
        let line = line.unwrap_or_else(|| panic!("{page}: {tree}"));
        assert!(line.contains(features), "{page}: {line}");
    }
}

fn documents() -> Vec<String> {
    let folder = root().join("docs").read_dir().unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md"));
    let mut pages: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    pages.push("README.md".to_owned());
    pages
}
