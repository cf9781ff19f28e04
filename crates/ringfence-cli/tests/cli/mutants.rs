//! Checks that the program contains no mutants. They are built from a copy of the product, beside
//! the normal build.

use std::fs;

#[test]
fn no_rule_can_be_switched_off_in_a_normal_build() {
    let program = fs::read(env!("CARGO_BIN_EXE_ringfence")).unwrap();
    // Search in a string: that is fast even in a test without optimisation.
    let program = String::from_utf8_lossy(&program);
    let contains = |word: &str| program.contains(word);
    assert!(
        contains("RINGFENCE_NODES"),
        "the search finds a variable that the program reads"
    );
    assert!(!contains("RINGFENCE_MUTANT"));
    assert!(!contains("FenceNotChecked"));
}
