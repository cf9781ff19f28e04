//! Breaking a lock: on one node, in the scripts, and on a majority.

use super::{Edit, Mutant, edit};

const BREAKING: &str = "crates/ringfence-core/src/ledger/breaking.rs";
const MAJORITY: &str = "crates/ringfence-core/src/protocol/breaking.rs";
const ROUND: &str = "crates/ringfence-core/src/protocol/round.rs";
const BREAK: &str = "crates/ringfence/src/node/redis/scripts/break.lua";

/// Shared by BreakClosesNothing, BreakClosesLaterBallots.
#[rustfmt::skip]
const BREAK_ONE_CLOSED: Edit = edit(BREAKING, "break_one",
    "let closed = entry.closed().max(op.up_to.min(op.ballot));",
    "let closed = if mutant!(BreakClosesNothing) {
         entry.closed()
     } else if mutant!(BreakClosesLaterBallots) {
         entry.closed().max(op.up_to)
     } else {
         entry.closed().max(op.up_to.min(op.ballot))
     };");

mutants! {
    /// A break closes the ballot of the holder, so that a late restore is refused.
    BreakClosesNothing:
        BREAK_ONE_CLOSED;

    /// A break needs a ballot above the fence.
    BreakUnderTheFence:
        edit(BREAKING, "break_one",
            "if op.ballot <= entry.effective_fence(rules, now, Mode::Exclusive) {",
            "if op.ballot <= entry.effective_fence(rules, now, Mode::Exclusive)
                 && !mutant!(BreakUnderTheFence) {");

    /// A break removes no holder that came after the one that the operator has seen.
    BreakHitsLaterHolder:
        edit(BREAKING, "holders_to_break",
            "seat.ballot <= op.up_to &&",
            "(seat.ballot <= op.up_to || mutant!(BreakHitsLaterHolder)) &&");

    /// A break closes no ballot above its own: later holders stay restorable.
    BreakClosesLaterBallots:
        BREAK_ONE_CLOSED;

    /// A node in quarantine and a second node on one server do not count for a break: only votes
    /// in favour do.
    BreakCountsAnyAnswer:
        edit(MAJORITY, "tally",
            "let broken = round.count(|vote| *vote == Vote::Granted);",
            "let broken = match mutant!(BreakCountsAnyAnswer) {
                 true => round.count(|vote| matches!(
                     vote, Vote::Granted | Vote::Quarantined { .. } | Vote::Duplicate { .. })),
                 false => round.count(|vote| *vote == Vote::Granted),
             };");

    /// A broken hold is lost once a majority says so.
    BrokenProvesNoLoss:
        edit(ROUND, "Vote::proves_loss",
            "matches!(self, Self::Gone | Self::Held(_) | Self::Broken(_))",
            "matches!(self, Self::Gone | Self::Held(_))
                 || matches!(self, Self::Broken(_)) && !mutant!(BrokenProvesNoLoss)");

    /// The script closes the ballot of the holder.
    LuaBreakClosesNothing:
        edit(BREAK, "",
            "record.closed = math.max(record.closed, math.min(up_to, ballot))",
            "");

    /// The script needs a ballot above the fence.
    LuaBreakUnderTheFence:
        edit(BREAK, "",
            "if ballot <= math.max(record.fence, record.read_fence) then",
            "if false then");

    /// The script removes no later holder.
    LuaBreakHitsLaterHolder:
        edit(BREAK, "",
            "return seat.ballot <= up_to and",
            "return true and");
}
