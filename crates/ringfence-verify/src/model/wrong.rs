//! What is not the protocol, and must be found wrong: a search that finds no mistake there finds
//! none anywhere.

use super::counter::Scheme;
use super::failover::{FailoverScope, KEPT, Weakness, search_failover_for};
use super::properties::{EXCLUSIVE, UNDONE, UNIQUE};
use super::scope::{Scope, Variant};
use super::search::{Report, search_counters, search_deep, search_shortest};

/// Something that is not the protocol.
#[derive(Debug, Clone, Copy)]
pub struct Wrong {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is wrong with it.
    pub what: &'static str,
    /// Which properties it breaks.
    pub breaks: &'static [&'static str],
    model: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Counters(Scheme),
    Protocol(Scope),
    /// So large that a way is enough, short or not.
    Deep(Scope),
    Failover(FailoverScope),
}

impl Wrong {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self {
            name: "counter-max",
            what: "every node counts, and the highest count of a majority is the fence",
            breaks: &[UNIQUE],
            model: Kind::Counters(Scheme::Max),
        },
        Self {
            name: "counter-write-back",
            what: "the same, and a majority takes the fence over before it is used",
            breaks: &[UNIQUE],
            model: Kind::Counters(Scheme::WriteBack),
        },
        Self {
            name: "no-quarantine",
            what: "a node that forgot everything votes at once",
            breaks: &[UNIQUE, EXCLUSIVE],
            model: Kind::Protocol(Scope::CRASH.prompt().with(Variant::NoQuarantine)),
        },
        Self {
            name: "careless-release",
            what: "an undo gives back what a later attempt of the same token got",
            breaks: &[EXCLUSIVE],
            model: Kind::Deep(Scope::RETRIES.lasting(1).with(Variant::CarelessRelease)),
        },
        Self {
            name: "pinned-floor",
            what: "where there is a record, the node's clock does not raise the floor",
            breaks: &[UNIQUE],
            model: Kind::Deep(Scope::PINNED.with(Variant::PinnedFloor)),
        },
        Self {
            name: "old-votes",
            what: "votes for an earlier attempt count for the present one",
            breaks: &[UNDONE, EXCLUSIVE],
            model: Kind::Deep(Scope::RETRIES.lasting(1).with(Variant::OldVotes)),
        },
        Self {
            name: "no-majority",
            what: "a vote fewer than a majority is enough",
            breaks: &[UNIQUE, EXCLUSIVE],
            model: Kind::Protocol(Scope::CRASH.prompt().with(Variant::NoMajority)),
        },
        Self {
            name: "short-lease",
            what: "nodes keep a lock for a tick less than they were asked to",
            breaks: &[EXCLUSIVE],
            model: Kind::Protocol(Scope::CRASH.prompt().with(Variant::ShortLease)),
        },
        Self {
            name: "short-quarantine",
            what: "the quarantine is a tick shorter than 2w + S",
            breaks: &[UNIQUE],
            model: Kind::Protocol(Scope::QUARANTINE.keeping(3, 4)),
        },
        Self {
            name: "short-retention",
            what: "records are kept a tick shorter than 2w + S",
            breaks: &[UNIQUE],
            model: Kind::Protocol(Scope::RETENTION.keeping(4, 3)),
        },
        Self {
            name: "one-sentinel",
            what: "F1: the word of one Sentinel is enough",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::OneSentinel),
            ),
        },
        Self {
            name: "acquires-confirmed",
            what: "F1: the Sentinels confirm acquires, but not extends",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::OnlyAcquiresConfirmed),
            ),
        },
        Self {
            name: "mixed-epochs",
            what: "F1: a majority of the Sentinels names one server, under different epochs",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER.without(Weakness::EpochsOfSentinelsDiffer),
            ),
        },
        Self {
            name: "old-word",
            what: "F1: the word of the Sentinels counts at any age",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(FailoverScope::FAILOVER.once().without(Weakness::OldWord)),
        },
        Self {
            name: "no-epoch",
            what: "F2: the epoch is not compared",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(FailoverScope::FAILOVER.without(Weakness::NoEpoch)),
        },
        Self {
            name: "no-replication-id",
            what: "F3: the replication id is not compared",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(FailoverScope::FAILOVER.without(Weakness::NoReplicationId)),
        },
        Self {
            name: "no-lone-quarantine",
            what: "F4: no quarantine follows a birth of the only node",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::NoQuarantine),
            ),
        },
        Self {
            name: "short-lone-quarantine",
            what: "F4: the quarantine is a tick shorter than TTL + X",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::ShortQuarantine),
            ),
        },
        Self {
            name: "grants-in-quarantine",
            what: "F5: the only node grants in its quarantine",
            breaks: &[KEPT],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::GrantsInQuarantine),
            ),
        },
        Self {
            name: "carried-at-once",
            what: "F5: every extend counts in a quarantine",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::CarriedAtOnce),
            ),
        },
        Self {
            name: "carried-with-less",
            what: "F5: an extend counts in a quarantine with a tick less than X + D left",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::CarriedWithLess),
            ),
        },
        Self {
            name: "late-acquire",
            what: "F5: the only node executes an acquire at any time",
            breaks: &[KEPT],
            model: Kind::Failover(FailoverScope::FAILOVER.without(Weakness::LateAcquire)),
        },
        Self {
            name: "late-grant",
            what: "F1 and F5: the same, and its client counts the grant at any time",
            breaks: &[EXCLUSIVE],
            model: Kind::Failover(
                FailoverScope::FAILOVER
                    .once()
                    .without(Weakness::LateAcquireAndReply),
            ),
        },
    ];

    /// Searches until a way to each of its mistakes is known; the shortest, unless that would take
    /// too long.
    pub fn search(&self, threads: usize) -> Report {
        match self.model {
            Kind::Counters(scheme) => search_counters(scheme, threads),
            Kind::Protocol(scope) => search_shortest(scope, self.breaks, threads),
            Kind::Deep(scope) => search_deep(scope, self.breaks, threads),
            Kind::Failover(scope) => search_failover_for(scope, self.breaks, threads),
        }
    }
}
