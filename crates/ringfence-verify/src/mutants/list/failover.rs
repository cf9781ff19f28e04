//! A failover behind a node: births, the quarantine of a single server, confirmation by Sentinels,
//! and holders that are carried through.

use super::{Edit, Mutant, edit};

const ACQUIRE: &str = "crates/ringfence-core/src/ledger/acquire.rs";
const ACQUISITION: &str = "crates/ringfence-core/src/protocol/acquisition.rs";
const ATTEMPT: &str = "crates/ringfence-core/src/protocol/attempt.rs";
const CLUSTER: &str = "crates/ringfence-core/src/protocol/cluster.rs";
const EXTENSION: &str = "crates/ringfence-core/src/protocol/extension.rs";
const HOLD: &str = "crates/ringfence-core/src/protocol/hold/mod.rs";
const LEDGER: &str = "crates/ringfence-core/src/ledger/mod.rs";
const EXTEND: &str = "crates/ringfence-core/src/ledger/extend.rs";
const SLOTS: &str = "crates/ringfence-core/src/ledger/slots.rs";

/// Shared by ConfirmedLongAgo, ConfirmedUnderAnotherEpoch.
#[rustfmt::skip]
const CONFIRMED: Edit = edit(CLUSTER, "is_confirmed",
    "Some(confirmation.epoch) == standing.epoch && confirmation.asked_at + stale_master >= t0",
    "(Some(confirmation.epoch) == standing.epoch || mutant!(ConfirmedUnderAnotherEpoch))
         && (confirmation.asked_at + stale_master >= t0 || mutant!(ConfirmedLongAgo))");

/// Shared by CarriedWithLittleValidity, CarriedFromBirth.
#[rustfmt::skip]
const CARRIED: Edit = edit(CLUSTER, "is_carried",
    "deadline.since(now) >= overlap || age_us >= micros(overlap)",
    "deadline.since(now) >= overlap
         || age_us >= micros(overlap)
         || mutant!(CarriedWithLittleValidity) && deadline.since(now) >= overlap / 2
         || mutant!(CarriedFromBirth)");

/// Shared by RestoreReplacesOutsideQuarantine, RestoreReplacesNewer, RestoreReplacesForeign.
#[rustfmt::skip]
const OUTDATED: Edit = edit(EXTEND, "restore",
    "quarantined && !entry.is_held_by(token) && seat.is_some_and(|seat| seat.ballot < ballot)",
    "(quarantined || mutant!(RestoreReplacesOutsideQuarantine))
         && !entry.is_held_by(token)
         && (seat.is_some_and(|seat| seat.ballot < ballot || mutant!(RestoreReplacesNewer))
             || mutant!(RestoreReplacesForeign) && entry.seat().is_none())");

mutants! {
    /// A vote counts only if the Sentinels confirmed it at most X before the round began.
    ConfirmedLongAgo: CONFIRMED;

    /// A vote counts only if the Sentinels confirmed it under the epoch under which it was given.
    ConfirmedUnderAnotherEpoch: CONFIRMED;

    /// A node with Sentinels does not count without their confirmation.
    UnconfirmedCounts:
        edit(CLUSTER, "discount_on",
            "if !self.is_confirmed(line, node, standing, sent) {",
            "if !self.is_confirmed(line, node, standing, sent) && !mutant!(UnconfirmedCounts) {");

    /// A vote needs the confirmation of the connection that it came over.
    ConfirmedOnTheOtherLine:
        edit(CLUSTER, "is_confirmed",
            "!view.needs_confirmation || view.confirmations[line as usize].is_some_and(holds)",
            "!view.needs_confirmation
                 || view.confirmations[line as usize].is_some_and(holds)
                 || mutant!(ConfirmedOnTheOtherLine)
                     && view.confirmations.into_iter().flatten().any(holds)");

    /// A delayed answer of the Sentinels does not replace a later one.
    OldConfirmationReplacesNew:
        edit(CLUSTER, "confirm",
            "if known.is_none_or(|known| known.asked_at <= confirmation.asked_at) {",
            "if known.is_none_or(|known| known.asked_at <= confirmation.asked_at)
                 || mutant!(OldConfirmationReplacesNew) {");

    /// A birth of a single replicated server starts the quarantine.
    LoneFailoverHasNoQuarantine:
        edit(CLUSTER, "quarantines",
            "self.nodes[node].quarantines && (!alone || replaceable())",
            "self.nodes[node].quarantines
                 && (!alone || replaceable() && !mutant!(LoneFailoverHasNoQuarantine))");

    /// The longest lease leaves room for a former master that extends it once more.
    LeaseIgnoresFormerMaster:
        edit(CLUSTER, "longest_lease",
            ".then(|| longest.saturating_sub(self.group.stale_master))",
            ".then(|| match mutant!(LeaseIgnoresFormerMaster) {
                 true => longest,
                 false => longest.saturating_sub(self.group.stale_master),
             })");

    /// A holder is carried through only if X + D of its validity is left.
    CarriedWithLittleValidity: CARRIED;

    /// Otherwise only when the birth is X + D old.
    CarriedFromBirth: CARRIED;

    /// Only a confirmed extend counts in a quarantine: neither `Gone` nor `Held` proves anything.
    AnythingCarried:
        edit(CLUSTER, "discount_extension",
            "let confirms = matches!(reply.answer, Answer::Extended | Answer::Downgraded);",
            "let confirms = matches!(reply.answer, Answer::Extended | Answer::Downgraded)
                 || mutant!(AnythingCarried);");

    /// A node of several carries no holder through its quarantine.
    CarriedOnOneOfSeveral:
        edit(CLUSTER, "discount_extension",
            "let carried = self.nodes.len() == 1",
            "let carried = (self.nodes.len() == 1 || mutant!(CarriedOnOneOfSeveral))");

    /// In a quarantine a holder that finds another one tries to put its lock back.
    OutdatedHolderNotReplaced:
        edit(EXTENSION, "vote",
            "Ok(Answer::Held(_)) => quarantined && reply.alone,",
            "Ok(Answer::Held(_)) => quarantined && reply.alone
                 && !mutant!(OutdatedHolderNotReplaced),");

    /// A grant whose reply is read later than D does not count.
    LateGrantCounts:
        edit(ATTEMPT, "new",
            "latest_grant: read_by.map_or(valid_enough, |at| at.min(valid_enough)),",
            "latest_grant: match mutant!(LateGrantCounts) {
                 true => valid_enough,
                 false => read_by.map_or(valid_enough, |at| at.min(valid_enough)),
             },");

    /// A node does not execute an acquire after the time that its caller allowed.
    LateAcquireExecuted:
        edit(ACQUIRE, "is_late",
            "self.not_after_us.is_some_and(|at| now.clock_us > at)",
            "self.not_after_us.is_some_and(|at| now.clock_us > at) && !mutant!(LateAcquireExecuted)");

    /// The only node grants nothing in its quarantine.
    QuarantinedNodeGrants:
        edit(ACQUIRE, "acquire",
            "if let Some(left_ms) = rules.quarantine_left_ms(now) {",
            "let left_ms = rules.quarantine_left_ms(now);
             if let Some(left_ms) = left_ms.filter(|_| !mutant!(QuarantinedNodeGrants)) {");

    /// The only node grants no slot in its quarantine.
    QuarantinedNodeGrantsSlots:
        edit(SLOTS, "acquire",
            "} else if let Some(left_ms) = rules.quarantine_left_ms(now) {",
            "} else if let Some(left_ms) = rules.quarantine_left_ms(now)
                 .filter(|_| !mutant!(QuarantinedNodeGrantsSlots)) {");

    /// A restore replaces a holder only in a quarantine.
    RestoreReplacesOutsideQuarantine: OUTDATED;

    /// A restore replaces only a holder with a lower ballot.
    RestoreReplacesNewer: OUTDATED;

    /// A restore never replaces a value without a ballot.
    RestoreReplacesForeign: OUTDATED;

    /// Neither a receipt nor a plain lock is carried through a failover.
    ReceiptCarried:
        edit(HOLD, "carried_until",
            "let carried = !self.of_receipt && self.kind.has_record();",
            "let carried = !self.of_receipt && self.kind.has_record() || mutant!(ReceiptCarried);");

    /// The Sentinels must confirm extends and restores, not only acquires.
    ExtendUnconfirmed:
        edit(CLUSTER, "discount_extension",
            "let discount = self.discount_on(line, node, reply.standing, t0, now);",
            "let discount = self.discount_on(line, node, reply.standing, t0, now)
                 .filter(|why| *why != Vote::Unconfirmed || !mutant!(ExtendUnconfirmed));");

    /// An acquire carries the latest time at which the node may execute it.
    AcquireWithoutLatestTime:
        edit(CLUSTER, "reply_by",
            "let offset_us = self.nodes[0].offset_low_us.filter(|_| lone);",
            "let offset_us = self.nodes[0].offset_low_us
                 .filter(|_| lone && !mutant!(AcquireWithoutLatestTime));");

    /// In the quarantine the node enters the ticket of a waiter.
    QuarantineForgetsTicket:
        edit(ACQUIRE, "acquire",
            "enter(rules, now, entries, params.claims, params.token, ticket);",
            "if !(mutant!(QuarantineForgetsTicket) && rules.quarantine_left_ms(now).is_some()) {
                 enter(rules, now, entries, params.claims, params.token, ticket);
             }");

    /// The quarantine of a single server with a failover behind it counts from its birth.
    IncarnationGrantsAtOnce:
        edit(LEDGER, "of_incarnation",
            "grants_from_us: match alone && born_us != 0 {",
            "grants_from_us: match alone && born_us != 0 && !mutant!(IncarnationGrantsAtOnce) {");

    /// Clocks are compared anew after a birth.
    ClockKeptAcrossBirth:
        edit(CLUSTER, "observe_standing",
            "if reborn {",
            "if reborn && !mutant!(ClockKeptAcrossBirth) {");

    /// A plain lock does not set its key in the way of a holder in a quarantine.
    PlainAcquiresInQuarantine:
        edit(ACQUISITION, "begin",
            "let refuses_itself = has_ballots && cluster.is_lone_failover();",
            "let refuses_itself = (has_ballots || mutant!(PlainAcquiresInQuarantine))
                 && cluster.is_lone_failover();");
}
