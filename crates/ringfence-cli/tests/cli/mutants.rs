//! What users get has no mutants. They are built from a copy of the product, beside the normal build: this
//! sees that the two are kept apart.

use std::fs;

#[test]
fn no_rule_can_be_switched_off_in_a_normal_build() {
    let program = fs::read(env!("CARGO_BIN_EXE_ringfence")).unwrap();
    // As text: the search in a string is fast in a test without optimisation, too.
    let program = String::from_utf8_lossy(&program);
    let contains = |word: &str| program.contains(word);
    assert!(
        contains("RINGFENCE_NODES"),
        "a variable that it reads is found"
    );
    assert!(!contains("RINGFENCE_MUTANT"));
    assert!(!contains("FenceNotChecked"));
}
