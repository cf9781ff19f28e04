//! What `ringfence doctor` says, as text and as JSON.

use ringfence_testkit::Server;
use serde_json::Value;

use super::scene::{Finished, Scene};

/// What the doctor says in text, after checking that its JSON has the same verdicts.
#[track_caller]
pub(crate) fn doctor(scene: &Scene, code: i32) -> (String, Value) {
    let said = Finished::of(scene.ringfence(&["doctor"]));
    assert_eq!(said.code(), code, "{}{}", said.stdout(), said.stderr());
    assert_eq!(said.stderr(), "");
    let text = said.stdout().to_owned();
    assert!(!text.contains('\x1b'), "no colour in a pipe");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let said = Finished::of(scene.ringfence(&["doctor", "--json"]));
    assert_eq!(said.code(), code, "{}", said.stdout());
    let value: Value = serde_json::from_str(said.stdout()).expect("JSON");
    let verdict = |word: &str| {
        let findings = value["findings"].as_array().unwrap().iter();
        findings
            .filter(|finding| finding["verdict"] == word)
            .count()
    };
    // Problems stand at the end once more.
    let lines = |word: &str| text.matches(&format!("\n  {word:<8} ")).count();
    assert_eq!(verdict("problem") * 2, lines("PROBLEM"), "{text}{value}");
    assert_eq!(verdict("warning"), lines("warning"), "{text}{value}");
    assert_eq!(verdict("ok"), lines("ok"), "{text}{value}");
    assert_eq!(verdict("note"), lines("note"), "{text}{value}");
    assert_eq!(value["problems"], verdict("problem"));
    assert_eq!(value["verdict"] == "problem", code == 1);
    (text, value)
}

/// The finding about `check` that is not ok, about `node` if it is about one.
#[track_caller]
pub(crate) fn finding<'v>(value: &'v Value, check: &str, node: Option<&Server>) -> &'v Value {
    let node = node.map(|server| server.addr().to_string());
    let findings = value["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| {
        finding["check"] == check
            && finding["verdict"] != "ok"
            && finding["node"].as_str() == node.as_deref()
    });
    found.unwrap_or_else(|| panic!("nothing wrong with {check} of {node:?} in {value:#}"))
}

#[track_caller]
pub(crate) fn assert_says(finding: &Value, verdict: &str, words: &[&str]) {
    assert_eq!(finding["verdict"], verdict, "{finding}");
    let all = format!("{} {}", finding["says"], finding["advice"]);
    for word in words {
        assert!(all.contains(word), "no `{word}` in {all}");
    }
}
