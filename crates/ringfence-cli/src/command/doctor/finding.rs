//! One line of a diagnosis: what was checked, the result, and what to do.

/// The result of a check, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FindingVerdict {
    /// Nothing is wrong.
    Ok,
    /// Nothing is wrong, but this user may not see or do something.
    Note,
    /// Locks work. An operator should repair it, but not at night.
    Warning,
    /// A node does not vote, or no lock can be taken.
    Problem,
}

impl FindingVerdict {
    /// The word in the JSON output.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One line of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) verdict: FindingVerdict,
    /// The name of the check. Programs rely on it: do not change it.
    pub(super) check: &'static str,
    /// The node that was checked; `None` for all nodes together.
    pub(super) node: Option<String>,
    /// The result: a sentence without a full stop. Its subject is the node, if there is one.
    pub(super) says: String,
    /// What to do.
    pub(super) advice: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, says: impl Into<String>) -> Self {
        Self {
            verdict: FindingVerdict::Ok,
            check,
            node: None,
            says: says.into(),
            advice: None,
        }
    }

    pub(super) fn note(
        check: &'static str,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: FindingVerdict::Note,
            ..Self::warning(check, says, advice)
        }
    }

    pub(super) fn warning(
        check: &'static str,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: FindingVerdict::Warning,
            advice: Some(advice.into()),
            ..Self::ok(check, says)
        }
    }

    pub(super) fn problem(
        check: &'static str,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: FindingVerdict::Problem,
            ..Self::warning(check, says, advice)
        }
    }

    /// The same finding about `node`.
    pub(super) fn of(self, node: &str) -> Self {
        Self {
            node: Some(node.to_owned()),
            ..self
        }
    }
}

/// A list in words: `a`, `a and b`, `a, b and c`.
pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// A count in words: `1 node`, `2 nodes`.
pub(super) fn many(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_with_and() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b"]), "a and b");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    }
}
