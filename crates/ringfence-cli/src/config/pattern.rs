//! Patterns of lock names: `*` is any text, `?` one character, everything else itself.

/// Whether `pattern` fits the whole `name`.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // Where the last `*` stands, and how much of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while seen < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&c) if c == '?' || c == name[seen] => {
                at += 1;
                seen += 1;
            }
            _ => match &mut star {
                None => return false,
                Some((after, taken)) => {
                    *taken += 1;
                    (at, seen) = (*after + 1, *taken);
                }
            },
        }
    }
    pattern[at..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_is_any_text_and_a_question_mark_one_character() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("backup-*", "backup-", true),
            ("backup-*", "backup-db", true),
            ("backup-*", "a-backup-db", false),
            ("*:nightly", "eu:west:nightly", true),
            ("*:nightly", "eu:nightly:x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("job-?", "job-é", true),
            ("job-?", "job-10", false),
            ("x", "x", true),
            ("", "x", false),
            ("[a]", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern:?} and {name:?}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let name = "a".repeat(2000);
        assert!(!fits(&format!("{}b", "*a".repeat(500)), &name));
    }
}
