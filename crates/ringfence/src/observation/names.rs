//! Which locks have a `name` label: those that fit a template of the user. The label is the
//! template, not the lock's name, so there are at most as many values as templates, however many
//! locks there are.

/// The most templates of a client.
#[cfg(any(test, feature = "metrics"))]
pub(crate) const TEMPLATES_MAX: usize = 64;

/// Stands for any text in a template.
const ANY: &str = "{}";

/// The label of a lock: the number of its template, from 1 on, or 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Series(u8);

impl Series {
    pub(crate) const NONE: Self = Self(0);

    #[cfg(feature = "metrics")]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The templates of a client, in the order in which the user gave them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Templates(Vec<String>);

impl Templates {
    /// `None` if there are too many.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn new(templates: Vec<String>) -> Option<Self> {
        (templates.len() <= TEMPLATES_MAX).then_some(Self(templates))
    }

    #[cfg(feature = "metrics")]
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The first template that all `names` fit.
    pub(crate) fn series<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Series {
        let fits = |template: &String| names.clone().all(|name| fits(template, name));
        match self.0.iter().position(fits) {
            Some(index) => Series(index as u8 + 1),
            None => Series::NONE,
        }
    }
}

/// Whether `name` is `template` with some text, at least one character, for each `{}`.
fn fits(template: &str, name: &str) -> bool {
    let Some((start, mut rest_of_template)) = template.split_once(ANY) else {
        return template == name;
    };
    let Some(mut rest) = name.strip_prefix(start) else {
        return false;
    };
    // The earliest place for each part leaves the most for the parts after it.
    while let Some((part, after)) = rest_of_template.split_once(ANY) {
        let Some(found) = find_after_one(rest, part) else {
            return false;
        };
        rest = &rest[found + part.len()..];
        rest_of_template = after;
    }
    rest.len() > rest_of_template.len() && rest.ends_with(rest_of_template)
}

/// Where `part` is in `text`, with at least one character before it.
fn find_after_one(text: &str, part: &str) -> Option<usize> {
    let first = text.chars().next()?.len_utf8();
    text[first..].find(part).map(|at| at + first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_if_each_placeholder_stands_for_some_text() {
        for (template, name, wanted) in [
            ("orders:{}", "orders:42", true),
            ("orders:{}", "orders:", false),
            ("orders:{}", "order:42", false),
            ("orders:{}", "x:orders:42", false),
            ("{}:lock", "a:lock", true),
            ("{}:lock", ":lock", false),
            ("a:{}:b:{}", "a:1:b:2", true),
            ("a:{}:b:{}", "a:1:b:2:b:3", true),
            ("a:{}:b:{}", "a::b:", false),
            ("a{}b{}c", "abbc", false),
            ("a{}b{}c", "axbyc", true),
            ("a{}b{}c", "abbbc", true),
            ("{}", "\u{e9}", true),
            ("{}{}", "\u{e9}", false),
            ("nightly", "nightly", true),
            ("nightly", "nightly2", false),
            ("", "", true),
        ] {
            assert_eq!(fits(template, name), wanted, "{template:?} {name:?}");
        }
    }

    #[test]
    fn the_first_template_that_all_names_fit_is_the_label() {
        let templates = ["orders:{}", "{}:42", "users:{}"].map(str::to_owned);
        let templates = Templates::new(templates.into()).unwrap();
        let series = |names: &[&str]| templates.series(names.iter().copied());
        assert_eq!(series(&["orders:42"]), Series(1));
        assert_eq!(series(&["orders:42", "users:42"]), Series(2));
        assert_eq!(series(&["users:7"]), Series(3));
        assert_eq!(series(&["orders:1", "users:7"]), Series::NONE);
        assert_eq!(series(&["other"]), Series::NONE);
    }

    #[test]
    fn the_number_of_templates_is_bounded() {
        let many = |count| Templates::new(vec![String::from("x"); count]);
        assert!(many(TEMPLATES_MAX).is_some());
        assert!(many(TEMPLATES_MAX + 1).is_none());
    }
}
