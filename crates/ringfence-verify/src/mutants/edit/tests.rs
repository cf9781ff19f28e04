//! Edits applied to a small text.

use super::*;

const TEXT: &str = "\
fn grant(ballot: u64, fence: u64) -> bool {
    let above = ballot > fence;
    above && ballot < MAX
}

impl Entry {
    fn rule(&self) -> Answer {
        match self.key {
            None => Answer::Free,
            Some(key) => Answer::Held(key), // for now
        }
    }
}
";

fn edit(function: &'static str, text: &'static str, replacement: &'static str) -> Edit {
    let file = "src/grant.rs";
    Edit {
        file,
        function,
        text,
        replacement,
    }
}

fn applied(edits: &[(&'static str, Edit)]) -> Result<String, Vec<String>> {
    let edits: Vec<SharedEdit> = edits
        .iter()
        .map(|(name, edit)| SharedEdit {
            edit: *edit,
            mutants: vec![name],
        })
        .collect();
    apply(TEXT, &edits).map_err(|found| found.iter().map(ToString::to_string).collect())
}

#[test]
fn a_text_that_is_found_once_is_replaced_with_its_switch() {
    let edited = applied(&[(
        "FenceNotChecked",
        edit(
            "grant",
            "ballot>fence",
            "ballot > fence || mutant!(FenceNotChecked)",
        ),
    )]);
    let expected = TEXT.replace(
        "ballot > fence",
        "ballot > fence || crate::mutants::is_chosen(\"FenceNotChecked\")",
    );
    assert_eq!(edited, Ok(expected));
}

#[test]
fn a_text_that_is_not_found_or_found_twice_names_its_entry() {
    let missing = applied(&[("A", edit("grant", "fence > ballot", ""))]).unwrap_err();
    assert_eq!(
        missing,
        ["A: in src/grant.rs, function `grant`: not found: fence > ballot"]
    );
    let twice = applied(&[("B", edit("Entry::rule", "Answer", "Reply"))]).unwrap_err();
    let expected = "B: in src/grant.rs, function `Entry::rule`: found 3 times: Answer";
    assert_eq!(twice, [expected]);
    let gone = applied(&[("C", edit("deny", "x", "y"))]).unwrap_err();
    assert_eq!(
        gone,
        ["C: in src/grant.rs, function `deny`: there is no such function"]
    );
    // A text in another function does not count.
    assert!(applied(&[("D", edit("grant", "Answer::Free", ""))]).is_err());
}

#[test]
fn all_misfits_are_reported_at_once() {
    let misfits = applied(&[
        ("A", edit("grant", "no", "")),
        ("B", edit("grant", "nor", "")),
    ]);
    assert_eq!(misfits.unwrap_err().len(), 2);
}

#[test]
fn overlapping_edits_are_reported() {
    let (one, other) = (
        edit(
            "grant",
            "let above = ballot > fence;",
            "let above = mutant!(A);",
        ),
        edit("grant", "ballot > fence; above", "mutant!(B); above"),
    );
    let misfits = applied(&[("A", one), ("B", other)]).unwrap_err();
    let expected =
        "B: in src/grant.rs, function `grant`: overlaps with the edit of A: share one edit";
    assert_eq!(misfits, [expected]);
}

#[test]
fn a_switch_of_a_mutant_that_does_not_name_the_edit_is_reported() {
    let misfits = applied(&[("A", edit("grant", "ballot > fence", "mutant!(B)"))]).unwrap_err();
    let expected =
        "A: in src/grant.rs, function `grant`: has the switch of B, which does not name it";
    assert_eq!(misfits, [expected]);
}

#[test]
fn a_shared_edit_is_applied_once() {
    const BOTH: Edit = Edit {
        file: "src/grant.rs",
        function: "grant",
        text: "ballot > fence",
        replacement: "mutant!(A) || mutant!(B)",
    };
    let [a, b] = ["A", "B"].map(|name| Mutant {
        name,
        rule: "",
        edits: &[BOTH],
    });
    let files = SharedEdit::by_file(&[&a, &b], &[]);
    let edits = &files["src/grant.rs"];
    assert_eq!(edits.len(), 1);
    assert_eq!(edits[0].mutants, ["A", "B"]);
    let edited = apply(TEXT, edits).unwrap();
    assert!(edited.contains("is_chosen(\"A\") || crate::mutants::is_chosen(\"B\");"));
    assert_eq!(switches(BOTH.replacement).collect::<Vec<_>>(), ["A", "B"]);
}

#[test]
fn a_comma_after_the_last_element_is_ignored() {
    let arm = "Some(key) => Answer::Held(key),";
    let instead = "Some(key) if !mutant!(A) => Answer::Held(key),\n_ => Answer::Free,";
    let edited = applied(&[("A", edit("rule", arm, instead))]).unwrap();
    assert!(edited.contains("_ => Answer::Free, // for now"), "{edited}");
}

#[test]
fn a_piece_of_a_script_grows_until_it_is_unique() {
    let scripts = BTreeMap::from([
        (
            "a.lua",
            "local a = 1\nif left < ttl then\n  one()\nend\n".to_owned(),
        ),
        (
            "b.lua",
            "local b = 1\nif left < ttl then\n  two()\nend\n".to_owned(),
        ),
    ]);
    let shorter = Edit {
        file: "a.lua",
        function: "",
        text: "left<ttl",
        replacement: "true",
    };
    let shared = SharedEdit {
        edit: shorter,
        mutants: vec!["LeaseShortened"],
    };
    let piece = pieces(&scripts, &[shared]).unwrap().remove(0);
    assert_eq!(piece.text, "local a = 1\nif left < ttl then\n  one()\n");
    assert_eq!(piece.replacement, "local a = 1\nif true then\n  one()\n");
}
