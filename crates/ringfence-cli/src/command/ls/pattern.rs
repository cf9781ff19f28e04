//! The pattern of `ls`: `*` is any text, `?` is one character.

/// Whether `name` matches `pattern` as a whole.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where to go on if the rest does not match: behind the last `*`, one more character of `name`.
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n + 1));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((behind, next)) = retry else {
                    return false;
                };
                (p, n) = (behind, next);
                retry = Some((behind, next + 1));
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_character() {
        for (pattern, name, is_match) in [
            ("orders:*", "orders:42", true),
            ("orders:*", "orders:", true),
            ("orders:*", "my-orders:42", false),
            ("*:42", "orders:42", true),
            ("*:4?", "orders:42", true),
            ("*:4?", "orders:4", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
            ("naïve?", "naïve…", true),
            ("x", "X", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let name = "a".repeat(1024);
        assert!(!matches(&("*a".repeat(200) + "b"), &name));
    }
}
