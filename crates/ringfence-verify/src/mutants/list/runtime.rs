//! What the runtime does: holds, releases, tickets and wakes.

use super::{Mutant, edit};

const ACQUIRE: &str = "crates/ringfence/src/runtime/acquire.rs";
const HOLD: &str = "crates/ringfence/src/runtime/hold.rs";
const CLOSING: &str = "crates/ringfence/src/runtime/closing.rs";
const REQUEST: &str = "crates/ringfence-core/src/protocol/request.rs";
const RELEASING: &str = "crates/ringfence/src/runtime/releasing.rs";
const SENDER: &str = "crates/ringfence/src/runtime/sender.rs";
const SCHEDULE: &str = "crates/ringfence/src/runtime/schedule.rs";
const TICKET: &str = "crates/ringfence/src/runtime/ticket.rs";
const WAITER: &str = "crates/ringfence/src/runtime/waiter.rs";
const WAITING: &str = "crates/ringfence/src/runtime/waiting.rs";

mutants! {
    /// A lost attempt is undone.
    NoUndo:
        edit(ACQUIRE, "PendingAttempt::drop",
            "if !self.kept {",
            "if !self.kept && !mutant!(NoUndo) {");

    /// An attempt that was not sent when its caller gave up is never sent.
    AbandonedSent:
        edit(SENDER, "is_wanted",
            "!self.abandoned.load(Ordering::SeqCst)",
            "mutant!(AbandonedSent) || !self.abandoned.load(Ordering::SeqCst)");

    /// Where the last attempt was not sent, the ticket of an earlier one is still withdrawn.
    EarlierTicketForgotten:
        edit(RELEASING, "is_wanted",
            "had_ticket || !round.with(",
            "had_ticket && !mutant!(EarlierTicketForgotten) || !round.with(");

    /// While callers of a name give up, only a few of them ask the nodes.
    AllCallersAsk:
        edit(ACQUIRE, "lets_pass",
            "self.undos + self.waiting == 0 || self.has_room()",
            "mutant!(AllCallersAsk) || self.undos + self.waiting == 0 || self.has_room()");

    /// A caller is told of contention only if the nodes answer; otherwise it asks them.
    SilenceIsContention:
        edit(ACQUIRE, "may_ask",
            "callers.confirmed.is_some_and(answer)",
            "(mutant!(SilenceIsContention) || callers.confirmed.is_some_and(answer))");

    /// One thread at a time executes the outputs of a hold, in the order of their production.
    DrainedByMany:
        edit(HOLD, "drain",
            "if state.draining {",
            "if state.draining && !mutant!(DrainedByMany) {");

    /// A downgraded hold sends shared claims from its first request on.
    DowngradedStaysExclusive:
        edit(REQUEST, "GrantId::shared",
            "claims: self.claims.iter().map(Claim::shared).collect(),",
            "claims: match mutant!(DowngradedStaysExclusive) {
                 false => self.claims.iter().map(Claim::shared).collect(),
                 true => Arc::clone(&self.claims),
             },");

    /// The release of a dropped guard is sent before the drop returns.
    DroppedWithoutFlush:
        edit(SENDER, "flush",
            "for node in &self.nodes {",
            "if mutant!(DroppedWithoutFlush) {
                 return;
             }
             for node in &self.nodes {");

    /// After a majority has confirmed the releases, closing waits only briefly for other nodes.
    CloseWaitsForAll:
        edit(CLOSING, "drained",
            "tokio::select! {
                 biased;
                 () = wait_for(&self.changed, all) => {}
                 () = clock.sleep_until(clock.now() + LINGER) => {}",
            "let linger = if mutant!(CloseWaitsForAll) {
                 Duration::from_secs(3600)
             } else {
                 LINGER
             };
             tokio::select! {
                 biased;
                 () = wait_for(&self.changed, all) => {}
                 () = clock.sleep_until(clock.now() + linger) => {}");

    /// Contention between tasks of one client is not logged as a warning.
    ContentionWarned:
        edit(SCHEDULE, "hold_of",
            "find(|hold| hold.task() == task)",
            "find(|hold| hold.task() == task || mutant!(ContentionWarned))");

    /// A caller that stops waiting removes its ticket.
    TicketLeftBehind:
        edit(TICKET, "gave_up",
            "self.forget(runtime, targets, call_timeout, UndoOf::GoneTicket);",
            "if !mutant!(TicketLeftBehind) {
                 self.forget(runtime, targets, call_timeout, UndoOf::GoneTicket);
             }");

    /// After the grant the ticket is removed from every node that may have it.
    TicketOutlivesGrant:
        edit(TICKET, "granted",
            "self.forget(runtime, targets, call_timeout, UndoOf::Live);",
            "if !mutant!(TicketOutlivesGrant) {
                 self.forget(runtime, targets, call_timeout, UndoOf::Live);
             }");

    /// A ticket that a node enters after the grant is removed, too.
    LateTicketKept:
        edit(TICKET, "Waiter::note",
            "if let Some(call_timeout) = late {",
            "if let Some(call_timeout) = late.filter(|_| !mutant!(LateTicketKept)) {");

    /// A wake during an attempt is kept until the attempt ends.
    WakeDuringAttemptLost:
        edit(WAITER, "wake",
            "if state.due.is_none_or(|(due, _)| at < due) {",
            "if mutant!(WakeDuringAttemptLost) && state.attempting {
                 return;
             }
             if state.due.is_none_or(|(due, _)| at < due) {");

    /// A poll replaces a lost wake.
    WakeWithoutPoll:
        edit(WAITING, "refresh",
            "let mut groups: BTreeMap<_, Vec<Arc<Waiter>>> = BTreeMap::new();",
            "let mut groups: BTreeMap<_, Vec<Arc<Waiter>>> = BTreeMap::new();
             if mutant!(WakeWithoutPoll) {
                 return;
             }");

    /// A ticket is not refreshed during an attempt, which may just have been granted.
    SlotRefreshedOnGrant:
        edit(WAITER, "needs_refresh",
            "latch || !lock(&self.state).attempting",
            "let asks = !latch && lock(&self.state).attempting;
             !asks || mutant!(SlotRefreshedOnGrant)");

    /// Extend and release by a receipt carry the lock delay.
    ReceiptWithoutDelay:
        edit(REQUEST, "of_receipt",
            "receipt_delay_ms: u32::try_from(delay.as_millis()).unwrap_or(u32::MAX),",
            "receipt_delay_ms: match mutant!(ReceiptWithoutDelay) {
                 true => 0,
                 false => u32::try_from(delay.as_millis()).unwrap_or(u32::MAX),
             },");
}
