//! What one client does with N nodes after a grant, and what it knows of their clocks.

use super::{Edit, Mutant, edit};

const GROUP: &str = "crates/ringfence-core/src/group.rs";
const CLOCKS: &str = "crates/ringfence-core/src/protocol/cluster/clocks.rs";
const BALLOTS: &str = "crates/ringfence-core/src/protocol/cluster/ballots.rs";
const CLUSTER: &str = "crates/ringfence-core/src/protocol/cluster.rs";
const EXTENSION: &str = "crates/ringfence-core/src/protocol/extension.rs";
const LATCH: &str = "crates/ringfence-core/src/protocol/latch.rs";
const LATCH_ROUND: &str = "crates/ringfence-core/src/protocol/latch_round.rs";
const WITHDRAWAL: &str = "crates/ringfence-core/src/protocol/withdrawal.rs";

/// Shared by RestoredAfterLoss, NeverRestored.
#[rustfmt::skip]
const EXTENSION_TO_RESTORE: Edit = edit(EXTENSION, "to_restore",
    "let alive = self
         .verdict
         .is_some_and(|verdict| verdict != ExtensionVerdict::Lost);",
    "let lost = self.verdict == Some(ExtensionVerdict::Lost) && !mutant!(RestoredAfterLoss);
     let alive = self.verdict.is_some() && !lost && !mutant!(NeverRestored);");

/// Shared by YoungNodeCountsForLatch, YoungNodeVouches.
#[rustfmt::skip]
const LATCH_ROUND_VOTE: Edit = edit(LATCH_ROUND, "vote",
    "None => Vote::Granted,",
    "Some(_) if age.is_some() && mutant!(YoungNodeCountsForLatch) => Vote::Granted,
     Some(_) if age.is_none() && mutant!(YoungNodeVouches) => Vote::Granted,
     None => Vote::Granted,");

mutants! {
    /// Retention and quarantine are at least twice the window and the largest step back.
    ThresholdOneLess:
        edit(GROUP, "least_quarantine",
            "self.window * 2 + Self::CLOCK_STEP",
            "let least = self.window * 2 + Self::CLOCK_STEP;
             least - Duration::from_micros(u64::from(mutant!(ThresholdOneLess)))");

    /// If a majority jumps alike, it was our own clock that stood still.
    StandstillUnnoticed:
        edit(CLOCKS, "Clocks::observe",
            "if Jump::most_alike(jumps) < quorum(self.nodes.len()) {",
            "if Jump::most_alike(jumps) < quorum(self.nodes.len())
                 || mutant!(StandstillUnnoticed) {");

    /// A server that was restarted between the answers of two nodes that lead to it has one vote.
    MovedNodeVotes:
        edit(CLUSTER, "moved_since",
            "moved && known.any(is_other_run)",
            "moved && known.any(is_other_run) && !mutant!(MovedNodeVotes)");

    /// A node that no longer answers has no say in the choice of a ballot.
    SilentNodesHaveASay:
        edit(BALLOTS, "ranges",
            ".filter(|(view, _)| view.answers || none_answers)",
            ".filter(|(view, _)| view.answers || none_answers || mutant!(SilentNodesHaveASay))");

    /// Each attempt has a higher ballot.
    BallotNotRaised:
        edit(BALLOTS, "choose",
            "} else if best < next && followed {",
            "} else if best < next && followed && !mutant!(BallotNotRaised) {");

    /// A node that may have forgotten does not vote.
    NoQuarantine:
        edit(CLUSTER, "time_until_old_enough",
            "if !view.quarantines || standing.born_us == 0 {",
            "if !view.quarantines || standing.born_us == 0 || mutant!(NoQuarantine) {");

    /// The quarantine is longer by the drift and a second.
    QuarantineWithoutMargin:
        edit(CLUSTER, "quarantine",
            "quarantine + self.drift.fraction_of(quarantine) + Duration::from_secs(1)",
            "if mutant!(QuarantineWithoutMargin) {
                 return quarantine;
             }
             quarantine + self.drift.fraction_of(quarantine) + Duration::from_secs(1)");

    /// The quarantine lasts until a client that saw the restart agrees.
    OnlyNodeClockEndsQuarantine:
        edit(CLUSTER, "time_until_old_enough",
            ".map(|seen| (seen + needed).since(now))",
            ".filter(|_| !mutant!(OnlyNodeClockEndsQuarantine))
             .map(|seen| (seen + needed).since(now))");

    /// The quarantine lasts until the node's own clock says so.
    OnlyOurClockEndsQuarantine:
        edit(CLUSTER, "time_until_old_enough",
            "let left = by_node.min(needed).max(by_us);",
            "let by_node = if mutant!(OnlyOurClockEndsQuarantine) {
                 Duration::ZERO
             } else {
                 by_node
             };
             let left = by_node.min(needed).max(by_us);");

    /// A client notices that a node was born anew.
    RebirthUnnoticed:
        edit(CLUSTER, "observe_standing",
            "let new_birth = known.is_some_and(|k| k.born_us != standing.born_us);",
            "let new_birth =
                 known.is_some_and(|k| k.born_us != standing.born_us
                     && !mutant!(RebirthUnnoticed));");

    /// A node whose clock jumped does not vote for a quarantine.
    JumpedNodeVotes:
        edit(CLUSTER, "jump_left",
            "let jumped = self.clocks.jumped(node, self.quarantine(), now);",
            "if mutant!(JumpedNodeVotes) {
                 return None;
             }
             let jumped = self.clocks.jumped(node, self.quarantine(), now);");

    /// If our own clock stood still, no answer to a request from before counts.
    OutdatedAnswersCount:
        edit(CLUSTER, "discount",
            "if self.froze_since(sent) {",
            "if self.froze_since(sent) && !mutant!(OutdatedAnswersCount) {");

    /// t0 of an extension is read before its first send.
    ExtendT0ReadLate:
        edit(EXTENSION, "tally",
            "deadline: self.deadline,",
            "deadline: match mutant!(ExtendT0ReadLate) {
                 false => self.deadline,
                 true => self.deadline + now.since(self.t0),
             },");

    /// An extension that a majority confirms after its own deadline is none.
    ExtendedTooLate:
        edit(EXTENSION, "tally",
            "let in_time = now < self.deadline;",
            "let in_time = now < self.deadline || mutant!(ExtendedTooLate);");

    /// An extension needs a majority.
    ExtendedByFewer:
        edit(EXTENSION, "tally",
            "let quorum = quorum(nodes);",
            "let quorum = quorum(nodes) - usize::from(mutant!(ExtendedByFewer));");

    /// So many nodes without our token that no majority can hold it are proof of loss.
    LossNotProved:
        edit(EXTENSION, "tally",
            "if nodes - lost < quorum {",
            "if nodes - lost < quorum && !mutant!(LossNotProved) {");

    /// Nodes that lost the key get it back after the round.
    NeverRestored:
        EXTENSION_TO_RESTORE;

    /// A restored key counts from the next round on.
    RestoredCountsAtOnce:
        edit(EXTENSION, "handle_reply",
            "count_once(",
            "if mutant!(RestoredCountsAtOnce) && state.vacant {
                 state.vote = Vote::Granted;
             }
             count_once(");

    /// Nothing is restored once the loss is proved.
    RestoredAfterLoss:
        EXTENSION_TO_RESTORE;

    /// The answer of a node that may have forgotten does not count in an extension.
    QuarantinedExtendedCounted:
        edit(EXTENSION, "handle_reply",
            "state.vote = Vote::of(outcome, discount);",
            "let discount = discount.filter(|_| !mutant!(QuarantinedExtendedCounted));
             state.vote = Vote::of(outcome, discount);");

    /// All who have arrived are written to a majority before the latch is called open.
    OpenWithoutWriteBack:
        edit(LATCH, "conclude",
            "if tally.everywhere {",
            "if tally.everywhere || mutant!(OpenWithoutWriteBack) {");

    /// What is said of a latch, a majority says.
    LatchQuorumOneShort:
        edit(LATCH_ROUND, "tally",
            "having.count() >= quorum(self.replies.len())",
            "having.count() >= quorum(self.replies.len())
                 - usize::from(mutant!(LatchQuorumOneShort))");

    /// A node that is younger than the latch does not count.
    YoungNodeCountsForLatch:
        LATCH_ROUND_VOTE;

    /// A node that is younger than a latch may be does not vouch that there is none.
    YoungNodeVouches:
        LATCH_ROUND_VOTE;

    /// What comes after the timeout of a round does not count.
    LatchHearsLate:
        edit(LATCH_ROUND, "handle_reply",
            "if now < self.timeout {",
            "if now < self.timeout || mutant!(LatchHearsLate) {");

    /// A jump of a node's clock is noticed.
    JumpUnnoticed:
        edit(CLOCKS, "Offset::observe",
            "if gap_us > drift.fixed().as_micros() as i128 {",
            "if gap_us > drift.fixed().as_micros() as i128 && !mutant!(JumpUnnoticed) {");

    /// What the drift allows is no jump.
    SlowDriftIsAJump:
        edit(CLOCKS, "Offset::observe",
            "let moved = drift.fraction_of(elapsed) + Duration::from_micros(1);",
            "let moved = match mutant!(SlowDriftIsAJump) {
                 false => drift.fraction_of(elapsed) + Duration::from_micros(1),
                 true => Duration::ZERO,
             };");

    /// A release is confirmed by a majority.
    ReleasedByFewer:
        edit(WITHDRAWAL, "verdict",
            "let quorum = quorum(self.nodes.len());",
            "let quorum = quorum(self.nodes.len()) - usize::from(mutant!(ReleasedByFewer));");

    /// What could not be taken back is tried again.
    WithdrawnOnce:
        edit(WITHDRAWAL, "retry_later",
            "self.progress = if until.is_some_and(|until| at < until) {",
            "self.progress = if until.is_some_and(|until| at < until)
                 && !mutant!(WithdrawnOnce) {");

    /// A final release goes to all nodes.
    FinalReleaseNotToAll:
        edit(WITHDRAWAL, "new",
            "_ => Progress::Due { at: now },",
            "(ReleaseKind::Final, Target::Nothing) if mutant!(FinalReleaseNotToAll) => {
                 Progress::Over
             }
             _ => Progress::Due { at: now },");

    /// A node that did not answer is told that the fate of the acquire is unknown.
    FateCalledKnown:
        edit(WITHDRAWAL, "poll_send",
            "let fate_unknown = state.target == Target::Unknown || may_lack_it;",
            "let fate_unknown =
                 (state.target == Target::Unknown || may_lack_it) && !mutant!(FateCalledKnown);");

    /// Nodes are told to keep a name until a majority has been told, also after the lease has
    /// ended.
    KeptWhileLeased:
        edit(WITHDRAWAL, "keeping",
            "Self { keep_until, ..self }",
            "let keep_until = keep_until.filter(|_| !mutant!(KeptWhileLeased));
             Self { keep_until, ..self }");
}
