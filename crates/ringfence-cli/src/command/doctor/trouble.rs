//! What went wrong while a server was looked at, as a finding: its words, and what to do.

use ringfence::node::{Trouble, TroubleKind};

use super::finding::Finding;

/// A look that failed, where the failure itself is the problem.
pub(super) fn problem(check: &'static str, trouble: &Trouble, node: &str) -> Finding {
    Finding::problem(check, said(trouble, node), advice(trouble))
}

/// The words of `trouble` without the name of the node, which stands above them.
pub(super) fn said(trouble: &Trouble, node: &str) -> String {
    let words = trouble.to_string();
    match words.strip_prefix(node) {
        Some(rest) => rest.trim_start().to_owned(),
        None => words,
    }
}

pub(super) fn advice(trouble: &Trouble) -> &'static str {
    let words = &trouble.detail;
    match trouble.kind {
        TroubleKind::Unreachable if words.contains("lookup") => {
            "mend the host's name in --nodes, or its entry in DNS"
        }
        TroubleKind::Unreachable if words.contains("certificate") => {
            "renew its certificate, or name the authority that signed it (?ca=)"
        }
        TroubleKind::Unreachable => "start it, or mend its address, port or firewall",
        TroubleKind::Timeout => {
            "hung, overloaded, behind a firewall, or plain where the URL wants TLS"
        }
        TroubleKind::Disconnected => "see its log: it hung up on us",
        TroubleKind::Loading => "wait until it has read its data",
        TroubleKind::Garbage => "mend the address; a server that wants TLS needs rediss://",
        TroubleKind::Denied => "mend user and password in the URL, or the user's rights",
        TroubleKind::Version => "use one version of ringfence, and the same Sentinels, everywhere",
        TroubleKind::Database => "use a lower database number in the URL",
        _ => "see the server's log",
    }
}
