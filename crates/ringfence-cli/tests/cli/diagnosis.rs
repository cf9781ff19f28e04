//! Runs `ringfence doctor` and compares its text with its JSON, for the tests about it.

use ringfence_testkit::Server;
use serde_json::Value;

use super::scene::{Finished, Scene};

/// Runs the doctor, and checks that text and JSON have the same verdicts. Returns both.
#[track_caller]
pub(crate) fn doctor(scene: &Scene, code: i32) -> (String, Value) {
    let done = Finished::of(scene.ringfence(&["doctor"]));
    assert_eq!(done.code(), code, "{}{}", done.stdout(), done.stderr());
    assert_eq!(done.stderr(), "");
    let text = done.stdout().to_owned();
    assert!(!text.contains('\x1b'), "there is colour in a pipe");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let done = Finished::of(scene.ringfence(&["doctor", "--json"]));
    assert_eq!(done.code(), code, "{}", done.stdout());
    let value: Value = serde_json::from_str(done.stdout()).expect("JSON");
    let verdict = |word: &str| {
        let findings = value["findings"].as_array().unwrap().iter();
        findings
            .filter(|finding| finding["verdict"] == word)
            .count()
    };
    // Problems are repeated at the end.
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
    found.unwrap_or_else(|| panic!("no finding {check} about {node:?} in {value:#}"))
}

#[track_caller]
pub(crate) fn assert_says(finding: &Value, verdict: &str, words: &[&str]) {
    assert_eq!(finding["verdict"], verdict, "{finding}");
    let all = format!("{} {}", finding["says"], finding["advice"]);
    for word in words {
        assert!(all.contains(word), "no `{word}` in {all}");
    }
}
