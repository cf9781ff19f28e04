//! What one client does with N nodes after a grant, and what it knows about their clocks.

use super::{Edit, Mutant, edit};

const GROUP: &str = "crates/ringfence-core/src/group.rs";
const CLOCKS: &str = "crates/ringfence-core/src/protocol/cluster/clocks.rs";
const CLUSTER: &str = "crates/ringfence-core/src/protocol/cluster.rs";
const EXTENSION: &str = "crates/ringfence-core/src/protocol/extension.rs";
const LATCH: &str = "crates/ringfence-core/src/protocol/latch.rs";
const LATCH_ROUND: &str = "crates/ringfence-core/src/protocol/latch_round.rs";
const WITHDRAWAL: &str = "crates/ringfence-core/src/protocol/release.rs";

/// Shared by RestoredAfterLoss, NeverRestored.
#[rustfmt::skip]
const EXTENSION_TO_RESTORE: Edit = edit(EXTENSION, "to_restore",
    "let alive = verdict.is_some_and(|verdict| verdict != ExtensionVerdict::Lost);",
    "let lost = verdict == Some(ExtensionVerdict::Lost) && !mutant!(RestoredAfterLoss);
     let alive = verdict.is_some() && !lost && !mutant!(NeverRestored);");

/// Shared by RestoredCountsAtOnce, QuarantinedExtendedCounted.
#[rustfmt::skip]
const EXTENSION_VOTE: Edit = edit(EXTENSION, "vote",
    "Some(reply.vote())",
    "let discount = |_: &Vote| !mutant!(QuarantinedExtendedCounted);
     let reply = RoundReply { discount: reply.discount.clone().filter(discount), ..reply };
     match mutant!(RestoredCountsAtOnce) && *vacant {
         true => Some(Vote::Granted),
         false => Some(reply.vote()),
     }");

/// Shared by YoungNodeCountsForLatch, YoungNodeVouches.
#[rustfmt::skip]
const LATCH_ROUND_VOTE: Edit = edit(LATCH_ROUND, "vote_about",
    "None => Vote::Granted,",
    "Some(_) if age.is_some() && mutant!(YoungNodeCountsForLatch) => Vote::Granted,
     Some(_) if age.is_none() && mutant!(YoungNodeVouches) => Vote::Granted,
     None => Vote::Granted,");

mutants! {
    /// Retention and quarantine are at least twice the window and the largest step back.
    ThresholdOneLess:
        edit(GROUP, "least_quarantine",
            "self.window.saturating_mul(2).saturating_add(Self::CLOCK_STEP)",
            "let least = self.window.saturating_mul(2).saturating_add(Self::CLOCK_STEP);
             least - Duration::from_micros(u64::from(mutant!(ThresholdOneLess)))");

    /// If the clocks of a majority jump by the same amount, the client's own clock froze.
    StandstillUnnoticed:
        edit(CLOCKS, "Clocks::observe",
            "if Jump::most_alike(jumps) < quorum(self.nodes.len()) {",
            "if Jump::most_alike(jumps) < quorum(self.nodes.len())
                 || mutant!(StandstillUnnoticed) {");

    /// One server behind two nodes has one vote, even if it restarts between its two answers.
    MovedNodeVotes:
        edit(CLUSTER, "moved_since",
            "moved && known.any(is_other_run)",
            "moved && known.any(is_other_run) && !mutant!(MovedNodeVotes)");

    /// A node that does not answer does not influence the choice of a ballot.
    SilentNodesHaveASay:
        edit(CLOCKS, "ranges",
            ".filter(|(view, _)| view.answers || none_answers)",
            ".filter(|(view, _)| view.answers || none_answers || mutant!(SilentNodesHaveASay))");

    /// Each attempt has a higher ballot.
    BallotNotRaised:
        edit(CLOCKS, "choose",
            "} else if best < next && followed {",
            "} else if best < next && followed && !mutant!(BallotNotRaised) {");

    /// A node that may have forgotten a grant does not vote.
    NoQuarantine:
        edit(CLUSTER, "time_until_old_enough",
            "if !self.quarantines(node, standing) || standing.born_us == 0 {",
            "if !self.quarantines(node, standing) || standing.born_us == 0 || mutant!(NoQuarantine) {");

    /// The quarantine is prolonged by the drift and one second.
    QuarantineWithoutMargin:
        edit(CLUSTER, "quarantine",
            "quarantine + self.drift.fraction_of(quarantine) + Duration::from_secs(1)",
            "if mutant!(QuarantineWithoutMargin) {
                 return quarantine;
             }
             quarantine + self.drift.fraction_of(quarantine) + Duration::from_secs(1)");

    /// The quarantine also lasts by the clock of a client that saw the restart.
    OnlyNodeClockEndsQuarantine:
        edit(CLUSTER, "time_until_old_enough",
            ".map(|seen| (seen + needed).since(now))",
            ".filter(|_| !mutant!(OnlyNodeClockEndsQuarantine))
             .map(|seen| (seen + needed).since(now))");

    /// The quarantine also lasts by the node's own clock.
    OnlyOurClockEndsQuarantine:
        edit(CLUSTER, "time_until_old_enough",
            "let left = by_node.min(needed).max(by_us);",
            "let by_node = if mutant!(OnlyOurClockEndsQuarantine) {
                 Duration::ZERO
             } else {
                 by_node
             };
             let left = by_node.min(needed).max(by_us);");

    /// A client notices a new birth of a node.
    RebirthUnnoticed:
        edit(CLUSTER, "observe_standing",
            "let new_birth = known.is_some_and(|k| k.born_us != standing.born_us);",
            "let new_birth =
                 known.is_some_and(|k| k.born_us != standing.born_us
                     && !mutant!(RebirthUnnoticed));");

    /// A node whose clock jumped does not vote until a quarantine is over.
    JumpedNodeVotes:
        edit(CLUSTER, "jump_left",
            "let jumped = self.clocks.jumped(node, self.quarantine(), now);",
            "if mutant!(JumpedNodeVotes) {
                 return None;
             }
             let jumped = self.clocks.jumped(node, self.quarantine(), now);");

    /// If the client's own clock froze, no answer to an earlier request counts.
    OutdatedAnswersCount:
        edit(CLUSTER, "discount_on",
            "if self.froze_since(sent) {",
            "if self.froze_since(sent) && !mutant!(OutdatedAnswersCount) {");

    /// t0 of an extension is read before its first send.
    ExtendT0ReadLate:
        edit(EXTENSION, "tally",
            "return Some(ExtensionVerdict::Extended { deadline });",
            "let late = if mutant!(ExtendT0ReadLate) { now } else { round.t0() };
             return Some(ExtensionVerdict::Extended { deadline: deadline + late.since(round.t0()) });");

    /// An extension that a majority confirms after the extension's deadline fails.
    ExtendedTooLate:
        edit(EXTENSION, "tally",
            "let in_time = now < deadline;",
            "let in_time = now < deadline || mutant!(ExtendedTooLate);");

    /// An extension needs a majority.
    ExtendedByFewer:
        edit(EXTENSION, "tally",
            "let (nodes, quorum) = (round.nodes.len(), round.quorum());",
            "let (nodes, quorum) = (round.nodes.len(), round.quorum());
             let quorum = quorum - usize::from(mutant!(ExtendedByFewer));");

    /// The lock is lost if too many nodes lack its token for a majority to hold it.
    LossNotProved:
        edit(EXTENSION, "tally",
            "if nodes - lost < quorum {",
            "if nodes - lost < quorum && !mutant!(LossNotProved) {");

    /// After the round the key is restored on nodes that lost it.
    NeverRestored:
        EXTENSION_TO_RESTORE;

    /// A restored key counts from the next round on.
    RestoredCountsAtOnce:
        EXTENSION_VOTE;

    /// Nothing is restored once the loss is proven.
    RestoredAfterLoss:
        EXTENSION_TO_RESTORE;

    /// The answer of a node that may have forgotten a grant does not count in an extension.
    QuarantinedExtendedCounted:
        EXTENSION_VOTE;

    /// Before a latch is reported open, a majority has recorded all arrivals.
    OpenWithoutWriteBack:
        edit(LATCH, "conclude",
            "if tally.everywhere {",
            "if tally.everywhere || mutant!(OpenWithoutWriteBack) {");

    /// Every statement about a latch needs a majority.
    LatchQuorumOneShort:
        edit(LATCH_ROUND, "LatchRound::tally",
            "having.count() >= self.quorum()",
            "having.count() >= self.quorum() - usize::from(mutant!(LatchQuorumOneShort))");

    /// A node that was born after the latch does not count.
    YoungNodeCountsForLatch:
        LATCH_ROUND_VOTE;

    /// A node that is younger than the oldest possible latch cannot confirm that there is none.
    YoungNodeVouches:
        LATCH_ROUND_VOTE;

    /// A reply after the timeout of a round does not count.
    LatchHearsLate:
        edit(LATCH_ROUND, "vote",
            "if reply.late {",
            "if reply.late && !mutant!(LatchHearsLate) {");

    /// A jump of a node's clock is noticed.
    JumpUnnoticed:
        edit(CLOCKS, "Offset::observe",
            "if gap_us > drift.fixed().as_micros() as i128 {",
            "if gap_us > drift.fixed().as_micros() as i128 && !mutant!(JumpUnnoticed) {");

    /// A clock difference that the drift allows is no jump.
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

    /// A node that does not vote shows no loss at a release.
    NonVoterShowsLoss:
        edit(WITHDRAWAL, "handle_reply",
            "state.votes = matches!(discount, None | Some(Vote::Outdated));",
            "state.votes = matches!(discount, None | Some(Vote::Outdated))
                 || mutant!(NonVoterShowsLoss);");

    /// A failed release is retried.
    WithdrawnOnce:
        edit(WITHDRAWAL, "retry_later",
            "self.progress = if until.is_some_and(|until| at < until) {",
            "self.progress = if until.is_some_and(|until| at < until)
                 && !mutant!(WithdrawnOnce) {");

    /// A final release is sent to all nodes.
    FinalReleaseNotToAll:
        edit(WITHDRAWAL, "new",
            "_ => Progress::Due { at: now },",
            "(ReleaseKind::Final, Target::Nothing) if mutant!(FinalReleaseNotToAll) => {
                 Progress::Over
             }
             _ => Progress::Due { at: now },");

    /// The release for a node that did not answer says that the acquire may still arrive.
    FateCalledKnown:
        edit(WITHDRAWAL, "poll_send",
            "let fate_unknown = state.target == Target::Unknown || may_lack_it;",
            "let fate_unknown =
                 (state.target == Target::Unknown || may_lack_it) && !mutant!(FateCalledKnown);");

    /// A request to keep a name is retried until a majority has confirmed, even after the lease.
    KeptWhileLeased:
        edit(WITHDRAWAL, "keeping",
            "Self { keep_until, ..self }",
            "let keep_until = keep_until.filter(|_| !mutant!(KeptWhileLeased));
             Self { keep_until, ..self }");
}
