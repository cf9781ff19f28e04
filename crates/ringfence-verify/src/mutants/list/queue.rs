//! What one node has beside the locks: wait queues, slots and latches.

use super::{Edit, Mutant, edit};

const LATCH: &str = "crates/ringfence-core/src/ledger/latch.rs";
const QUEUE: &str = "crates/ringfence-core/src/ledger/queue.rs";
const SLOTS: &str = "crates/ringfence-core/src/ledger/slots.rs";
const TURNS: &str = "crates/ringfence-core/src/ledger/slots/turns.rs";

/// Shared by OldTicketAccepted, OldTicketCannotReturn.
#[rustfmt::skip]
const QUEUE_IS_TOO_OLD: Edit = edit(QUEUE, "is_too_old",
    "ticket.first",
    "if mutant!(OldTicketAccepted) {
         return false;
     }
     (ticket.first || mutant!(OldTicketCannotReturn))");

/// Shared by DeadHeadBlocks, GraceOnceForAll.
#[rustfmt::skip]
const QUEUE_MAY_PASS_AT: Edit = edit(QUEUE, "may_pass_at",
    "let wait_ms = rules.grace_ms.saturating_mul(ahead);",
    "if mutant!(DeadHeadBlocks) {
         return None;
     }
     let heads = if mutant!(GraceOnceForAll) { 1 } else { ahead };
     let wait_ms = rules.grace_ms.saturating_mul(heads);");

mutants! {
    /// A node records no arrival at a latch that it does not know.
    LatchMadeUnasked:
        edit(LATCH, "arrive",
            "&& let Some(since_us) = arriving.since_us",
            "&& let Some(since_us) = arriving
                 .since_us
                 .or_else(|| mutant!(LatchMadeUnasked).then_some(now.clock_us))");

    /// A latch keeps the earliest reported time of its creation.
    LatchAgeNotKept:
        edit(LATCH, "arrive",
            "let before = latch.parties.len();",
            "if mutant!(LatchAgeNotKept) {
                 latch.since_us = known;
             }
             let before = latch.parties.len();");

    /// A latch's time of creation is never in the future.
    LatchFromTheFuture:
        edit(LATCH, "arrive",
            "if arriving.since_us.is_some_and(|since| since > ceiling) {",
            "if arriving.since_us.is_some_and(|since| since > ceiling)
                 && !mutant!(LatchFromTheFuture) {");

    /// `try_lock` does not pass waiters in the queue.
    TryLockJumpsQueue:
        edit(QUEUE, "ahead_of",
            "None => self.entries.len(),",
            "None if mutant!(TryLockJumpsQueue) => 0,
             None => self.entries.len(),");

    /// Readers do not pass a waiting writer.
    ReadersPassWriters:
        edit(QUEUE, "conflicts_with",
            "mode == Mode::Exclusive || !self.shared",
            "if mutant!(ReadersPassWriters) && mode == Mode::Shared {
                 return false;
             }
             mode == Mode::Exclusive || !self.shared");

    /// A dead waiter at the head of the queue does not block a node forever.
    DeadHeadBlocks:
        QUEUE_MAY_PASS_AT;

    /// Each waiter ahead has its own grace period.
    GraceOnceForAll:
        QUEUE_MAY_PASS_AT;

    /// A waiter that was passed and does not ask again is removed from the queue.
    PassedStay:
        edit(QUEUE, "pass",
            "self.entries.retain(|entry| {",
            "if mutant!(PassedStay) {
                 return;
             }
             self.entries.retain(|entry| {");

    /// A waiter that was passed and is alive stays in the queue.
    LivePassedAreDropped:
        edit(QUEUE, "pass",
            "|| entry.refreshed_ms >= free_since_ms",
            "|| entry.refreshed_ms >= free_since_ms && !mutant!(LivePassedAreDropped)");

    /// A ticket expires unless it is refreshed.
    TicketsNeverExpire:
        edit(QUEUE, "expire",
            ".retain(|entry| entry.until_ms >= now.lease_ms);",
            ".retain(|entry| entry.until_ms >= now.lease_ms || mutant!(TicketsNeverExpire));");

    /// A ticket that enters a queue ends in its time, whatever was known of the others.
    EarlyEndUnnoticed:
        edit(QUEUE, "write",
            "self.none_ends_before_ms = self.none_ends_before_ms.min(entry.until_ms);",
            "if !mutant!(EarlyEndUnnoticed) {
                 self.none_ends_before_ms = self.none_ends_before_ms.min(entry.until_ms);
             }");

    /// A ticket that enters a queue and waits elsewhere, too, is noticed.
    ElsewhereUnnoticed:
        edit(QUEUE, "write",
            "self.may_wait_elsewhere |= entry.elsewhere;",
            "self.may_wait_elsewhere |= entry.elsewhere && !mutant!(ElsewhereUnnoticed);");

    /// A new ticket with an old time is refused.
    OldTicketAccepted:
        QUEUE_IS_TOO_OLD;

    /// A ticket that enters the queue again keeps its time, however old.
    OldTicketCannotReturn:
        QUEUE_IS_TOO_OLD;

    /// All readers at the head of the queue are woken.
    OneReaderWoken:
        edit(QUEUE, "wakes",
            "let leading = self.entries.iter().take_while(|t| t.shared).count();",
            "let mut leading = self.entries.iter().take_while(|t| t.shared).count();
             if mutant!(OneReaderWoken) {
                 leading = leading.min(1);
             }");

    /// The second waiter is woken with the grace period as its delay.
    RunnerUpNotTold:
        edit(QUEUE, "wakes",
            "Mode::Exclusive => (leading + 1).max(2),",
            "Mode::Exclusive if mutant!(RunnerUpNotTold) => leading.max(1),
             Mode::Exclusive => (leading + 1).max(2),");

    /// A slot checks its fence like any lock.
    SlotFenceNotChecked:
        edit(SLOTS, "check_ballot",
            "} else if ballot < seated
                 || ballot <= slot.effective_fence(rules, now, Mode::Exclusive) {",
            "} else if (ballot < seated
                 || ballot <= slot.effective_fence(rules, now, Mode::Exclusive))
                 && !mutant!(SlotFenceNotChecked)
             {");

    /// A slot checks its ceiling like any lock.
    SlotCeilingNotChecked:
        edit(SLOTS, "check_ballot",
            "} else if ballot > now.ceiling(rules) {",
            "} else if ballot > now.ceiling(rules) && !mutant!(SlotCeilingNotChecked) {");

    /// An undo does not release a slot of a later attempt.
    SlotReleaseIgnoresBallot:
        edit(SLOTS, "release",
            "if held && slot.holder_ballot() > params.ballot {",
            "if held && slot.holder_ballot() > params.ballot
                 && !mutant!(SlotReleaseIgnoresBallot) {");

    /// A request for a certain slot is not granted another slot.
    NamedSlotReplaced:
        edit(SLOTS, "decide",
            "let held = asked.or(free.is_empty().then_some(0));",
            "let asked = asked.filter(|slot| free.contains(slot)
                 || !mutant!(NamedSlotReplaced));
             let held = asked.or(free.is_empty().then_some(0));");

    /// A caller waits if at least as many waiters are ahead as slots are free.
    SlotJumpsQueue:
        edit(SLOTS, "decide",
            "if ahead >= free.len() {",
            "if ahead >= free.len() && !mutant!(SlotJumpsQueue) {");

    /// A grant of a slot removes the holder's ticket from the queue.
    SlotHolderStaysInLine:
        edit(SLOTS, "grant_slot",
            "if let Some(ticket) = params.ticket {",
            "if let Some(ticket) = params.ticket.filter(|_| !mutant!(SlotHolderStaysInLine)) {");

    /// An undo of a slot enters the ticket into the queue again.
    SlotUndoLosesPlace:
        edit(SLOTS, "release",
            "Some(ticket) if params.stays && released => {",
            "Some(ticket) if params.stays && released && !mutant!(SlotUndoLosesPlace) => {");

    /// The release of a slot wakes the waiter that may take it.
    SlotReleaseWakesNobody:
        edit(TURNS, "new_wakes",
            "let newly = served.into_iter();",
            "let newly = served.into_iter().filter(|_| !mutant!(SlotReleaseWakesNobody));");

    /// A waiter ahead with fewer permits counts only as far as it can use a free slot.
    SlotWaiterCountsRegardless:
        edit(TURNS, "count_for",
            "match theirs < permits {",
            "match theirs < permits && !mutant!(SlotWaiterCountsRegardless) {");

    /// A freed slot wakes only a waiter that can use it.
    SlotWakesRegardless:
        edit(TURNS, "served",
            "let usable = usable(free, entry.permits);",
            "let most = if mutant!(SlotWakesRegardless) { u32::MAX } else { entry.permits };
             let usable = usable(free, most);");

    /// A late release of a permit's receipt does not cut the lock delay.
    SlotReleasedInDelay:
        edit(SLOTS, "release",
            "if slot.is_in_delay(now, params.token, params.delay_ms) {",
            "if slot.is_in_delay(now, params.token, params.delay_ms) && !mutant!(SlotReleasedInDelay) {");
}
