//! What one node does with a release.

use super::{Edit, Mutant, edit};

const RELEASE: &str = "crates/ringfence-core/src/ledger/release.rs";

/// Shared by NoRetirement, RetireAlways.
#[rustfmt::skip]
const RELEASE_RELEASE_ONE: Edit = edit(RELEASE, "release_one",
    "let raise = if held || leaving.fate_unknown {",
    "let retires = match () {
         () if mutant!(NoRetirement) => false,
         () if mutant!(RetireAlways) => true,
         () => leaving.fate_unknown,
     };
     let raise = if held || retires {");

/// Shared by KeptAfterClosed, KeptOnlyWhereHeld.
#[rustfmt::skip]
const RELEASE_KEEPS_ANEW: Edit = edit(RELEASE, "keeps_anew",
    "let told = leaving.ballot <= entry.closed();
     if told || leaving.ballot > now.ceiling(rules) {",
    "let told = leaving.ballot <= entry.closed() && !mutant!(KeptAfterClosed);
     if told || leaving.ballot > now.ceiling(rules) || mutant!(KeptOnlyWhereHeld) {");

mutants! {
    /// Only the owner releases.
    ReleaseIgnoresOwner:
        edit(RELEASE, "release_one",
            "let held = entry.is_held_by(leaving.token) || reader.is_some();",
            "let held = entry.is_held_by(leaving.token)
                 || reader.is_some()
                 || mutant!(ReleaseIgnoresOwner) && entry.key.is_some();");

    /// An undo does not release what was granted under a higher ballot.
    ReleaseIgnoresBallot:
        edit(RELEASE, "release",
            ".any(|seated| seated > leaving.ballot)",
            ".any(|seated| seated > leaving.ballot && !mutant!(ReleaseIgnoresBallot))");

    /// A release raises the fence if an acquire of its token may still arrive.
    NoRetirement:
        RELEASE_RELEASE_ONE;

    /// A release raises the fence if a shared acquire of its token may still arrive.
    ReaderNotRetired:
        edit(RELEASE, "stop_sharing",
            "let raise = match leaving.fate_unknown && reader.ballot < leaving.ballot {",
            "let unknown = leaving.fate_unknown && !mutant!(ReaderNotRetired);
             let raise = match unknown && reader.ballot < leaving.ballot {");

    /// A release raises the fence only if an acquire of its token may still arrive.
    RetireAlways:
        edit(RELEASE, "release_one",
            "} else if held || closes || leaving.fate_unknown {",
            "} else if held || closes || leaving.fate_unknown || mutant!(RetireAlways) {"),
        RELEASE_RELEASE_ONE;

    /// A final release closes its ballot.
    FinalReleaseNotClosed:
        edit(RELEASE, "release_one",
            "if closes && leaving.ballot <= now.ceiling(rules) {",
            "if closes && leaving.ballot <= now.ceiling(rules)
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
        edit(RELEASE, "release_one",
            "let sender = leaving.place.filter(|_| leaving.stays);",
            "let sender = leaving
                 .place
                 .filter(|_| leaving.stays && !mutant!(UndoWakesSender));");

    /// `hold_at_least` keeps the name from other clients after an early release.
    KeepIgnored:
        edit(RELEASE, "bury",
            "let until_ms = now.lease_ms.saturating_add(leaving.keep_ms?);",
            "if mutant!(KeepIgnored) {
                 return None;
             }
             let until_ms = now.lease_ms.saturating_add(leaving.keep_ms?);");

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
}
