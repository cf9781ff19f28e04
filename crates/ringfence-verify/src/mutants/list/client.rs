//! The client around the protocol: settings, guards, owners, elections.

use super::{Mutant, edit};

const LOCK: &str = "crates/ringfence/src/client/lock.rs";
const INSPECTION: &str = "crates/ringfence/src/client/inspection.rs";
const OBSERVER: &str = "crates/ringfence/src/client/observer.rs";
const GUARD: &str = "crates/ringfence/src/client/guard.rs";
const HOLD_WORK: &str = "crates/ringfence/src/client/hold_work.rs";
const OWNER: &str = "crates/ringfence/src/client/owner.rs";
const TWINS: &str = "crates/ringfence/src/client/duplicate_nodes.rs";
const VALUES: &str = "crates/ringfence-core/src/protocol/group_values.rs";
const PROCESS: &str = "crates/ringfence/src/environment/process.rs";
const CLOCK: &str = "crates/ringfence/src/environment.rs";

mutants! {
    /// No TTL is longer than the quarantine of a restarted node.
    LongTtlAccepted:
        edit(LOCK, "check_ttl",
            "if ttl > most {",
            "if ttl > most && !mutant!(LongTtlAccepted) {");

    /// A leader is reported only if a majority of the nodes has it as the holder.
    LeaderOfFewer:
        edit(INSPECTION, "of",
            "let quorum = quorum(nodes);",
            "let quorum = quorum(nodes) - usize::from(mutant!(LeaderOfFewer));");

    /// A lock is called free only if no holder can have a majority, whatever the nodes have that do
    /// not vote.
    UnknownIsFree:
        edit(INSPECTION, "of",
            "most if most + silent < quorum => Self::Free,",
            "most if most + silent < quorum || mutant!(UnknownIsFree) => Self::Free,");

    /// Only rising terms are reported.
    TermsFall:
        edit(OBSERVER, "look",
            "let is_news = |term: u64| term > self.term.get() || self.is_back(term);",
            "let is_news =
                 |term: u64| term > self.term.get() || self.is_back(term) || mutant!(TermsFall);");

    /// A release waits for the renewal that is under way.
    RenewalNotJoined:
        edit(GUARD, "release_here",
            "if let Some(renewal) = self.state.hold.stop_renewing() {",
            "let renewal = self.state.hold.stop_renewing();
             if let Some(renewal) = renewal.filter(|_| !mutant!(RenewalNotJoined)) {");

    /// A release after a loss is an error, also if the nodes still had the lock.
    LateReleaseIsOk:
        edit(GUARD, "release_here",
            "Ok(()) if !in_time => Err(ReleaseError::Expired),",
            "Ok(()) if !in_time && !mutant!(LateReleaseIsOk) => Err(ReleaseError::Expired),");

    /// `hold` is `Ok` only if the lock was held until the work was done.
    LateWorkIsOk:
        edit(HOLD_WORK, "held",
            "match self.lost {",
            "match self.lost.filter(|_| !mutant!(LateWorkIsOk)) {");

    /// A hold stays exclusive while another guard of its owner relies on that.
    DowngradedBesideOthers:
        edit(OWNER, "read",
            "let last = count.guards == 0 && !count.left_behind;",
            "let alone = count.guards == 0 || mutant!(DowngradedBesideOthers);
             let last = alone && !count.left_behind;");

    /// A call that would wait for its own owner gets an error.
    OwnerWaitsForItself:
        edit(OWNER, "ask_for",
            "if let Some(has) = seats.iter().find_map(in_the_way) {",
            "if let Some(has) = seats.iter().find_map(in_the_way)
                 && !mutant!(OwnerWaitsForItself)
             {");

    /// What a forked child inherited belongs to its parent: it sends, writes and drops nothing.
    ForkedChildActs:
        edit(PROCESS, "is_ours",
            "self == Self::current()",
            "self == Self::current() || mutant!(ForkedChildActs)");

    /// `init` refuses one server under two addresses.
    OneServerTwice:
        edit(TWINS, "find",
            "(0..run_ids.len()).find_map(|later| {",
            "if mutant!(OneServerTwice) {
                 return None;
             }
             (0..run_ids.len()).find_map(|later| {");

    /// The values of a group are adopted only if they are safe.
    AdoptedUnchecked:
        edit(VALUES, "refuse_unsafe",
            "Some(Err(why)) => Err(unsafe_values(name, &why)),",
            "Some(Err(why)) if !mutant!(AdoptedUnchecked) => Err(unsafe_values(name, &why)),"),
        edit(VALUES, "most_reported",
            "reported.retain(|group| group.check().is_ok());",
            "reported.retain(|group| group.check().is_ok() || mutant!(AdoptedUnchecked));");

    /// A minority of the nodes does not decide the values of the group.
    TieDecided:
        edit(VALUES, "settled",
            "most >= quorum(answers.len())",
            "let answered = if mutant!(TieDecided) { reported.len() } else { most };
             answered >= quorum(answers.len())");

    /// Nodes that were restarted empty get the values of the nodes that know them, even if they are a
    /// majority: a shorter quarantine would end before the locks that they lost.
    ForgottenDecides:
        edit(VALUES, "settled",
            "let most = reported.iter().map(alike).max().unwrap_or_default();",
            "let empty = answers.iter().flatten().flatten().filter(|facts| facts.group.is_none());
             let empty = if mutant!(ForgottenDecides) { empty.count() } else { 0 };
             let most = reported.iter().map(alike).max().unwrap_or_default().max(empty);");

    /// Durations are measured on a clock that counts suspend and that is never set.
    WallClock:
        edit(CLOCK, "Clock::now",
            "Self::System => system_now(),",
            "Self::System if mutant!(WallClock) => {
                 Timestamp::ZERO + Duration::from_micros(wall_us())
             }
             Self::System => system_now(),");
}
