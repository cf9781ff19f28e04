//! One line of a diagnosis: what was looked at, how it is, and what to do about it.

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FindingVerdict {
    /// As it should be.
    Ok,
    /// Worth knowing, and nothing is wrong: something that the user may not see or do.
    Note,
    /// Locks work, but somebody should look at it by day.
    Warning,
    /// A node does not vote, or no lock can be had.
    Problem,
}

impl FindingVerdict {
    /// For programs.
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
    /// What was looked at: a word that programs can rely on.
    pub(super) check: &'static str,
    /// The node that it is about; `None` if it is about all of them.
    pub(super) node: Option<String>,
    /// How it is: a sentence without a full stop, whose subject is the node if there is one.
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

    /// The same about `node` alone.
    pub(super) fn of(self, node: &str) -> Self {
        Self {
            node: Some(node.to_owned()),
            ..self
        }
    }
}

/// Several nodes in words: `a`, `a and b`, `a, b and c`.
pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// So many in words: `1 node`, `2 nodes`.
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
    fn names_are_listed_as_people_do() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b"]), "a and b");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
    }
}
