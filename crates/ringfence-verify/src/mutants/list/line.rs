//! What one node keeps beside locks: the line, slots and latches.

use super::{Edit, Mutant, edit};

const LATCH: &str = "crates/ringfence-core/src/ledger/latch.rs";
const LINE: &str = "crates/ringfence-core/src/ledger/line.rs";
const SLOTS: &str = "crates/ringfence-core/src/ledger/slots.rs";

/// Shared by OldTicketAccepted, OldTicketCannotReturn.
#[rustfmt::skip]
const LINE_IS_TOO_OLD: Edit = edit(LINE, "is_too_old",
    "place.first",
    "if mutant!(OldTicketAccepted) {
         return false;
     }
     (place.first || mutant!(OldTicketCannotReturn))");

/// Shared by DeadHeadBlocks, GraceOnceForAll.
#[rustfmt::skip]
const LINE_MAY_PASS_AT: Edit = edit(LINE, "may_pass_at",
    "let wait_ms = rules.grace_ms.saturating_mul(ahead);",
    "if mutant!(DeadHeadBlocks) {
         return None;
     }
     let heads = if mutant!(GraceOnceForAll) { 1 } else { ahead };
     let wait_ms = rules.grace_ms.saturating_mul(heads);");

mutants! {
    /// A node takes nobody to a latch that it does not know.
    LatchMadeUnasked:
        edit(LATCH, "arrive",
            "&& let Some(since_us) = arriving.since_us",
            "&& let Some(since_us) = arriving
                 .since_us
                 .or_else(|| mutant!(LatchMadeUnasked).then_some(now.clock_us))");

    /// The earliest time at which a latch was made counts.
    LatchAgeNotKept:
        edit(LATCH, "arrive",
            "let before = latch.parties.len();",
            "if mutant!(LatchAgeNotKept) {
                 latch.since_us = known;
             }
             let before = latch.parties.len();");

    /// No latch is made in the future.
    LatchFromTheFuture:
        edit(LATCH, "arrive",
            "if arriving.since_us.is_some_and(|since| since > ceiling) {",
            "if arriving.since_us.is_some_and(|since| since > ceiling)
                 && !mutant!(LatchFromTheFuture) {");

    /// `try_lock` does not jump a line.
    TryLockJumpsQueue:
        edit(LINE, "ahead_of",
            "None => self.tickets.len(),",
            "None if mutant!(TryLockJumpsQueue) => 0,
             None => self.tickets.len(),");

    /// Readers do not pass a writer who waits.
    ReadersPassWriters:
        edit(LINE, "conflicts_with",
            "mode == Mode::Exclusive || !self.shared",
            "if mutant!(ReadersPassWriters) && mode == Mode::Shared {
                 return false;
             }
             mode == Mode::Exclusive || !self.shared");

    /// A dead head does not block a node for ever.
    DeadHeadBlocks:
        LINE_MAY_PASS_AT;

    /// Each waiter ahead has its own grace.
    GraceOnceForAll:
        LINE_MAY_PASS_AT;

    /// A waiter that was passed and did not come leaves the line.
    PassedStay:
        edit(LINE, "pass",
            "self.tickets.retain(|ticket| {",
            "if mutant!(PassedStay) {
                 return;
             }
             self.tickets.retain(|ticket| {");

    /// A waiter that was passed and is alive stays in line.
    LivePassedAreDropped:
        edit(LINE, "pass",
            "|| ticket.refreshed_ms >= free_since_ms",
            "|| ticket.refreshed_ms >= free_since_ms && !mutant!(LivePassedAreDropped)");

    /// A ticket is a lease.
    TicketsNeverExpire:
        edit(LINE, "expire",
            ".retain(|ticket| ticket.until_ms >= now.lease_ms);",
            ".retain(|ticket| ticket.until_ms >= now.lease_ms || mutant!(TicketsNeverExpire));");

    /// A new ticket that looks old is refused.
    OldTicketAccepted:
        LINE_IS_TOO_OLD;

    /// A ticket that enters again keeps its time at any age.
    OldTicketCannotReturn:
        LINE_IS_TOO_OLD;

    /// All leading readers are woken.
    OneReaderWoken:
        edit(LINE, "wakes",
            "let leading = self.tickets.iter().take_while(|t| t.shared).count();",
            "let mut leading = self.tickets.iter().take_while(|t| t.shared).count();
             if mutant!(OneReaderWoken) {
                 leading = leading.min(1);
             }");

    /// The runner-up is told to come after the grace.
    RunnerUpNotTold:
        edit(LINE, "wakes",
            "Mode::Exclusive => (leading + 1).max(2),",
            "Mode::Exclusive if mutant!(RunnerUpNotTold) => leading.max(1),
             Mode::Exclusive => (leading + 1).max(2),");

    /// A slot has a fence like any lock.
    SlotFenceNotChecked:
        edit(SLOTS, "check_ballot",
            "} else if ballot < seated
                 || ballot <= slot.effective_fence(rules, now, Mode::Exclusive) {",
            "} else if (ballot < seated
                 || ballot <= slot.effective_fence(rules, now, Mode::Exclusive))
                 && !mutant!(SlotFenceNotChecked)
             {");

    /// A slot has a ceiling like any lock.
    SlotCeilingNotChecked:
        edit(SLOTS, "check_ballot",
            "} else if ballot > now.ceiling(rules) {",
            "} else if ballot > now.ceiling(rules) && !mutant!(SlotCeilingNotChecked) {");

    /// An undo does not give back a slot of a later attempt.
    SlotReleaseIgnoresBallot:
        edit(SLOTS, "release",
            "if held && slot.holder_ballot() > params.ballot {",
            "if held && slot.holder_ballot() > params.ballot
                 && !mutant!(SlotReleaseIgnoresBallot) {");

    /// A slot that was named is not replaced by another.
    NamedSlotReplaced:
        edit(SLOTS, "decide",
            "let held = asked.or(free.is_empty().then_some(0));",
            "let asked = asked.filter(|slot| free.contains(slot)
                 || !mutant!(NamedSlotReplaced));
             let held = asked.or(free.is_empty().then_some(0));");

    /// A caller with as many waiters ahead as slots are free waits.
    SlotJumpsQueue:
        edit(SLOTS, "decide",
            "if ahead >= free.len() {",
            "if ahead >= free.len() && !mutant!(SlotJumpsQueue) {");

    /// A caller that has a slot leaves the line.
    SlotHolderStaysInLine:
        edit(SLOTS, "grant_slot",
            "if let Some(place) = params.place {",
            "if let Some(place) = params.place.filter(|_| !mutant!(SlotHolderStaysInLine)) {");

    /// An undo of a slot takes the place in line again.
    SlotUndoLosesPlace:
        edit(SLOTS, "release",
            "Some(place) if params.stays && released => {",
            "Some(place) if params.stays && released && !mutant!(SlotUndoLosesPlace) => {");

    /// The release of a slot wakes the waiter that gets it.
    SlotReleaseWakesNobody:
        edit(SLOTS, "newly_entitled",
            "let next = line.tickets.get(free);",
            "if mutant!(SlotReleaseWakesNobody) {
                 newly.clear();
             }
             let next = line.tickets.get(free);");
}
