//! Every Rust block of the README and of the documents is compiled: as a doctest of the crate that
//! includes the document, or as a test of this program.

use crate::document;

/// The files that include documents as doctests.
const INCLUDING: [&str; 3] = [
    "crates/ringfence/src/lib.rs",
    "crates/ringfence/src/resource/mod.rs",
    "peers/src/lib.rs",
];
/// Its blocks are compared with tests that are run, in `user_tests.rs`.
const RUN_AS_TESTS: &str = "docs/testing.md";

#[test]
fn every_rust_block_of_the_documents_is_compiled() {
    let including = INCLUDING.map(document).concat();
    let mut with_rust = 0;
    for path in documents() {
        let text = document(&path);
        let fences = text.lines().filter(|line| line.starts_with("```rust"));
        let fences: Vec<&str> = fences.collect();
        if fences.is_empty() {
            continue;
        }
        with_rust += 1;
        let is_included = including.contains(&format!("/{path}\")]"));
        assert!(
            is_included || path == RUN_AS_TESTS,
            "{path} has Rust that no doctest compiles: include it in crates/ringfence/src/lib.rs"
        );
        let ignored = fences.iter().any(|fence| fence.contains("ignore"));
        assert!(!ignored, "{path} has Rust that is not compiled");
    }
    assert!(with_rust > 3, "only {with_rust} documents have Rust");
}

fn documents() -> Vec<String> {
    let folder = crate::root().join("docs").read_dir().unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md"));
    let mut pages: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    pages.push("README.md".to_owned());
    pages
}
