//! A source file as the edits need it: where its functions are, and which of its bytes are
//! compared.
//!
//! This is not a parser. It knows strings, comments and brackets, and the words `fn`, `impl`,
//! `trait` and `mod`. That is enough for sources that compile and are formatted.

use std::ops::Range;

/// The languages of the files that edits change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// Comments and commas after a last element are ignored.
    Rust,
    /// Only white space is ignored.
    Lua,
}

/// A text without the bytes that are ignored.
#[derive(Debug)]
pub(super) struct Squeezed {
    bytes: Vec<u8>,
    /// The position of each byte in the original text.
    at: Vec<usize>,
}

/// A function: the path of modules, types and functions around it with its own name, and its range.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    path: Vec<String>,
    /// From the word `fn` to the closing brace.
    pub(super) range: Range<usize>,
}

impl Squeezed {
    /// Removes from `text` what is ignored.
    pub(super) fn new(text: &str, language: Language) -> Self {
        let text = match language {
            Language::Rust => blanked(text, false),
            Language::Lua => text.as_bytes().to_vec(),
        };
        let (mut bytes, mut at) = (Vec::new(), Vec::new());
        for (position, byte) in text.into_iter().enumerate() {
            if byte.is_ascii_whitespace() {
                continue;
            }
            let closes = matches!(byte, b')' | b']' | b'}');
            if language == Language::Rust && closes && bytes.last() == Some(&b',') {
                bytes.pop();
                at.pop();
            }
            bytes.push(byte);
            at.push(position);
        }
        Self { bytes, at }
    }

    /// Every occurrence of `wanted` within `scope`, as a range of the original text. A name is
    /// found only as a whole word.
    pub(super) fn find(&self, wanted: &Self, scope: &Range<usize>) -> Vec<Range<usize>> {
        let length = wanted.bytes.len();
        if length == 0 {
            return Vec::new();
        }
        let windows = self.bytes.windows(length).enumerate();
        let found = windows.filter(|(_, window)| *window == wanted.bytes);
        let ranges =
            found.map(|(first, _)| (first, self.at[first]..self.at[first + length - 1] + 1));
        ranges
            .filter(|(_, range)| scope.start <= range.start && range.end <= scope.end)
            .filter(|(first, range)| {
                let before = first
                    .checked_sub(1)
                    .filter(|b| self.at[*b] + 1 == range.start);
                let behind = Some(first + length).filter(|b| self.at.get(*b) == Some(&range.end));
                let joined = |one: usize, other: Option<usize>| {
                    is_word(self.bytes[one]) && other.is_some_and(|o| is_word(self.bytes[o]))
                };
                !joined(*first, before) && !joined(first + length - 1, behind)
            })
            .map(|(_, range)| range)
            .collect()
    }
}

/// All functions of a Rust source, including nested ones.
pub(super) fn functions(text: &str) -> Vec<Function> {
    let code = blanked(text, true);
    let (mut functions, mut open) = (Vec::new(), Vec::<Option<Item>>::new());
    let mut begun: Option<Item> = None;
    let mut at = 0;
    while at < code.len() {
        let word = word_at(&code, at);
        match code[at] {
            b'{' => open.push(begun.take()),
            b'}' => {
                if let Some(Some(item)) = open.pop()
                    && item.keyword == "fn"
                {
                    let around = open.iter().flatten().map(|item| item.name.clone());
                    functions.push(Function {
                        path: around.chain([item.name]).collect(),
                        range: item.start..at + 1,
                    });
                }
            }
            // The semicolon in `[u8; 4]` ends nothing.
            b';' => begun
                .take_if(|item| is_balanced(&code[item.start..at]))
                .map_or((), drop),
            // An `impl Trait` in a signature begins nothing.
            _ if begun.is_none() => begun = Item::at(&code, at, word),
            _ => {}
        }
        at += word.len().max(1);
    }
    functions
}

/// The functions that `name` may mean: `name`, or `Type::name` and the like. A function in a module
/// `tests` matches only if `name` contains that module.
pub(super) fn named<'a>(functions: &'a [Function], name: &str) -> Vec<&'a Function> {
    let wanted: Vec<&str> = name.split("::").collect();
    let is_meant = |function: &&Function| {
        let path: Vec<&str> = function.path.iter().map(String::as_str).collect();
        let in_tests = path.contains(&"tests") && !wanted.contains(&"tests");
        path.ends_with(&wanted) && !in_tests
    };
    functions.iter().filter(is_meant).collect()
}

/// An item whose body is in braces.
struct Item {
    keyword: &'static str,
    name: String,
    start: usize,
}

impl Item {
    /// The item that begins with `word` at `at`, if one does.
    fn at(code: &[u8], at: usize, word: &str) -> Option<Self> {
        let keywords = ["fn", "mod", "trait", "impl"];
        let keyword = keywords.into_iter().find(|keyword| *keyword == word)?;
        let behind = &code[at + word.len()..];
        let name = if keyword == "impl" {
            // Elsewhere `impl` is part of a type.
            let before = code[..at].trim_ascii_end().last();
            before
                .is_none_or(|byte| b"{};]".contains(byte))
                .then(|| implemented(behind))?
        } else {
            let blank = behind
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            let name = word_at(behind, blank);
            // The type `fn(…)` has no name.
            (blank > 0 && !name.is_empty()).then(|| name.to_owned())?
        };
        let start = at;
        Some(Self {
            keyword,
            name,
            start,
        })
    }
}

/// The name of the type in the text after an `impl`.
fn implemented(behind: &[u8]) -> String {
    let end = behind.iter().position(|byte| *byte == b'{');
    let header = String::from_utf8_lossy(&behind[..end.unwrap_or(behind.len())]);
    let header = header.replace("->", "");
    let (mut plain, mut depth) = (String::new(), 0usize);
    for letter in header.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let plain: Vec<&str> = plain.split_whitespace().collect();
    let of_type = match plain.iter().position(|word| *word == "for") {
        Some(at) => plain.get(at + 1),
        None => plain.first(),
    };
    let name = of_type.and_then(|path| path.rsplit("::").next());
    name.unwrap_or_default().to_owned()
}

fn is_balanced(code: &[u8]) -> bool {
    let count = |wanted: u8| code.iter().filter(|byte| **byte == wanted).count();
    count(b'(') == count(b')') && count(b'[') == count(b']')
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The whole word that begins at `at`; empty if there is none.
fn word_at(code: &[u8], at: usize) -> &str {
    let length = code[at..].iter().take_while(|byte| is_word(**byte)).count();
    std::str::from_utf8(&code[at..at + length]).unwrap_or_default()
}

/// A Rust source of the same length with its comments blanked, and its strings if `strings`.
fn blanked(text: &str, strings: bool) -> Vec<u8> {
    let mut code = text.as_bytes().to_vec();
    let mut at = 0;
    while at < code.len() {
        let (length, blank) = match text.as_bytes()[at..] {
            [b'/', b'/', ..] => (line_comment(&text[at..]), true),
            [b'/', b'*', ..] => (block_comment(&text.as_bytes()[at..]), true),
            [b'"' | b'\'' | b'r' | b'b', ..] => (literal(text, at), strings),
            _ => (0, false),
        };
        if blank {
            code[at..at + length].fill(b' ');
        }
        let word = word_at(text.as_bytes(), at).len();
        at += length.max(word).max(1);
    }
    code
}

fn line_comment(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

fn block_comment(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        match text[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            [] => return at,
            _ => at += 1,
        }
    }
}

/// The length of the string or character literal that begins at `at`; 0 for a word or a lifetime.
fn literal(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let plain = rest.trim_start_matches(['b', 'r']);
    let prefix = rest.len() - plain.len();
    let hashes = plain.len() - plain.trim_start_matches('#').len();
    let is_raw = rest[..prefix].ends_with('r');
    let opening = prefix + if is_raw { hashes } else { 0 };
    match rest.as_bytes().get(opening) {
        Some(b'"') if is_raw => {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = opening + 1;
            rest[body..]
                .find(&end)
                .map_or(rest.len(), |found| body + found + end.len())
        }
        Some(b'"') if prefix <= 1 => opening + 1 + closed_by(&rest[opening + 1..], b'"'),
        Some(b'\'') if prefix <= 1 => {
            let body = &rest[opening + 1..];
            let first = body.chars().next().map_or(0, char::len_utf8);
            let is_character = body.starts_with('\\') || body[first..].starts_with('\'');
            if is_character {
                opening + 1 + closed_by(body, b'\'')
            } else {
                0
            }
        }
        _ => 0,
    }
}

/// The length up to and including the first `quote` that is not escaped.
fn closed_by(body: &str, quote: u8) -> usize {
    let (mut at, bytes) = (0, body.as_bytes());
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

#[cfg(test)]
mod tests;
