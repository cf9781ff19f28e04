//! What is found in a small source.

use super::*;

const SOURCE: &str = r##"
//! fn in_a_comment() {}
use std::fmt;

fn alone(list: [u8; 4]) -> impl Iterator<Item = u8> {
    let brace = '{';
    let text = "fn in_a_string() {"; // }
    let raw = r#"a " { b"#;
    fn within() {}
    list.into_iter()
}

impl<'a, T: Into<Vec<u8>>> fmt::Display for Wrapped<'a, T>
where
    T: Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.one { b'}' => Ok(()), '\'' => Ok(()), _ => Err(fmt::Error) }
    }
}

impl Plain {
    const COUNT: fn(usize) -> bool = |_| true;

    fn fmt(&self, then: impl FnOnce()) {}
}

trait Sends {
    fn send(&self);
    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    fn alone() {}
}
"##;

fn paths(found: &[&Function]) -> Vec<String> {
    found
        .iter()
        .map(|function| function.path.join("::"))
        .collect()
}

#[test]
fn functions_are_found_with_the_types_and_modules_around_them() {
    let mut found = functions(SOURCE);
    found.sort_by_key(|function| function.range.start);
    let all: Vec<&Function> = found.iter().collect();
    let expected = [
        "alone",
        "alone::within",
        "Wrapped::fmt",
        "Plain::fmt",
        "Sends::flush",
        "tests::alone",
    ];
    assert_eq!(paths(&all), expected);
    let text = &SOURCE[found[0].range.clone()];
    assert!(text.starts_with("fn alone(list"), "{text}");
    assert!(text.ends_with("list.into_iter()\n}"), "{text}");
}

#[test]
fn a_name_means_a_function_of_the_tests_only_if_it_names_the_module() {
    let found = functions(SOURCE);
    assert_eq!(paths(&named(&found, "alone")), ["alone"]);
    assert_eq!(paths(&named(&found, "tests::alone")), ["tests::alone"]);
    assert_eq!(paths(&named(&found, "within")), ["alone::within"]);
    assert_eq!(paths(&named(&found, "Plain::fmt")), ["Plain::fmt"]);
    assert_eq!(named(&found, "fmt").len(), 2);
    assert_eq!(named(&found, "send").len(), 0);
}

fn found(text: &str, wanted: &str, language: Language) -> Vec<String> {
    let found =
        Squeezed::new(text, language).find(&Squeezed::new(wanted, language), &(0..text.len()));
    found
        .into_iter()
        .map(|range| text[range].to_owned())
        .collect()
}

#[test]
fn white_space_comments_and_last_commas_are_ignored() {
    let text = "call(\n    first, // why\n    /* { */ second,\n);\n";
    let whole = text.trim_end();
    assert_eq!(found(text, "call(first, second);", Language::Rust), [whole]);
    assert_eq!(
        found("a(b, c);", "a(\n  b,\n  c,\n);", Language::Rust),
        ["a(b, c);"]
    );
    // What looks like a comment inside a string is not one.
    let url = r#"open("redis://a", 1)"#;
    assert_eq!(found(url, r#"open("redis://a",1)"#, Language::Rust), [url]);
    assert!(found(url, r#"open("redis:"#, Language::Rust).len() == 1);
    assert_eq!(
        found("if a  then\n  b", "if a then b", Language::Lua),
        ["if a  then\n  b"]
    );
}

#[test]
fn names_are_found_as_whole_words() {
    assert_eq!(
        found("relate(); late(); late_r();", "late", Language::Rust),
        ["late"]
    );
    assert_eq!(found("let x = 1;", "x=1", Language::Rust), ["x = 1"]);
}

#[test]
fn only_the_scope_is_searched() {
    let text = "fn a() { x } fn b() { x }";
    let squeezed = Squeezed::new(text, Language::Rust);
    let wanted = Squeezed::new("x", Language::Rust);
    assert_eq!(squeezed.find(&wanted, &(0..12)), vec![9..10]);
    assert_eq!(squeezed.find(&wanted, &(0..text.len())).len(), 2);
}
