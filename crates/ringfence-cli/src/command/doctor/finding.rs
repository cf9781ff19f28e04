//! One line of a diagnosis: what was checked, the result, and what to do. Also the findings about checks
//! that failed.

use ringfence::node::{Trouble, TroubleKind};

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
    /// The name of the check.
    pub(super) check: &'static str,
    /// The node that was checked; `None` for all nodes together.
    pub(super) node: Option<String>,
    /// The result: a sentence without a full stop. Its subject is the node, if there is one.
    pub(super) says: String,
    /// What to do.
    pub(super) advice: Option<String>,
}

/// The name of a check, which makes its findings. Programs rely on the name: do not change it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Check(pub(super) &'static str);

impl Check {
    pub(super) fn ok(self, says: impl Into<String>) -> Finding {
        Finding {
            verdict: FindingVerdict::Ok,
            check: self.0,
            node: None,
            says: says.into(),
            advice: None,
        }
    }

    pub(super) fn note(self, says: impl Into<String>, advice: impl Into<String>) -> Finding {
        self.advise(FindingVerdict::Note, says, advice)
    }

    pub(super) fn warning(self, says: impl Into<String>, advice: impl Into<String>) -> Finding {
        self.advise(FindingVerdict::Warning, says, advice)
    }

    pub(super) fn problem(self, says: impl Into<String>, advice: impl Into<String>) -> Finding {
        self.advise(FindingVerdict::Problem, says, advice)
    }

    fn advise(
        self,
        verdict: FindingVerdict,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding {
            verdict,
            advice: Some(advice.into()),
            ..self.ok(says)
        }
    }
}

impl Finding {
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

/// A check that failed, where the failure itself is the problem.
pub(super) fn failed(check: Check, trouble: &Trouble, node: &str) -> Finding {
    check.problem(message(trouble, node), advice(trouble))
}

/// The message of `trouble` without the name of the node, which is the heading above it.
pub(super) fn message(trouble: &Trouble, node: &str) -> String {
    let message = trouble.to_string();
    match message.strip_prefix(node) {
        Some(rest) => rest.trim_start().to_owned(),
        None => message,
    }
}

pub(super) fn advice(trouble: &Trouble) -> &'static str {
    let detail = &trouble.detail;
    match trouble.kind {
        TroubleKind::NoSuchHost => "correct the host name in --nodes, or its DNS entry",
        TroubleKind::Unreachable if detail.contains("lookup") => {
            "check the DNS servers of this machine, or the host name in --nodes"
        }
        TroubleKind::Tls if detail.contains("for TLS") => {
            "correct the files in its URL (?ca=, ?cert=, ?key=)"
        }
        TroubleKind::Tls if detail.contains("not valid for name") => {
            "use a name of its certificate in --nodes, or give it a certificate for this name"
        }
        TroubleKind::Tls if detail.contains("of an authority as its own") => {
            "give it a certificate of its own"
        }
        TroubleKind::Tls if detail.contains("does not use TLS") => {
            "use redis:// in --nodes, or its TLS port"
        }
        TroubleKind::Tls => "renew its certificate, or name the authority that signed it (?ca=)",
        TroubleKind::Unreachable => "start it, or correct its address, port or firewall",
        TroubleKind::Timeout => {
            "check whether it is hung, overloaded or behind a firewall, or speaks no TLS"
        }
        TroubleKind::Disconnected => "see its log: it closed the connection",
        TroubleKind::Loading => "wait until it has loaded its data",
        TroubleKind::Garbage => "correct the address; a server with TLS needs rediss://",
        TroubleKind::Denied => "correct user and password in the URL, or the user's rights",
        TroubleKind::Version => {
            "use one version of ringfence, and the same Sentinels, in every client"
        }
        TroubleKind::Database => "use a lower database number in the URL",
        _ => "see the server's log",
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
