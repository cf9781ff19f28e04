//! The life of a hold: renewal, restore, the deadline, loss, and what a release needs to know.

use super::{Edit, Mutant, edit};

const HOLD: &str = "crates/ringfence-core/src/protocol/hold/mod.rs";
const ROUNDS: &str = "crates/ringfence-core/src/protocol/hold/rounds.rs";

/// Shared by RestoredAfterDeadline, ReceiptRestores, PlainRestored.
#[rustfmt::skip]
const HOLD_BEGIN_RESTORE: Edit = edit(ROUNDS, "may_restore",
    "let refused = self.check(clock).is_err() || self.of_receipt || !self.kind.has_record();",
    "let late = self.check(clock).is_err() && !mutant!(RestoredAfterDeadline);
     let of_receipt = self.of_receipt && !mutant!(ReceiptRestores);
     let plain = !self.kind.has_record() && !mutant!(PlainRestored);
     let refused = late || of_receipt || plain;");

mutants! {
    /// A release assumes that an extend without an answer may still arrive.
    UnansweredExtendForgotten:
        edit(ROUNDS, "release_targets",
            "if extending || may_arrive {",
            "if extending && !mutant!(UnansweredExtendForgotten) || may_arrive {");

    /// A release counts what is under way on the second line as on the first.
    SecondLineForgotten:
        edit(ROUNDS, "release_targets",
            "let extending = self.rounds.iter().any(|round| round.awaits(node));",
            "let counts = |line| line == Line::First || !mutant!(SecondLineForgotten);
             let mut rounds = self.rounds.iter().filter(|round| counts(round.line));
             let extending = rounds.any(|round| round.awaits(node));");

    /// A release assumes that a second copy of an answered restore may still arrive.
    CopyOfRestoreForgotten:
        edit(HOLD, "restore_sent",
            "state.may_arrive = true;",
            "state.may_arrive |= !mutant!(CopyOfRestoreForgotten);");

    /// A hold that was made from a receipt does not know what is still under way.
    ReceiptKnowsEverything:
        edit(ROUNDS, "release_targets",
            "if self.kind == Kind::Shared {",
            "if self.kind == Kind::Shared || self.of_receipt && mutant!(ReceiptKnowsEverything) {");

    /// An extension that is confirmed after the deadline does not revive the lock.
    LateConfirmationRevives:
        edit(ROUNDS, "conclude_late",
            "if self.check(clock).is_err() {",
            "let over = match mutant!(LateConfirmationRevives) {
                 false => self.check(clock).is_err(),
                 true => self.ended.is_some(),
             };
             if over {");

    /// A majority that confirms after the timeout of a round still extends the lock.
    LateConfirmationIgnored:
        edit(ROUNDS, "handle_reply",
            "if let Some(deadline) = late {",
            "if let Some(deadline) = late.filter(|_| !mutant!(LateConfirmationIgnored)) {");

    /// A verdict that is read after the deadline does not revive a hold, even if no timer fired.
    VerdictAfterDeadline:
        edit(ROUNDS, "conclude",
            "if self.check(clock).is_err() {",
            "let over = match mutant!(VerdictAfterDeadline) {
                 false => self.check(clock).is_err(),
                 true => self.ended.is_some(),
             };
             if over {");

    /// The deadline never moves back.
    DeadlineMovesBack:
        edit(ROUNDS, "move_deadline",
            "self.deadline = self.deadline.max(deadline);",
            "self.deadline = match mutant!(DeadlineMovesBack) {
                 false => self.deadline.max(deadline),
                 true => deadline,
             };");

    /// A lock is lost when its deadline passes.
    DeadlineNotWatched:
        edit(HOLD, "why_over",
            "_ if clock.now < self.deadline => None,",
            "_ if clock.now < self.deadline || mutant!(DeadlineNotWatched) => None,");

    /// `max_hold` limits the renewal.
    NoMaxHold:
        edit(HOLD, "new",
            "let max_hold = policy.max_hold.map(|span| since + span);",
            "let max_hold = policy.max_hold.filter(|_| !mutant!(NoMaxHold));
             let max_hold = max_hold.map(|span| since + span);"),
        edit(HOLD, "max_hold",
            "self.policy.max_hold.map(|span| self.since + span)",
            "let max_hold = self.policy.max_hold.filter(|_| !mutant!(NoMaxHold));
             max_hold.map(|span| self.since + span)");

    /// Renewal begins at a third of the TTL.
    RenewedTooLate:
        edit(HOLD, "new",
            "renew_at: policy.renew.then(|| policy.renewal_after(since)),",
            "renew_at: policy.renew.then(|| match mutant!(RenewedTooLate) {
                 false => policy.renewal_after(since),
                 true => since + policy.ttl,
             }),");

    /// A renewal without a majority is retried before the deadline.
    FailedRenewalNotRetried:
        edit(ROUNDS, "plan_renewal",
            "now + self.policy.pause(self.failures, self.deadline.since(now))",
            "match mutant!(FailedRenewalNotRetried) {
                 false => now + self.policy.pause(self.failures, self.deadline.since(now)),
                 true => self.deadline,
             }");

    /// A failed extend never releases.
    FailedExtendReleases:
        edit(ROUNDS, "conclude",
            "ExtensionVerdict::Unsure => {}",
            "ExtensionVerdict::Unsure => {
                 if mutant!(FailedExtendReleases) {
                     return self.end(Lost::Released);
                 }
             }");

    /// Nothing is restored once the deadline has passed.
    RestoredAfterDeadline:
        HOLD_BEGIN_RESTORE;

    /// A receipt restores nothing.
    ReceiptRestores:
        HOLD_BEGIN_RESTORE;

    /// A plain lock, of which the nodes keep no record, is not restored.
    PlainRestored:
        HOLD_BEGIN_RESTORE;

    /// A release after the deadline does not shorten the lock delay.
    LateReleaseCutsDelay:
        edit(ROUNDS, "release",
            "if !self.policy.lock_delay.is_zero() && late {",
            "if !self.policy.lock_delay.is_zero() && late && !mutant!(LateReleaseCutsDelay) {");

    /// A release is retried until the longest lease that was ever requested is over.
    LongerLeaseForgotten:
        edit(ROUNDS, "begin_round",
            "self.leased_until = self.leased_until.max(leased_until);",
            "if !mutant!(LongerLeaseForgotten) {
                 self.leased_until = self.leased_until.max(leased_until);
             }");

    /// If the client's own clock froze, all its locks are lost.
    HoldOutlivesStandstill:
        edit(HOLD, "why_over",
            "if clock.froze.is_some_and(|froze| froze >= self.since) {",
            "if clock.froze.is_some_and(|froze| froze >= self.since)
                 && !mutant!(HoldOutlivesStandstill) {");

    /// After a restore it stays unknown whether an earlier acquire or the restore itself may still
    /// arrive.
    PutBackCalledKnown:
        edit(HOLD, "restore_sent",
            "if state.target == Target::Nothing {",
            "if state.target == Target::Nothing || mutant!(PutBackCalledKnown) {"),
        edit(HOLD, "remains",
            "match self.restores > 0 {",
            "match self.restores > 0 && !mutant!(PutBackCalledKnown) {");
}
