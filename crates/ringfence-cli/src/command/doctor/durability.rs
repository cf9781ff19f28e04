//! The finding about what a crash or a failover of a server costs.

use ringfence::admin::{Identity, OnDisk, ServerExamination};
use ringfence::node::Tier;

use ringfence_core::group::Failover;

use super::finding::{Check, Finding};
use crate::duration;

const CHECK: Check = Check("durability");

/// What a crash or a failover of `server` costs, which is one of `nodes`.
pub(super) fn of(server: &ServerExamination, identity: &Identity, nodes: usize) -> Finding {
    let (tier, why) = (identity.tier, why_not_durable(server, identity));
    let forgets = matches!(identity.on_disk, OnDisk::Later | OnDisk::Never);
    if server.said_durable && (forgets || identity.has_replicas) {
        return CHECK.problem(
            format!("not durable ({why}), although the URL has ?durable=yes: it does not vote"),
            "set `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no`, and \
             remove its replicas; or remove ?durable=yes from the URL",
        );
    }
    if let Some(says) = failover(server, identity, nodes, why) {
        return CHECK.ok(says);
    }
    match tier {
        Tier::Durable => CHECK.ok(format!("{tier}: a lock is on disk before it is granted")),
        Tier::Quarantined if identity.on_disk == OnDisk::Unknown => CHECK.note(
            format!(
                "not visible to this user: appendfsync (CONFIG GET); treated as {tier}: {}",
                match nodes {
                    1 => "after a restart two clients may hold one lock",
                    _ => "after a restart it does not vote for a while",
                }
            ),
            "if it has `appendfsync always`, add ?durable=yes to its URL",
        ),
        _ if nodes == 1 => CHECK.warning(
            format!("{tier} ({why}): after a restart two clients may hold one lock"),
            "set `appendonly yes` and `appendfsync always` and use no replica, or use three nodes; \
             if a failover replaces this server, add ?failover=quarantine to its URL",
        ),
        Tier::BestEffort if server.quarantine_off => CHECK.warning(
            format!("{tier} (?quarantine=off): after a restart two clients may hold one lock"),
            "this is for development: remove it from the URL",
        ),
        _ => CHECK.ok(format!(
            "{tier} ({why}): after a restart it does not vote for a while"
        )),
    }
}

fn why_not_durable(server: &ServerExamination, identity: &Identity) -> &'static str {
    match identity.on_disk {
        _ if identity.memory.evicts() => "evicts keys",
        OnDisk::Always if identity.has_replicas => "has replicas",
        OnDisk::Always if server.birth.as_ref().is_ok_and(|birth| birth.replicated) => {
            "once had a replica"
        }
        OnDisk::Always => "appendfsync is always now, but was not before",
        OnDisk::Later => "appendfsync is not always",
        OnDisk::Never => "no append-only file",
        OnDisk::Unknown => "appendfsync is not visible to this user",
    }
}

/// What a failover costs a single server that is protected against it.
fn failover(
    server: &ServerExamination,
    identity: &Identity,
    nodes: usize,
    why: &str,
) -> Option<String> {
    let birth = server.birth.as_ref().ok()?;
    let (group, tier) = (birth.group?, identity.tier);
    let replicated = identity.has_replicas || birth.replicated;
    match tier {
        _ if nodes != 1 => None,
        Tier::Durable if group.failover == Failover::Lossless => Some(format!(
            "{tier} (failover=lossless): a failover costs nothing, by the operator's word"
        )),
        Tier::Quarantined if group.failover.quarantines(replicated) => Some(format!(
            "{tier} ({why}): after a failover or a restart it grants nothing new for {}, and \
             holders keep their locks",
            duration::show(group.quarantine)
        )),
        _ => None,
    }
}

/// The one finding about a server whose state our user may not read.
pub(super) fn of_unseen(server: &ServerExamination, identity: &Identity) -> Finding {
    let (user, tier) = (server.user.escape_debug(), identity.tier);
    let grant = format!("ACL SETUSER {user} +info");
    match tier {
        Tier::Durable => CHECK.note(
            format!("denies user {user} INFO; {tier} by the operator's word (failover=lossless)"),
            grant,
        ),
        _ => CHECK.warning(
            format!(
                "denies user {user} INFO; {tier}: a restart with old data is not noticed, nor a \
                 failover without Sentinels, and two clients may then hold one lock"
            ),
            format!("{grant}; if no failover loses a write, add ?failover=lossless to its URL"),
        ),
    }
}
