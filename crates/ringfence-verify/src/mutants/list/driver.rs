//! What the driver does: holds, releases, tickets and waking.

use super::{Edit, Mutant, edit};

const ACQUIRE: &str = "crates/ringfence/src/driver/acquire.rs";
const HOLD: &str = "crates/ringfence/src/driver/hold.rs";
const DRIVER_MOD: &str = "crates/ringfence/src/driver/mod.rs";
const SCHEDULE: &str = "crates/ringfence/src/driver/schedule.rs";
const TALLY: &str = "crates/ringfence/src/driver/tally.rs";
const TICKET: &str = "crates/ringfence/src/driver/ticket.rs";
const WAITING: &str = "crates/ringfence/src/driver/waiting.rs";

/// Shared by RestoredAfterDeadline, ReceiptRestores.
#[rustfmt::skip]
const HOLD_BEGIN_RESTORE: Edit = edit(HOLD, "begin_restore",
    "let refused = held.is_err() || state.of_receipt;",
    "let late = held.is_err() && !mutant!(RestoredAfterDeadline);
     let refused = late || state.of_receipt && !mutant!(ReceiptRestores);");

/// Shared by VerdictAfterDeadline, LateConfirmationRevives.
#[rustfmt::skip]
const HOLD_DECIDE_1: Edit = edit(HOLD, "decide",
    "let mut state = lock(&self.state);",
    "    self.decide_if(true, then)
     }

     fn decide_if<T>(&self, looks: bool,
         then: impl FnOnce(&mut State, Result<(), Lost>) -> T) -> T {
         let mut state = lock(&self.state);");

/// Shared by VerdictAfterDeadline, LateConfirmationRevives.
#[rustfmt::skip]
const HOLD_DECIDE_2: Edit = edit(HOLD, "decide",
    "&& let Some(why) = self.why_over(self.driver.clock.now())",
    "&& looks
     && let Some(why) = self.why_over(self.driver.clock.now())");

/// Shared by FailedExtendReleases, VerdictAfterDeadline.
#[rustfmt::skip]
const HOLD_CONCLUDE: Edit = edit(HOLD, "conclude",
    "self.decide(|state, held| {",
    "if verdict == ExtensionVerdict::Unsure && mutant!(FailedExtendReleases) {
         self.release();
     }
     self.decide_if(!mutant!(VerdictAfterDeadline), |state, held| {");

mutants! {
    /// A lost attempt is undone.
    NoUndo:
        edit(ACQUIRE, "Trial::drop",
            "if !self.kept {",
            "if !self.kept && !mutant!(NoUndo) {");

    /// An extension that is confirmed after the lock is over does not bring it back.
    LateConfirmationRevives:
        HOLD_DECIDE_1,
        HOLD_DECIDE_2,
        edit(HOLD, "conclude_late",
            "self.decide(|state, held| {",
            "self.decide_if(!mutant!(LateConfirmationRevives), |state, held| {");

    /// No verdict of a round that is read after the deadline revives a hold, timer or not.
    VerdictAfterDeadline:
        HOLD_DECIDE_1,
        HOLD_DECIDE_2,
        HOLD_CONCLUDE,
        edit(HOLD, "extended_until",
            "self.decide(|_, held| held.map(|()| self.move_deadline(deadline)))",
            "self.decide_if(!mutant!(VerdictAfterDeadline), |_, held| {
                 held.map(|()| self.move_deadline(deadline))
             })");

    /// The deadline never moves back.
    DeadlineMovesBack:
        edit(HOLD, "move_deadline",
            "self.deadline",
            "if mutant!(DeadlineMovesBack) {
                 self.deadline.store(0, Ordering::Release);
             }
             self.deadline");

    /// A lock is lost when its deadline passes.
    DeadlineNotWatched:
        edit(HOLD, "why_over",
            "_ if now < self.deadline() => None,",
            "_ if now < self.deadline() || mutant!(DeadlineNotWatched) => None,");

    /// `max_hold` bounds renewal.
    NoMaxHold:
        edit(HOLD, "new",
            "let end = care.max_hold.map(|span| won.t0 + span);",
            "let max_hold = care.max_hold.filter(|_| !mutant!(NoMaxHold));
             let end = max_hold.map(|span| won.t0 + span);");

    /// Renewal begins at a third of the TTL.
    RenewedTooLate:
        edit(HOLD, "new",
            "let renew_at = care.renew.then(|| won.t0 + care.ttl / 3);",
            "let third = if mutant!(RenewedTooLate) { care.ttl } else { care.ttl / 3 };
             let renew_at = care.renew.then(|| won.t0 + third);");

    /// A failed extend never releases.
    FailedExtendReleases:
        HOLD_CONCLUDE;

    /// A downgraded hold claims a share from the first send on.
    DowngradedStaysExclusive:
        edit(HOLD, "downgrade",
            "claims: self.traces.claims.iter().map(Claim::shared).collect(),",
            "claims: match mutant!(DowngradedStaysExclusive) {
                 false => self.traces.claims.iter().map(Claim::shared).collect(),
                 true => Arc::clone(&self.traces.claims),
             },");

    /// Nothing is restored once the deadline has passed.
    RestoredAfterDeadline:
        HOLD_BEGIN_RESTORE;

    /// A receipt restores nothing.
    ReceiptRestores:
        HOLD_BEGIN_RESTORE;

    /// A release after the deadline does not cut the lock delay.
    LateReleaseCutsDelay:
        edit(HOLD, "release",
            "if !self.care.delay.is_zero() && late {",
            "if !self.care.delay.is_zero() && late && !mutant!(LateReleaseCutsDelay) {");

    /// If our own clock stood still, all locks are lost.
    HoldOutlivesStandstill:
        edit(HOLD, "why_over",
            "if self.driver.stood_still_since(self.since) {",
            "if self.driver.stood_still_since(self.since)
                 && !mutant!(HoldOutlivesStandstill) {");

    /// What is released by dropping a guard is sent before the drop returns.
    DroppedWithoutFlush:
        edit(DRIVER_MOD, "flush",
            "for node in &self.nodes {",
            "if mutant!(DroppedWithoutFlush) {
                 return;
             }
             for node in &self.nodes {");

    /// Once a majority has confirmed a release, a node that does not answer costs a moment only.
    CloseWaitsForAll:
        edit(DRIVER_MOD, "drained",
            "tokio::select! {
                 biased;
                 () = wait_for(&self.withdrawn, all) => {}
                 () = self.clock.sleep_until(self.clock.now() + LINGER) => {}",
            "let linger = if mutant!(CloseWaitsForAll) {
                 Duration::from_secs(3600)
             } else {
                 LINGER
             };
             tokio::select! {
                 biased;
                 () = wait_for(&self.withdrawn, all) => {}
                 () = self.clock.sleep_until(self.clock.now() + linger) => {}");

    /// Tasks of one client that wait for each other are not warned.
    ContentionWarned:
        edit(SCHEDULE, "hold_of",
            "Due::Hold(hold) if hold.traces().taker != taker => None,",
            "Due::Hold(hold) if hold.traces().taker != taker && !mutant!(ContentionWarned) =>
                 None,");

    /// A restore does not make the fate of an acquire known, nor its own before it is answered.
    PutBackCalledKnown:
        edit(TALLY, "put_back_on",
            "if told[node].target == Target::Nothing {",
            "if told[node].target == Target::Nothing || mutant!(PutBackCalledKnown) {"),
        edit(TALLY, "remains",
            "match self.restores > 0 {",
            "match self.restores > 0 && !mutant!(PutBackCalledKnown) {");

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
            "if let Some(call_timeout) = self.nodes.note(node, fate) {",
            "if let Some(call_timeout) = self.nodes.note(node, fate)
                 && !mutant!(LateTicketKept)
             {");

    /// A wake during an attempt counts after it.
    WakeDuringAttemptLost:
        edit(WAITING, "wake",
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
        edit(WAITING, "is_shown",
            "latch || !lock(&self.state).attempting",
            "let asks = !latch && lock(&self.state).attempting;
             !asks || mutant!(SlotRefreshedOnGrant)");
}
