//! What one node does with a release.

use super::{Edit, Mutant, edit};

const RELEASE: &str = "crates/ringfence-core/src/ledger/release.rs";

/// Shared by NoRetirement, RetireAlways.
#[rustfmt::skip]
const RELEASE_RELEASE_ONE: Edit = edit(RELEASE, "release_one",
    "let raise = if held || params.fate_unknown {",
    "let retires = match () {
         () if mutant!(NoRetirement) => false,
         () if mutant!(RetireAlways) => true,
         () => params.fate_unknown,
     };
     let raise = if held || retires {");

/// Shared by KeptAfterClosed, KeptOnlyWhereHeld.
#[rustfmt::skip]
const RELEASE_KEEPS_ANEW: Edit = edit(RELEASE, "keeps_free_name",
    "let already_closed = params.ballot <= entry.closed();
     if already_closed || params.ballot > now.ceiling(rules) {",
    "let already_closed = params.ballot <= entry.closed() && !mutant!(KeptAfterClosed);
     if already_closed || params.ballot > now.ceiling(rules) || mutant!(KeptOnlyWhereHeld) {");

mutants! {
    /// Only the owner releases.
    ReleaseIgnoresOwner:
        edit(RELEASE, "release_one",
            "let held = entry.is_held_by(params.token);",
            "let held = entry.is_held_by(params.token)
                 || mutant!(ReleaseIgnoresOwner) && entry.key.is_some();");

    /// An undo does not release what was granted under a higher ballot.
    ReleaseIgnoresBallot:
        edit(RELEASE, "release",
            ".any(|seated| seated > params.ballot)",
            ".any(|seated| seated > params.ballot && !mutant!(ReleaseIgnoresBallot))");

    /// A release raises the fence if an acquire of its token may still arrive.
    NoRetirement:
        RELEASE_RELEASE_ONE;

    /// A release raises the fence if a shared acquire of its token may still arrive.
    ReaderNotRetired:
        edit(RELEASE, "stop_sharing",
            "let raise = match params.fate_unknown && reader.ballot < params.ballot {",
            "let unknown = params.fate_unknown && !mutant!(ReaderNotRetired);
             let raise = match unknown && reader.ballot < params.ballot {");

    /// A release raises the fence only if an acquire of its token may still arrive.
    RetireAlways:
        edit(RELEASE, "release_one",
            "if held || closes || params.fate_unknown {",
            "if held || closes || params.fate_unknown || mutant!(RetireAlways) {"),
        RELEASE_RELEASE_ONE;

    /// A final release closes its ballot only where something may still arrive, not elsewhere.
    ClosesOnlyWhereAnswered:
        edit(RELEASE, "release_one",
            "let may_arrive = params.fate_unknown || params.keep_ms.is_some()
                 || mode == Mode::Shared;",
            "let unknown = params.fate_unknown != mutant!(ClosesOnlyWhereAnswered);
             let may_arrive = unknown || params.keep_ms.is_some() || mode == Mode::Shared;");

    /// A release with waiters in the queue starts their grace period.
    ReleaseToWaitersNotNoted:
        edit(RELEASE, "release_one",
            "if held && is_final && !closes && !awaited {",
            "if held && is_final && !closes && (!awaited || mutant!(ReleaseToWaitersNotNoted)) {");

    /// A final release closes its ballot where something of the hold may still arrive.
    FinalReleaseNotClosed:
        edit(RELEASE, "release_one",
            "if closes && params.ballot <= now.ceiling(rules) {",
            "if closes && params.ballot <= now.ceiling(rules)
                 && !mutant!(FinalReleaseNotClosed) {");

    /// The final release of a reader closes its ballot if a restore may still arrive.
    ReaderNotClosed:
        edit(RELEASE, "stop_sharing",
            "if closes {",
            "if closes && !mutant!(ReaderNotClosed) {");

    /// An undo does not restart the grace period of the waiters.
    UndoSetsFreeSince:
        edit(RELEASE, "release_one",
            "(true, false) => entry",
            "(true, false) if mutant!(UndoSetsFreeSince) => now.lease_ms,
             (true, false) => entry");

    /// An undo does not wake its own sender.
    UndoWakesSender:
        edit(RELEASE, "wake_next",
            "let sender = params.ticket.filter(|_| params.stays);",
            "let sender = params
                 .ticket
                 .filter(|_| params.stays && !mutant!(UndoWakesSender));");

    /// `hold_at_least` keeps the name from other clients after an early release.
    KeepIgnored:
        edit(RELEASE, "clear_key",
            "let until_ms = now.lease_ms.saturating_add(params.keep_ms?);",
            "if mutant!(KeepIgnored) {
                 return None;
             }
             let until_ms = now.lease_ms.saturating_add(params.keep_ms?);");

    /// A request to keep a name from other clients also works after the lease has ended.
    KeptOnlyWhereHeld:
        RELEASE_KEEPS_ANEW;

    /// A repeated request to keep a name does not prolong the time.
    KeptAfterClosed:
        RELEASE_KEEPS_ANEW;

    /// An undo of a grant enters the ticket into the queue again.
    UndoLosesPlace:
        edit(RELEASE, "release",
            "if entries.iter().any(held) {",
            "if entries.iter().any(held) && !mutant!(UndoLosesPlace) {");

    /// A late release of a receipt does not cut the lock delay.
    ReleasedInDelay:
        edit(RELEASE, "release",
            "if entries.iter().any(ended) {",
            "if entries.iter().any(ended) && !mutant!(ReleasedInDelay) {");
}
