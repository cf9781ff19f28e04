//! What the driver does: holds, releases, tickets and waking.

use super::{Mutant, edit};

const ACQUIRE: &str = "crates/ringfence/src/driver/acquire.rs";
const HOLD: &str = "crates/ringfence/src/driver/hold.rs";
const CLOSING: &str = "crates/ringfence/src/driver/closing.rs";
const REQUEST: &str = "crates/ringfence-core/src/protocol/request.rs";
const SENDER: &str = "crates/ringfence/src/driver/sender.rs";
const SCHEDULE: &str = "crates/ringfence/src/driver/schedule.rs";
const TICKET: &str = "crates/ringfence/src/driver/ticket.rs";
const WAITER: &str = "crates/ringfence/src/driver/waiter.rs";
const WAITING: &str = "crates/ringfence/src/driver/waiting.rs";

mutants! {
    /// A lost attempt is undone.
    NoUndo:
        edit(ACQUIRE, "PendingAttempt::drop",
            "if !self.kept {",
            "if !self.kept && !mutant!(NoUndo) {");

    /// What a hold wants is executed by one thread at a time, in the order in which it was produced.
    DrainedByMany:
        edit(HOLD, "drain",
            "if state.draining {",
            "if state.draining && !mutant!(DrainedByMany) {");

    /// A downgraded hold claims a share from the first send on.
    DowngradedStaysExclusive:
        edit(REQUEST, "GrantId::shared",
            "claims: self.claims.iter().map(Claim::shared).collect(),",
            "claims: match mutant!(DowngradedStaysExclusive) {
                 false => self.claims.iter().map(Claim::shared).collect(),
                 true => Arc::clone(&self.claims),
             },");

    /// What is released by dropping a guard is sent before the drop returns.
    DroppedWithoutFlush:
        edit(SENDER, "flush",
            "for node in &self.nodes {",
            "if mutant!(DroppedWithoutFlush) {
                 return;
             }
             for node in &self.nodes {");

    /// Once a majority has confirmed a release, a node that does not answer costs a moment only.
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

    /// Tasks of one client that wait for each other are not warned.
    ContentionWarned:
        edit(SCHEDULE, "hold_of",
            "find(|hold| hold.task() == task)",
            "find(|hold| hold.task() == task || mutant!(ContentionWarned))");

    /// A caller that no longer waits leaves no ticket behind.
    TicketLeftBehind:
        edit(TICKET, "gave_up",
            "self.forget(driver, targets, call_timeout);",
            "if !mutant!(TicketLeftBehind) {
                 self.forget(driver, targets, call_timeout);
             }");

    /// After the grant every node that may have the ticket is told to forget it.
    TicketOutlivesGrant:
        edit(TICKET, "granted",
            "self.forget(driver, targets, call_timeout);",
            "if !mutant!(TicketOutlivesGrant) {
                 self.forget(driver, targets, call_timeout);
             }");

    /// A node that enters a ticket after the grant is told to forget it, too.
    LateTicketKept:
        edit(TICKET, "Waiter::note",
            "if let Some(call_timeout) = late {",
            "if let Some(call_timeout) = late.filter(|_| !mutant!(LateTicketKept)) {");

    /// A wake during an attempt counts after it.
    WakeDuringAttemptLost:
        edit(WAITER, "wake",
            "if state.due.is_none_or(|(due, _)| at < due) {",
            "if mutant!(WakeDuringAttemptLost) && state.attempting {
                 return;
             }
             if state.due.is_none_or(|(due, _)| at < due) {");

    /// A wake that is lost is made up for by a poll.
    WakeWithoutPoll:
        edit(WAITING, "refresh",
            "let mut groups: BTreeMap<_, Vec<Arc<Waiter>>> = BTreeMap::new();",
            "let mut groups: BTreeMap<_, Vec<Arc<Waiter>>> = BTreeMap::new();
             if mutant!(WakeWithoutPoll) {
                 return;
             }");

    /// A ticket that may just have been granted is not refreshed.
    SlotRefreshedOnGrant:
        edit(WAITER, "needs_refresh",
            "latch || !lock(&self.state).attempting",
            "let asks = !latch && lock(&self.state).attempting;
             !asks || mutant!(SlotRefreshedOnGrant)");
}
