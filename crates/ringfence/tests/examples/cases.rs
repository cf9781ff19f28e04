//! The cases: whole small services, each with its failure and what repairs it. The programs check
//! every line before they print it; these tests compare what was shown with the documents.

use crate::examples::{document, example, output_of};

/// The output of a program in `docs/when-not.md`: the block after its comment.
fn in_the_document(program: &str) -> String {
    let page = document("docs/when-not.md");
    let (_, rest) = page
        .split_once(&format!("<!-- {program} -->\n```text\n"))
        .unwrap_or_else(|| panic!("docs/when-not.md has no output of {program}"));
    let (block, _) = rest.split_once("```\n").unwrap();
    block.to_owned()
}

#[test]
fn tasks_go_out_twice_without_the_lock_and_once_with_it() {
    let printed = output_of(&mut example("batch_dispatch"));
    assert_eq!(printed, in_the_document("batch_dispatch"));
}

#[test]
fn points_are_added_once_by_the_unique_key_of_the_database() {
    let printed = output_of(&mut example("bonus_points"));
    assert_eq!(printed, in_the_document("bonus_points"));
}

/// Orders per second differ from machine to machine; round trips do not.
#[test]
fn a_sale_sells_its_stock_once_under_a_lock_and_with_one_script() {
    let without_rates = |text: &str| -> Vec<String> {
        let lines = text.lines();
        let facts = lines.map(|line| line.split("; per second").next().unwrap().to_owned());
        facts.collect()
    };
    let printed = without_rates(&output_of(&mut example("flash_sale")));
    assert_eq!(printed, without_rates(&in_the_document("flash_sale")));
    for trips in [
        "lock: round trips for an order: 9",
        "script: round trips for an order: 1",
    ] {
        assert!(printed.iter().any(|line| line == trips), "{printed:?}");
    }
}
