//! The findings about one server. `cluster.rs` compares it with the others.

use std::time::Duration;

use ringfence::admin::{
    Birth, ClockSample, Identity, Keys, Role, ServerExamination, Voting, WriteStop,
};
use ringfence::node::{Trouble, TroubleKind};

use ringfence_core::group::Group;

use super::durability;
use super::finding::{Check, Finding, advice, failed, message};
use super::rights::rights;
use super::service;
use crate::duration;
use crate::report::many;

/// The oldest release of Redis that `./verify` tests. Every Valkey comes from a later one.
const OLDEST_TESTED: (u32, u32) = (7, 0);
/// A server that answers more slowly than this is too slow for locks with a short TTL.
const SLOW: Duration = Duration::from_millis(100);
/// A server that uses more than this part of its memory will soon refuse locks.
const NEARLY_FULL: (u64, u64) = (9, 10);

/// The findings about one of `nodes` servers. If `name` is given, they include the rights to it.
pub(super) fn findings(
    server: &ServerExamination,
    node: &str,
    nodes: usize,
    name: Option<&str>,
) -> Vec<Finding> {
    let mut findings = vec![reach(&server.clock, node)];
    if let Some(found) = &server.service {
        findings.extend(service::findings(found, server));
    }
    match &server.identity {
        Ok(identity) if identity.unseen => findings.push(durability::of_unseen(server, identity)),
        Ok(identity) => {
            findings.push(version(identity));
            findings.push(role(identity));
            if identity.role != Role::Master {
                // Other findings do not matter: this server cannot keep locks.
                return findings;
            }
            findings.push(durability::of(server, identity, nodes));
            findings.push(eviction(server, identity));
            findings.extend(replication(server.birth.as_ref().ok(), identity));
            findings.push(writes(&server.write_stops));
        }
        Err(trouble) => findings.push(failed(Check("identity"), trouble, node)),
    }
    findings.push(birth(&server.birth, node, nodes));
    findings.push(rights(server, node, name));
    findings.push(keys(&server.keys, node));
    if !server.pushes {
        findings.push(Check("wakes").warning(
            "cannot push: waiters are not woken, and poll",
            "use a server that speaks RESP3, and allow the user `hello`",
        ));
    }
    findings
}

fn reach(clock: &Result<ClockSample, Trouble>, node: &str) -> Finding {
    match clock {
        Ok(reading) if reading.round_trip > SLOW => Check("reach").warning(
            format!("answers in {}, which is slow", exactly(reading.round_trip)),
            "check the network and its load; until then use TTLs of several seconds",
        ),
        Ok(reading) => Check("reach").ok(format!("answers in {}", exactly(reading.round_trip))),
        Err(trouble) => failed(Check("reach"), trouble, node),
    }
}

/// A short time with useful precision.
pub(super) fn exactly(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        ..1e4 => format!("{ms:.0} ms"),
        // Above ten seconds, fractions of a second do not matter.
        _ => duration::show(Duration::from_secs(time.as_secs_f64().round() as u64)),
    }
}

fn version(identity: &Identity) -> Finding {
    let version = &identity.version;
    let (major, minor) = OLDEST_TESTED;
    match number(version) {
        Some(found) if found < OLDEST_TESTED => Check("version").warning(
            format!("{version} is older than {major}.{minor}, the oldest tested version"),
            format!("upgrade it to {major}.{minor} or later"),
        ),
        Some(_) => Check("version").ok(version),
        None => Check("version").warning(
            format!("{version}: not tested"),
            format!("use Redis {major}.{minor} or later, or Valkey"),
        ),
    }
}

/// Major and minor number of a version.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(' ').nth(1)?.split('.');
    let mut number = || numbers.next()?.parse().ok();
    Some((number()?, number()?))
}

fn role(identity: &Identity) -> Finding {
    match &identity.role {
        Role::Master if identity.loading => Check("role").warning(
            "is still loading its data and does not vote yet",
            "wait until it has loaded its data",
        ),
        Role::Master => Check("role").ok("is a master"),
        Role::Replica(master) => Check("role").problem(
            "is a replica, and replicas do not vote",
            match master {
                Some(master) => format!("name its master instead: {master}"),
                None => "name its master instead".to_owned(),
            },
        ),
        Role::ClusterNode => Check("role").problem(
            "runs in cluster mode, where no master is independent",
            "use servers with `cluster-enabled no`",
        ),
        Role::Sentinel => Check("role").problem(
            "is a Sentinel and stores no data",
            "name the masters themselves",
        ),
    }
}

fn eviction(server: &ServerExamination, identity: &Identity) -> Finding {
    const CHECK: Check = Check("eviction");
    let memory = &identity.memory;
    let (part, whole) = NEARLY_FULL;
    let full = memory.max_bytes > 0 && memory.used_bytes / part >= memory.max_bytes / whole;
    let keep = "set `maxmemory-policy noeviction`";
    match () {
        () if memory.evicts() && server.eviction_allowed => CHECK.warning(
            format!(
                "may evict locks ({}), as ?eviction=allow permits",
                memory.policy
            ),
            keep,
        ),
        () if memory.evicts() => CHECK.problem(
            format!("may evict locks ({}), so it does not vote", memory.policy),
            keep,
        ),
        () if memory.is_full() => CHECK.problem(
            format!(
                "is out of memory and refuses locks: it uses {} of {} KB",
                memory.counted_bytes >> 10,
                memory.max_bytes >> 10
            ),
            "raise `maxmemory`, or move other data to another server",
        ),
        () if full => CHECK.warning(
            format!(
                "uses {} of {} MB; when it is full, it refuses locks",
                memory.used_bytes >> 20,
                memory.max_bytes >> 20
            ),
            "raise `maxmemory`, or move other data to another server",
        ),
        () => CHECK.ok("evicts no keys"),
    }
}

/// Whether it refuses writes, as far as it tells without one.
fn writes(stops: &[WriteStop]) -> Finding {
    const CHECK: Check = Check("writes");
    let disk = "make room on its disk, or correct its `dir`; its log has the cause";
    match stops.first() {
        None => CHECK.ok("reports no reason to refuse writes"),
        Some(WriteStop::LogFailed) => CHECK.problem(
            "refuses writes: it could not write its append-only file",
            disk,
        ),
        Some(WriteStop::SnapshotFailed { stops: Some(true) }) => CHECK.problem(
            "refuses writes: its last snapshot failed (`stop-writes-on-bgsave-error`)",
            disk,
        ),
        Some(WriteStop::SnapshotFailed { stops: None }) => CHECK.problem(
            "its last snapshot failed; it refuses writes unless `stop-writes-on-bgsave-error` is \
             `no`, which this user may not read",
            disk,
        ),
        Some(WriteStop::SnapshotFailed { stops: Some(false) }) => CHECK.warning(
            "its last snapshot failed; it goes on, as `stop-writes-on-bgsave-error` says",
            disk,
        ),
        Some(WriteStop::TooFewReplicas { good, needed }) => {
            let needed = needed.map_or_else(|| "more".to_owned(), |needed| needed.to_string());
            CHECK.problem(
                format!(
                    "refuses writes: {good} replicas are connected, and it needs {needed} \
                     (`min-replicas-to-write`)"
                ),
                "start its replicas, or lower `min-replicas-to-write`",
            )
        }
    }
}

/// Whether a failover will be noticed. No finding for a server that never had a replica.
fn replication(birth: Option<&Birth>, identity: &Identity) -> Option<Finding> {
    const CHECK: Check = Check("replication");
    let replicated = identity.has_replicas || birth.is_some_and(|birth| birth.replicated);
    let group = birth.and_then(|birth| birth.group);
    let quarantine = group.map_or(Group::DEFAULT_QUARANTINE, |group| group.quarantine);
    let forgets = |ttl: &Duration| !ttl.is_zero() && *ttl < quarantine;
    Some(match identity.backlog_ttl.filter(forgets) {
        _ if !identity.tells_replication_id => CHECK.warning(
            "reports no replication id: a failover and back within a TTL is not noticed",
            "if it has replicas: before a failover stop its clients, and start them again a \
             quarantine later",
        ),
        _ if !replicated => return None,
        _ if identity.backlog_ttl.is_none() => CHECK.note(
            format!(
                "not visible to this user: repl-backlog-ttl (CONFIG GET); has or had replicas, and \
                 does not vote for {} after each new replication id",
                exactly(quarantine)
            ),
            "nothing: a failover is still noticed",
        ),
        Some(ttl) => CHECK.warning(
            format!(
                "forgets a promotion after {}: does not vote for {} after each new replication id",
                exactly(ttl),
                exactly(quarantine)
            ),
            "raise `repl-backlog-ttl` to at least the quarantine",
        ),
        None => CHECK.ok(
            "has or had replicas: after a failover it does not vote for a while, even if the \
             failover is undone",
        ),
    })
}

fn birth(birth: &Result<Birth, Trouble>, node: &str, nodes: usize) -> Finding {
    const CHECK: Check = Check("birth");
    let birth = match birth {
        Ok(birth) => birth,
        Err(trouble) => return failed(CHECK, trouble, node),
    };
    match birth.voting {
        Voting::Now if birth.group.is_none() && nodes == 1 => {
            CHECK.ok("is new: no client has used it yet")
        }
        Voting::Now => CHECK.ok(match birth.kept_for {
            Some(kept_for) => format!(
                "is not in quarantine, and has kept its data for {}",
                exactly(kept_for)
            ),
            None => "is not in quarantine".to_owned(),
        }),
        Voting::In(left) => CHECK.warning(
            format!(
                "is new, or was restarted or promoted: votes in {}",
                exactly(left)
            ),
            "wait: it may have forgotten locks that are still held",
        ),
        Voting::NeverMet => CHECK.warning(
            "is new: votes some time after its first client has connected",
            "if the whole cluster is new, run `ringfence init`; otherwise nothing",
        ),
        Voting::Restarted => CHECK.warning(
            "was restarted or promoted: votes some time after its next client has connected",
            "nothing: it may have forgotten locks that are still held",
        ),
    }
}

fn keys(keys: &Result<Keys, Trouble>, node: &str) -> Finding {
    const CHECK: Check = Check("expiry");
    let keys = match keys {
        Ok(keys) => keys,
        Err(trouble) if trouble.kind == TroubleKind::Denied => {
            return CHECK.note(
                "not visible to this user: keys without expiry (SCAN)",
                "nothing: to find them, run `doctor` as a user that may run `init`",
            );
        }
        Err(trouble) => {
            return CHECK.warning(
                format!(
                    "was not searched for keys without expiry: {}",
                    message(trouble, node)
                ),
                advice(trouble),
            );
        }
    };
    let mut looked_at = match (keys.looked_at, keys.complete) {
        (count, true) => format!("{count} checked"),
        (count, false) => format!("the first {count} checked"),
    };
    if keys.hidden > 0 {
        looked_at += &format!(", {} not visible to this user", keys.hidden);
    }
    match (&keys.example, keys.lasting) {
        (Some(example), lasting) => CHECK.warning(
            format!(
                "has {} of ours without expiry, such as `{example}` ({looked_at})",
                many(lasting, "key")
            ),
            "ringfence sets an expiry on every key: find out which program wrote these, then \
             delete them",
        ),
        (None, _) => CHECK.ok(format!("has no key of ours without expiry ({looked_at})")),
    }
}
