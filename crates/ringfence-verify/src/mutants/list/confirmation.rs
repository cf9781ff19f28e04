//! Which master a majority of the Sentinels confirms.

use super::{Edit, Mutant, edit};

const CONFIRMATION: &str = "crates/ringfence-core/src/protocol/confirmation.rs";
const ADDRESS: &str = "crates/ringfence-core/src/protocol/confirmation/address.rs";

/// Shared by ReportedSentinelsIgnored, RecordedSentinelsIgnored, ListedSentinelsIgnored.
#[rustfmt::skip]
const TOTAL: Edit = edit(CONFIRMATION, "total",
    "self.reported(now)
        .max(self.recorded)
        .max(self.in_list())
        .max(1)",
    "let reported = if mutant!(ReportedSentinelsIgnored) { 0 } else { self.reported(now) };
     let recorded = if mutant!(RecordedSentinelsIgnored) { 0 } else { self.recorded };
     let listed = if mutant!(ListedSentinelsIgnored) { 0 } else { self.in_list() };
     reported.max(recorded).max(listed).max(1)");

mutants! {
    /// Only a majority of all Sentinels of the group confirms a master.
    OneSentinelConfirms:
        edit(CONFIRMATION, "confirmed",
            "let majority = quorum(sentinels as usize);",
            "let majority = if mutant!(OneSentinelConfirms) { 1 } else { quorum(sentinels as usize) };");

    /// The number of Sentinels that a majority of the list reported within a quarantine counts.
    ReportedSentinelsIgnored: TOTAL;

    /// A number of Sentinels that one of them reports does not count, only that of a majority.
    OneSentinelCounts:
        edit(CONFIRMATION, "reported",
            "let majority = quorum(self.in_list() as usize);",
            "let majority = if mutant!(OneSentinelCounts) { 1 } else { quorum(self.in_list() as usize) };");

    /// Only a number of Sentinels that a majority reports is written to the birth record.
    UnreportedSentinelsRecorded:
        edit(CONFIRMATION, "confirmed",
            "let (sentinels, reported) = (self.total(now), self.reported(now));",
            "let (sentinels, mut reported) = (self.total(now), self.reported(now));
             if mutant!(UnreportedSentinelsRecorded) { reported = sentinels; }");

    /// The number of Sentinels in the birth record counts.
    RecordedSentinelsIgnored: TOTAL;

    /// The number of different Sentinels in the user's list counts.
    ListedSentinelsIgnored: TOTAL;

    /// The Sentinels of a majority name one and the same configuration epoch.
    SentinelEpochsMayDiffer:
        edit(CONFIRMATION, "confirmed",
            "steady().filter(|answer| answer.epoch_before == epoch)",
            "steady().filter(|answer| answer.epoch_before == epoch
                 || mutant!(SentinelEpochsMayDiffer))");

    /// The epoch that a Sentinel reports is the same before and after it names the address.
    EpochMayChangeDuringAnswer:
        edit(CONFIRMATION, "is_steady",
            "self.epoch_before == self.epoch_after",
            "self.epoch_before == self.epoch_after || mutant!(EpochMayChangeDuringAnswer)");

    /// A Sentinel that the user's list names twice counts once.
    SentinelCountsTwice:
        edit(ADDRESS, "latest_majority",
            "latest.iter_mut().find(|known| known.0 == word.elector)",
            "latest.iter_mut().find(|known| known.0 == word.elector && !mutant!(SentinelCountsTwice))");

    /// The Sentinels of a majority name one and the same address.
    SentinelAddressesMayDiffer:
        edit(ADDRESS, "agreed",
            "|other: &Word<'_>| other.address.has_name_of(word.address);",
            "|other: &Word<'_>| other.address.has_name_of(word.address)
                 || mutant!(SentinelAddressesMayDiffer);");

    /// No IP is dialled that only one Sentinel gave, even if its host has the master's IP, too.
    IpOfOneSentinelDialled:
        edit(ADDRESS, "agreed",
            "&& let Some(asked_at) = latest_majority(words, majority, gave)",
            "&& let Some(asked_at) = latest_majority(words,
                 if mutant!(IpOfOneSentinelDialled) { 1 } else { majority }, gave)");

    /// The certificate is checked against a name that a majority gave, not against that of one.
    NameOfOneSentinelTrusted:
        edit(ADDRESS, "agreed",
            "Some((word, latest_majority(words, majority, gave)?))",
            "Some((word, latest_majority(words,
                 if mutant!(NameOfOneSentinelTrusted) { 1 } else { majority }, gave)?))");

    /// A confirmation is as old as the oldest question that its majority needs.
    ConfirmationAsYoungAsTheLast:
        edit(ADDRESS, "latest_majority",
            "latest
                .get(majority.checked_sub(1)?)
                .map(|(_, asked_at)| *asked_at)",
            "let last = latest.first().map(|(_, asked_at)| *asked_at);
             latest
                .get(majority.checked_sub(1)?)
                .map(|(_, asked_at)| if mutant!(ConfirmationAsYoungAsTheLast) { last.unwrap_or(*asked_at) } else { *asked_at })");

    /// A late answer to an older question does not replace a later one.
    OldSentinelAnswerReplaces:
        edit(CONFIRMATION, "handle_answer",
            ".is_some_and(|last| last.asked_at > answer.asked_at)",
            ".is_some_and(|last| last.asked_at > answer.asked_at
                 && !mutant!(OldSentinelAnswerReplaces))");

    /// Two servers on one host are different addresses.
    AddressPortIgnored:
        edit(ADDRESS, "has_name_of",
            "self.port == other.port &&",
            "(self.port == other.port || mutant!(AddressPortIgnored)) &&");

    /// A name and its IP are one address.
    AddressByTextOnly:
        edit(ADDRESS, "resolves_to",
            ".any(|word| word.address.has_name_of(address) && word.address.ips.contains(&ip))",
            ".any(|word| word.address.has_name_of(address) && word.address.ips.contains(&ip)
                 && !mutant!(AddressByTextOnly))");
}
