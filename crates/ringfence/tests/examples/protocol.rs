//! Every rule of `docs/protocol.md` says why it exists and names tests that exist, and every rule
//! that the name of a test cites is in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::examples::{document, root};

#[test]
fn every_rule_says_why_and_names_tests_that_exist() {
    let tests = functions_in(&root().join("crates"));
    let rules = rules();
    assert!(rules.len() > 50, "only {} rules were found", rules.len());
    let mut wrong = Vec::new();
    for (number, text) in &rules {
        for part in ["*Because* ", "*Shown by* "] {
            if !text.contains(part) {
                wrong.push(format!("{number} has no {part}"));
            }
        }
        for name in quoted(text).filter(|word| word.matches('_').count() >= 3) {
            if !tests.contains(name) {
                wrong.push(format!("{number}: there is no test {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_number_in_the_name_of_a_test_exists() {
    let numbers: BTreeSet<String> = rules().into_iter().map(|(number, _)| number).collect();
    let tests = functions_in(&root().join("crates"));
    let cited: Vec<&str> = tests
        .iter()
        .filter_map(|name| name.strip_prefix("rule_"))
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert!(cited.len() > 100, "only {} tests cite a rule", cited.len());
    for rest in cited {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        assert!(numbers.contains(&digits), "rule_{rest} cites no rule");
    }
}

/// The rules: paragraphs that begin with a number in bold, up to the next rule or heading. Lines
/// are joined.
fn rules() -> Vec<(String, String)> {
    let page = document("docs/protocol.md");
    let mut rules: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with('#') {
            inside = false;
        }
        if let Some(number) = rule_number(line) {
            assert!(
                rules.iter().all(|(other, _)| *other != number),
                "the rule {number} stands twice"
            );
            rules.push((number, String::new()));
            inside = true;
        }
        if inside {
            let (_, text) = rules.last_mut().unwrap();
            text.push_str(line);
            text.push(' ');
        }
    }
    rules
}

/// `N5` of `**N5 Acquire**, in this order:`.
fn rule_number(line: &str) -> Option<String> {
    let rest = line.strip_prefix("**")?;
    let word = rest.split([' ', '*']).next()?;
    let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    (is_number && word.len() - digits.len() <= 1).then(|| word.to_owned())
}

/// The words in back quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names of all functions in the Rust files below `folder`.
fn functions_in(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.extend(functions_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let functions = text.split("fn ").skip(1);
            names.extend(functions.map(|rest| {
                rest.chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect::<String>()
            }));
        }
    }
    names
}
