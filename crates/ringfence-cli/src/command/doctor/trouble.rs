//! Findings about failed checks: why the server could not be checked, and what to do.

use ringfence::node::{Trouble, TroubleKind};

use super::finding::Finding;

/// A check that failed, where the failure itself is the problem.
pub(super) fn problem(check: &'static str, trouble: &Trouble, node: &str) -> Finding {
    Finding::problem(check, message(trouble, node), advice(trouble))
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
