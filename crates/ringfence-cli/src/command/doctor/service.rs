//! The findings about a service behind Sentinels: do they agree, and will holders keep their locks
//! through a failover?

use std::time::Duration;

use ringfence::admin::{ReplicaExamination, ServerExamination, ServiceExamination};
use ringfence_core::group::Group;

use super::super::init::quarantine;
use super::finding::{Check, Finding, listed};
use crate::duration;
use crate::report::many;

/// About how long a failover takes, once the Sentinels hold the master for dead.
const FAILOVER: Duration = Duration::from_secs(3);
/// A replica that has not acknowledged anything for longer lacks locks.
const LAG: Duration = Duration::from_secs(2);

pub(super) fn findings(service: &ServiceExamination, server: &ServerExamination) -> Vec<Finding> {
    let group = server.birth.as_ref().ok().and_then(|birth| birth.group);
    let group = group.unwrap_or(Group {
        stale_master: Group::STALE_MASTER_SENTINEL,
        ..Group::new(1)
    });
    vec![
        sentinels(service),
        failover(service, &group),
        replicas(service),
        replica_clocks(service, server, &group),
    ]
}

/// Whether the Sentinels answer and agree, and whether the URL names all of them.
fn sentinels(service: &ServiceExamination) -> Finding {
    const CHECK: Check = Check("sentinels");
    let ServiceExamination {
        master,
        epoch,
        total,
        ..
    } = service;
    let majority = total / 2 + 1;
    let agrees = format!(
        "{master} is the master under epoch {epoch}, by the word of a majority ({majority} of \
         {total} Sentinels)"
    );
    let mut apart = Vec::new();
    for (name, word) in &service.sentinels {
        match word {
            Err(trouble) => apart.push(trouble.to_string()),
            Ok(word) if word.master != *master || word.epoch != *epoch => apart.push(format!(
                "{name} names {} under epoch {}",
                word.master, word.epoch
            )),
            Ok(word) if word.others + 1 < *total => {
                apart.push(format!("{name} knows {} of them", word.others + 1));
            }
            Ok(_) => {}
        }
    }
    if !apart.is_empty() {
        return CHECK.warning(
            format!("{agrees}; but {}", apart.join("; ")),
            "repair these Sentinels: without a majority nothing is granted or renewed",
        );
    }
    let named = service.sentinels.len() as u64;
    match named < u64::from(*total) {
        true => CHECK.warning(
            format!("{agrees}; the URL names {}", many(named, "Sentinel")),
            "name all Sentinels in the URL: those that it does not name cannot confirm the master",
        ),
        false => CHECK.ok(agrees),
    }
}

/// Which TTL lets holders keep their locks through a failover.
fn failover(service: &ServiceExamination, group: &Group) -> Finding {
    const CHECK: Check = Check("failover");
    let words = service
        .sentinels
        .iter()
        .filter_map(|(_, word)| word.as_ref().ok());
    let Some(down_after) = words.filter_map(|word| word.down_after).max() else {
        return CHECK.ok("reports no down-after-milliseconds");
    };
    let overlap = group.stale_master + group.reply_within;
    // A holder has two thirds of its TTL left, at least.
    let least = (down_after + FAILOVER + overlap) * 3 / 2;
    let most = match group.nodes {
        1 => group.quarantine.saturating_sub(group.stale_master),
        _ => group.quarantine.saturating_sub(Group::CLOCK_STEP),
    };
    let down_after = duration::show(down_after);
    match least <= most {
        true => CHECK.ok(format!(
            "after a failover no new lock is granted for {}; with down-after-milliseconds of \
                 {down_after}, holders keep their locks if their TTL is {} or longer",
            quarantine(group),
            duration::show(least)
        )),
        false => CHECK.warning(
            format!(
                "with down-after-milliseconds of {down_after} no TTL is long enough for holders to \
                 keep their locks through a failover: it takes {}, and the longest is {}",
                duration::show(least),
                duration::show(most)
            ),
            "set down-after-milliseconds to 5000 on all Sentinels, and use a TTL of 20 s",
        ),
    }
}

fn replicas(service: &ServiceExamination) -> Finding {
    const CHECK: Check = Check("replicas");
    if service.replicas.is_empty() {
        return CHECK.warning(
            "has no replica that could be promoted",
            "attach a replica, or use the server without Sentinels",
        );
    }
    let lags = |replica: &&ReplicaExamination| replica.lag.is_none_or(|lag| lag > LAG);
    let late: Vec<&str> = service
        .replicas
        .iter()
        .filter(lags)
        .map(|one| &*one.address)
        .collect();
    let needs = match service.least_replicas {
        Some(least) => format!(", and min-replicas-to-write is {least}"),
        None => String::new(),
    };
    let count = many(service.replicas.len() as u64, "replica");
    match late.is_empty() {
        true => CHECK.ok(format!("has {count}{needs}")),
        false => CHECK.warning(
            format!("has {count}{needs}; {} lags behind", listed(&late)),
            "check the replication: a replica that lags behind is promoted without the last locks, \
             which costs holders nothing, but a longer failover",
        ),
    }
}

/// Fences rise through a failover only if the new master's clock is not too far behind.
fn replica_clocks(
    service: &ServiceExamination,
    server: &ServerExamination,
    group: &Group,
) -> Finding {
    const CHECK: Check = Check("replica-clocks");
    let Ok(master) = &server.clock else {
        return CHECK.ok("the master's clock is not known");
    };
    let spent = group.window * 2 + Group::CLOCK_STEP + group.stale_master + group.reply_within;
    let limit = group.quarantine.saturating_sub(spent);
    let behind = service.replicas.iter().filter(|replica| {
        let clock = replica.clock.as_ref().and_then(|clock| clock.as_ref().ok());
        clock.is_some_and(|clock| {
            let behind_us = u64::try_from(master.ahead_us - clock.ahead_us).unwrap_or(0);
            Duration::from_micros(behind_us) > limit / 2
        })
    });
    let behind: Vec<&str> = behind.map(|replica| &*replica.address).collect();
    let unasked = service.replicas.iter().filter(|one| one.clock.is_none());
    let unasked = unasked.count();
    let unknown = |one: &&ReplicaExamination| matches!(one.clock, Some(Err(_)));
    let unknown = service.replicas.iter().filter(unknown).count();
    if unasked > 0 {
        return CHECK.note(
            format!(
                "the clock of {} was not compared",
                many(unasked as u64, "replica")
            ),
            "to compare it, use `doctor --replicas`, which sends user and password to the replicas \
             that the master lists",
        );
    }
    match (behind.is_empty(), unknown) {
        (true, 0) => CHECK.ok("the clocks of the replicas are not behind the master's",
        ),
        (true, _) => CHECK.warning(format!(
                "the clock of {} cannot be read",
                many(unknown as u64, "replica")
            ),
            "allow the user to log in to the replicas: if a clock is far behind when its replica is \
             promoted, fences do not rise",
        ),
        (false, _) => CHECK.warning(format!("{} is far behind the master's clock", listed(&behind)),
            format!(
                "correct the clock: if it is more than {} behind when the replica is promoted, \
                 fences do not rise",
                duration::show(limit)
            ),
        ),
    }
}
