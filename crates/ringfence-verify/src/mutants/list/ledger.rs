//! What one node decides about a claim: grant, extend, restore, and its record.

use super::{Edit, Mutant, edit};

const ACQUIRE: &str = "crates/ringfence-core/src/ledger/acquire.rs";
const BIRTH: &str = "crates/ringfence-core/src/ledger/birth.rs";
const ENTRY: &str = "crates/ringfence-core/src/ledger/entry.rs";
const EXTEND: &str = "crates/ringfence-core/src/ledger/extend.rs";
const PLAIN: &str = "crates/ringfence-core/src/ledger/plain.rs";

/// Shared by WriterIgnoresReadFence, ReadersInOrder.
#[rustfmt::skip]
const ENTRY_EFFECTIVE_FENCE_1: Edit = edit(ENTRY, "effective_fence",
    "Mode::Exclusive => r.fence.max(r.read_fence),",
    "Mode::Exclusive if mutant!(WriterIgnoresReadFence) => r.fence,
     Mode::Shared if mutant!(ReadersInOrder) => r.fence.max(r.read_fence),
     Mode::Exclusive => r.fence.max(r.read_fence),");

/// Shared by RecordPinsFloor, NoGround.
#[rustfmt::skip]
const ENTRY_EFFECTIVE_FENCE_2: Edit = edit(ENTRY, "effective_fence",
    "recorded.max(now.ground(rules))",
    "match &self.record {
         Some(_) if mutant!(RecordPinsFloor) => recorded,
         None if mutant!(NoGround) => recorded,
         _ => recorded.max(now.ground(rules)),
     }");

/// Shared by BirthByRunIdAlone, EpochNotABirth.
#[rustfmt::skip]
const BIRTH_JUDGE: Edit = edit(BIRTH, "judge",
    "if stored.epoch != now.epoch || promoted {",
    "if stored.epoch != now.epoch && !mutant!(EpochNotABirth)
         || promoted && !mutant!(BirthByRunIdAlone) {");

mutants! {
    /// A ballot at or below the fence is stale.
    FenceNotChecked:
        edit(ACQUIRE, "check_claim",
            "if ballot <= entry.effective_fence(rules, now, mode) {",
            "if ballot <= entry.effective_fence(rules, now, mode)
                 && !mutant!(FenceNotChecked) {");

    /// A ballot above the ceiling is not granted.
    CeilingNotChecked:
        edit(ACQUIRE, "check_claim",
            "} else if ballot > now.ceiling(rules) {",
            "} else if ballot > now.ceiling(rules) && !mutant!(CeilingNotChecked) {");

    /// A holder is not granted its key again under a lower ballot.
    LowerBallotRegranted:
        edit(ACQUIRE, "check_claim",
            "if ballot < seated {",
            "if ballot < seated && !mutant!(LowerBallotRegranted) {");

    /// Of several claims all are granted, or none.
    FirstClaimDecides:
        edit(ACQUIRE, "acquire",
            "if let Some(refusal) = refusal(checks) {",
            "let count = if mutant!(FirstClaimDecides) { 1 } else { usize::MAX };
             if let Some(refusal) = refusal(checks.take(count)) {");

    /// A writer that waits for readers is not treated as dead.
    WriterPassedByReaders:
        edit(ACQUIRE, "find_conflict",
            "let pass_at = pass_at.filter(|_| ahead == 0 || entry.key.is_none());",
            "let pass_at =
                 pass_at.filter(|_| ahead == 0 || entry.key.is_none()
                     || mutant!(WriterPassedByReaders));");

    /// A waiter that also waits for another held name is not passed as dead.
    WaitingElsewhereIsDead:
        edit(ACQUIRE, "enter",
            "let elsewhere = held > usize::from(held_here);",
            "let elsewhere = held > usize::from(held_here)
                 && !mutant!(WaitingElsewhereIsDead);");

    /// A grant removes the holder's ticket from the queue.
    HolderStaysInLine:
        edit(ACQUIRE, "acquire",
            "entry.queue.leave(ticket, claim.mode);",
            "if !mutant!(HolderStaysInLine) {
                 entry.queue.leave(ticket, claim.mode);
             }");

    /// A server that was promoted during its run has a new birth, although its run id is the same.
    BirthByRunIdAlone:
        BIRTH_JUDGE;

    /// Another configuration epoch of the Sentinels is a birth.
    EpochNotABirth:
        BIRTH_JUDGE;

    /// A replicated server writes holders only under the replication id of its birth record.
    ReplicationIdNotCompared:
        edit(BIRTH, "stands_for",
            "!compared || is_master && self.replication_id.as_ref() == replication_id",
            "!compared
                 || is_master && self.replication_id.as_ref() == replication_id
                 || mutant!(ReplicationIdNotCompared)");

    /// A server that once had a replica stays marked as replicated.
    ReplicatedMarkForgotten:
        edit(BIRTH, "record",
            "let replicated = replicated || self.has_replicas || self.former_id;",
            "let replicated = (replicated && !mutant!(ReplicatedMarkForgotten))
                 || self.has_replicas
                 || self.former_id;");

    /// A ballot above the ceiling is never stored.
    StoredAboveCeiling:
        edit(ENTRY, "write",
            "if ballot <= now.ceiling(rules) {",
            "if ballot <= now.ceiling(rules) || mutant!(StoredAboveCeiling) {");

    /// The floor of a name is never below the clock minus the window, with or without a record.
    RecordPinsFloor:
        ENTRY_EFFECTIVE_FENCE_2;

    /// A name without a record also has a floor.
    NoGround:
        ENTRY_EFFECTIVE_FENCE_2;

    /// An exclusive grant also needs a ballot above the readers' fence.
    WriterIgnoresReadFence:
        ENTRY_EFFECTIVE_FENCE_1;

    /// Readers need no order among each other.
    ReadersInOrder:
        ENTRY_EFFECTIVE_FENCE_1;

    /// A shared grant does not change the write fence.
    ReaderRaisesWriteFence:
        edit(ENTRY, "grant_shared",
            "self.mark_shared(rules, now, (Mode::Shared, ballot), self.closed(), ballot);",
            "let raised = match mutant!(ReaderRaisesWriteFence) {
                 true => Mode::Exclusive,
                 false => Mode::Shared,
             };
             self.mark_shared(rules, now, (raised, ballot), self.closed(), ballot);");

    /// A record lives longer than the key that it describes.
    KeyOutlivesRecord:
        edit(ENTRY, "write",
            "let key_until = self.key.as_ref().and_then(|key| key.until_ms);",
            "let mut key_until = self.key.as_ref().and_then(|key| key.until_ms);
             if mutant!(KeyOutlivesRecord) {
                 key_until = None;
             }");

    /// A record expires only after the node's floor has reached the record's fences.
    RecordDroppedEarly:
        edit(ENTRY, "Record::is_lapsed",
            "self.until_ms < now.lease_ms && demanded <= now.ground(rules)",
            "let covered = demanded <= now.ground(rules) || mutant!(RecordDroppedEarly);
             self.until_ms < now.lease_ms && covered");

    /// An exclusive claim is refused while readers share the name.
    WriterBesideReaders:
        edit(ENTRY, "conflicts_with",
            "self.key.is_some() && (mode == Mode::Exclusive || !self.is_shared())",
            "if mutant!(WriterBesideReaders) && self.is_shared() {
                 return false;
             }
             self.key.is_some() && (mode == Mode::Exclusive || !self.is_shared())");

    /// A reader's hold ends with its lease.
    ReadersNeverExpire:
        edit(ENTRY, "expire",
            "self.readers.retain(|reader| !over(reader.until_ms));",
            "self.readers
                 .retain(|reader| !over(reader.until_ms) || mutant!(ReadersNeverExpire));");

    /// A reader marker without readers is treated as another program's value.
    StrangeMarkerIsFree:
        edit(ENTRY, "expire",
            "self.readers.clear();",
            "    self.readers.clear();
             } else if self.readers.is_empty() && mutant!(StrangeMarkerIsFree) {
                 self.key = None;");

    /// Neither an extend nor a second grant shortens a lease.
    LeaseShortened:
        edit(ENTRY, "grant_exclusive",
            "Some(key) if key.value == seat.token =>
                 key.until_ms.map(|until| until.max(asked)),",
            "Some(key) if key.value == seat.token && !mutant!(LeaseShortened) => {
                 key.until_ms.map(|until| until.max(asked))
             }");

    /// Neither an extend nor a second grant shortens a reader's lease.
    ShareShortened:
        edit(ENTRY, "grant_shared",
            "reader.until_ms = now.lease_ms.saturating_add(ttl_ms).max(left);",
            "let left = if mutant!(ShareShortened) { 0 } else { left };
             reader.until_ms = now.lease_ms.saturating_add(ttl_ms).max(left);");

    /// An extend raises the ballot in the holder's seat.
    ExtendKeepsBallot:
        edit(EXTEND, "prolong",
            "let ballot = if ballot <= now.ceiling(rules) {",
            "let ballot = if mutant!(ExtendKeepsBallot) {
                 seated
             } else if ballot <= now.ceiling(rules) {");

    /// An extend does not create a key that is gone.
    ExtendRecreates:
        edit(EXTEND, "extend",
            "Some(refusal) => return or_broken(entries, token, refusal),",
            "Some(Answer::Gone) if mutant!(ExtendRecreates) => {}
             Some(refusal) => return or_broken(entries, token, refusal),");

    /// A downgrade wakes the waiting readers.
    DowngradeWakesNobody:
        edit(EXTEND, "downgrade",
            "if was_alone {",
            "if was_alone && !mutant!(DowngradeWakesNobody) {");

    /// An extend does not shorten the lease of a plain lock.
    PlainExtendShortens:
        edit(PLAIN, "extend",
            "key.until_ms = key.until_ms.map(|until| until.max(asked));",
            "key.until_ms = key
                 .until_ms
                 .map(|until| match mutant!(PlainExtendShortens) {
                     false => until.max(asked),
                     true => asked,
                 });");

    /// Only the owner releases a plain lock.
    PlainReleaseIgnoresOwner:
        edit(PLAIN, "release",
            "if let Some(refusal) = not_held(now, entries, claims, token) {",
            "if let Some(refusal) = not_held(now, entries, claims, token)
                 && !mutant!(PlainReleaseIgnoresOwner)
             {");

    /// A restore above the ceiling is refused.
    RestoreAboveCeiling:
        edit(EXTEND, "restore",
            "if ballot > now.ceiling(rules) {",
            "if ballot > now.ceiling(rules) && !mutant!(RestoreAboveCeiling) {");

    /// A restore does not undo a release.
    RestoreIgnoresClosed:
        edit(EXTEND, "restore",
            "let closed = |entry: &Entry| ballot <= entry.closed();",
            "let closed = |entry: &Entry| ballot <= entry.closed()
                 && !mutant!(RestoreIgnoresClosed);");

    /// A restore does not replace another holder.
    RestoreOverHolder:
        edit(EXTEND, "restore",
            "if let Some(held @ Answer::Held(_)) = not_held(now, &checked, claims, token) {",
            "if let Some(held @ Answer::Held(_)) = not_held(now, &checked, claims, token)
                 && !mutant!(RestoreOverHolder)
             {");

    /// The birth record of another database is a birth.
    BirthIgnoresDatabase:
        edit(BIRTH, "judge",
            "if stored.database != now.database {",
            "if stored.database != now.database && !mutant!(BirthIgnoresDatabase) {");

    /// A receipt is not extended when only the lock delay is left of its lease.
    ExtendedInDelay:
        edit(EXTEND, "extend",
            "if entries.iter().any(ended) {",
            "if entries.iter().any(ended) && !mutant!(ExtendedInDelay) {");
}
