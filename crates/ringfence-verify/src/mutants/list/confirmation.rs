//! Which master a majority of the Sentinels confirms.

use super::{Edit, Mutant, edit};

const CONFIRMATION: &str = "crates/ringfence-core/src/protocol/confirmation.rs";

/// Shared by ReportedSentinelsIgnored, RecordedSentinelsIgnored, ListedSentinelsIgnored.
#[rustfmt::skip]
const TOTAL: Edit = edit(CONFIRMATION, "total",
    "reported
        .unwrap_or(0)
        .max(self.recorded)
        .max(self.in_list())
        .max(1)",
    "let reported = reported.filter(|_| !mutant!(ReportedSentinelsIgnored)).unwrap_or(0);
     let recorded = if mutant!(RecordedSentinelsIgnored) { 0 } else { self.recorded };
     let listed = if mutant!(ListedSentinelsIgnored) { 0 } else { self.in_list() };
     reported.max(recorded).max(listed).max(1)");

mutants! {
    /// Only a majority of all Sentinels of the group confirms a master.
    OneSentinelConfirms:
        edit(CONFIRMATION, "confirmed",
            "let majority = quorum(sentinels as usize);",
            "let majority = if mutant!(OneSentinelConfirms) { 1 } else { quorum(sentinels as usize) };");

    /// The number of Sentinels that any Sentinel reported within a quarantine counts.
    ReportedSentinelsIgnored: TOTAL;

    /// The number of Sentinels in the birth record counts.
    RecordedSentinelsIgnored: TOTAL;

    /// The number of different Sentinels in the user's list counts.
    ListedSentinelsIgnored: TOTAL;

    /// The Sentinels of a majority name one and the same configuration epoch.
    SentinelEpochsMayDiffer:
        edit(CONFIRMATION, "agrees_with",
            "self.is_steady() && self.epoch_before == candidate.epoch_before",
            "self.is_steady() && (self.epoch_before == candidate.epoch_before
                 || mutant!(SentinelEpochsMayDiffer))");

    /// The epoch that a Sentinel reports is the same before and after it names the address.
    EpochMayChangeDuringAnswer:
        edit(CONFIRMATION, "is_steady",
            "self.epoch_before == self.epoch_after",
            "self.epoch_before == self.epoch_after || mutant!(EpochMayChangeDuringAnswer)");

    /// A Sentinel that the user's list names twice counts once.
    SentinelCountsTwice:
        edit(CONFIRMATION, "voices",
            "!others.any(|(j, other)| (other.asked_at, j) > (answer.asked_at, *i))",
            "!others.any(|(j, other)| (other.asked_at, j) > (answer.asked_at, *i))
                 || mutant!(SentinelCountsTwice)");

    /// The Sentinels of a majority name one and the same address.
    SentinelAddressesMayDiffer:
        edit(CONFIRMATION, "agrees_with",
            "same_epoch && self.master.is_same(&candidate.master)",
            "same_epoch && (self.master.is_same(&candidate.master)
                 || mutant!(SentinelAddressesMayDiffer))");

    /// A confirmation is as old as the oldest question that its majority needs.
    ConfirmationAsYoungAsTheLast:
        edit(CONFIRMATION, "confirmed",
            "asked_at: *asked.get(majority - 1)?,",
            "asked_at: if mutant!(ConfirmationAsYoungAsTheLast) {
                 asked.get(majority - 1)?;
                 asked[0]
             } else {
                 *asked.get(majority - 1)?
             },");

    /// A late answer to an older question does not replace a later one.
    OldSentinelAnswerReplaces:
        edit(CONFIRMATION, "handle_answer",
            ".is_some_and(|last| last.asked_at > answer.asked_at)",
            ".is_some_and(|last| last.asked_at > answer.asked_at
                 && !mutant!(OldSentinelAnswerReplaces))");

    /// Two servers on one host are different addresses.
    AddressPortIgnored:
        edit(CONFIRMATION, "is_same",
            "self.port == other.port && same_host",
            "(self.port == other.port || mutant!(AddressPortIgnored)) && same_host");

    /// A name and its IP are one address.
    AddressByTextOnly:
        edit(CONFIRMATION, "is_same",
            "|| self.ips.iter().any(|ip| other.ips.contains(ip));",
            "|| self.ips.iter().any(|ip| other.ips.contains(ip)) && !mutant!(AddressByTextOnly);");
}
