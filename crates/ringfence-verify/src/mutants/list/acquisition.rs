//! How one client acquires: attempts, ballots, votes and waiting.

use super::{Edit, Mutant, edit};

const ACQUISITION: &str = "crates/ringfence-core/src/protocol/acquisition.rs";
const ATTEMPT: &str = "crates/ringfence-core/src/protocol/attempt.rs";
const CLOCKS: &str = "crates/ringfence-core/src/protocol/cluster/clocks.rs";
const ROUND: &str = "crates/ringfence-core/src/protocol/round.rs";
const RETRY: &str = "crates/ringfence-core/src/protocol/acquisition/retry.rs";
const VALIDITY: &str = "crates/ringfence-core/src/protocol/validity.rs";

/// Shared by PlainTokenKept, TokenKeptWhenLowered.
#[rustfmt::skip]
const ACQUISITION_BEGIN_1: Edit = edit(ACQUISITION, "begin",
    "Some((token, before)) if has_ballots && ballot > before => token,",
    "Some((token, _)) if mutant!(PlainTokenKept) && !has_ballots => token,
     Some((token, _)) if mutant!(TokenKeptWhenLowered) && has_ballots => token,
     Some((token, before)) if has_ballots && ballot > before => token,");

/// Shared by T0NotReadAgain, EarlierBallotCounts.
#[rustfmt::skip]
const ACQUISITION_BEGIN_2: Edit = edit(ACQUISITION, "begin",
    "let attempt = Attempt::new(token, ballot, ticket, now, timing, suspects);",
    "let t0 = if mutant!(T0NotReadAgain) { self.started } else { now };
     let attempt = Attempt::new(token, ballot, ticket, t0, timing, suspects);
     let attempt = attempt.granted_before(&self.earlier);");

/// Shared by QuorumOneShort, TieWins.
#[rustfmt::skip]
const ATTEMPT_TALLY: Edit = edit(ATTEMPT, "tally",
    "let (proposal, quorum) = (&round.purpose, round.quorum());",
    "let (proposal, mut quorum) = (&round.purpose, round.quorum());
     if mutant!(QuorumOneShort) {
         quorum -= 1;
     }
     if mutant!(TieWins) {
         quorum = round.nodes.len().div_ceil(2);
     }");

mutants! {
    /// t0 is read again for each attempt.
    T0NotReadAgain:
        ACQUISITION_BEGIN_2;

    /// A grant with less than `min_validity` left is not returned.
    GrantBelowMinValidity:
        edit(ACQUISITION, "min_validity",
            "self.terms.min_validity",
            "if mutant!(GrantBelowMinValidity) {
                 return Duration::ZERO;
             }
             self.terms.min_validity");

    /// A grant is checked again when its caller wakes, because the process may have been suspended.
    GrantNotLookedAtAgain:
        edit(ACQUISITION, "conclude",
            "&& !cluster.froze_since(attempt.t0()) =>",
            "&& !cluster.froze_since(attempt.t0())
             || mutant!(GrantNotLookedAtAgain) =>");

    /// Only replies to the current ballot count.
    EarlierBallotCounts:
        edit(ACQUISITION, "",
            "last_fruitless: Timestamp,
             round: Duration,",
            "last_fruitless: Timestamp,
             round: Duration,
             earlier: Vec<bool>,"),
        edit(ACQUISITION, "new",
            "round: Duration::ZERO,",
            "round: Duration::ZERO,
             earlier: Vec::new(),"),
        ACQUISITION_BEGIN_2,
        edit(ACQUISITION, "conclude",
            "let loss = match attempt.verdict() {",
            "if mutant!(EarlierBallotCounts) {
                 let granted = |vote: &crate::protocol::Vote| *vote == crate::protocol::Vote::Granted;
                 self.earlier = attempt.votes().map(granted).collect();
             }
             let loss = match attempt.verdict() {"),
        edit(ATTEMPT, "asking",
            "(self.purpose.kind, self.purpose.asked) = (kind, asked);
             self",
            "    (self.purpose.kind, self.purpose.asked) = (kind, asked);
                 self
             }

             pub(super) fn granted_before(mut self, granted: &[bool]) -> Self {
                 for (state, _) in self
                     .nodes
                     .iter_mut()
                     .zip(granted)
                     .filter(|(_, granted)| **granted)
                 {
                     state.vote = Vote::Granted;
                 }
                 self");

    /// A client that must lower its ballot takes a fresh token.
    TokenKeptWhenLowered:
        ACQUISITION_BEGIN_1;

    /// Each attempt at a plain lock has a fresh token.
    PlainTokenKept:
        ACQUISITION_BEGIN_1;

    /// A wait without a limit lasts through a quarantine.
    QuarantineEndsWait:
        edit(RETRY, "after_no_quorum",
            "if now + left > end && limited {",
            "if now + left > end && (limited || mutant!(QuarantineEndsWait)) {");

    /// After wakes without a grant, the next wake is delayed.
    FruitlessWakesAtOnce:
        edit(RETRY, "wake_pause",
            "if self.fruitless_wakes < 2 {",
            "if self.fruitless_wakes < 2 || mutant!(FruitlessWakesAtOnce) {");

    /// After two rounds without a majority the caller leaves the queue.
    PlaceKeptInOutage:
        edit(RETRY, "after_no_quorum",
            "stays: self.no_quorum_in_a_row < 2,",
            "stays: self.no_quorum_in_a_row < 2 || mutant!(PlaceKeptInOutage),");

    /// A ticket that is already in a queue is not sent as a new one.
    PatienceNotClaimed:
        edit(ACQUISITION, "ticket",
            "first: !state.entered,",
            "first: !state.entered || mutant!(PatienceNotClaimed),");

    /// Two clients with conflicting ballots pause for different times.
    DuelWithoutJitter:
        edit(RETRY, "after_stale",
            "let pause = if self.stale_in_a_row > 1 {",
            "let pause = if self.stale_in_a_row > 1 && !mutant!(DuelWithoutJitter) {");

    /// `wait` limits the waiting time.
    WaitUnbounded:
        edit(RETRY, "after_lost",
            "let over = give_up_at.is_some_and(|at| now >= at);",
            "let over = give_up_at.is_some_and(|at| now >= at) && !mutant!(WaitUnbounded);");

    /// Without a majority the caller stops waiting sooner.
    OutageUnbounded:
        edit(RETRY, "after_no_quorum",
            "if spent || now >= end {",
            "if spent || now >= end && !mutant!(OutageUnbounded) {");

    /// t0 is read before the first send.
    T0ReadLate:
        edit(ATTEMPT, "tally",
            "AttemptVerdict::Won {
                 deadline: proposal.deadline,",
            "let late = if mutant!(T0ReadLate) { now } else { round.t0() };
             AttemptVerdict::Won {
                 deadline: proposal.deadline + late.since(round.t0()),");

    /// A grant needs a majority.
    QuorumOneShort:
        ATTEMPT_TALLY;

    /// A tie is no majority.
    TieWins:
        ATTEMPT_TALLY;

    /// An attempt ends as soon as its verdict cannot change.
    VerdictAwaitsAll:
        edit(ATTEMPT, "tally",
            "if granted >= quorum {",
            "let waits_for_all = mutant!(VerdictAwaitsAll)
                 && round.count(|v| *v == Vote::Pending) > 0;
             if waits_for_all {
                 return None;
             }
             if granted >= quorum {");

    /// A node that fails at once does not turn "held by another client" into "no majority".
    OutageDecidedEarly:
        edit(ATTEMPT, "tally",
            "let undecided = answers < quorum && awaited > 0;",
            "let undecided = answers < quorum && awaited > 0 && !mutant!(OutageDecidedEarly);");

    /// A node that did not answer the last attempt does not delay a lost verdict.
    SilentNodeAwaited:
        edit(ATTEMPT, "awaited",
            "if able.count() >= quorum {",
            "if able.count() >= quorum && !mutant!(SilentNodeAwaited) {");

    /// Votes for different slots are not added together.
    PermitsCountedPerNode:
        edit(ATTEMPT, "tally",
            "Some(_) => {",
            "Some(_) if mutant!(PermitsCountedPerNode) => all_granted,
             Some(_) => {");

    /// The undo is sent to every node that granted, even if its vote did not count.
    GrantedNotUndone:
        edit(ATTEMPT, "vote",
            "note.holds = matches!(reply.answer, Answer::Granted);",
            "note.holds = matches!(reply.answer, Answer::Granted) && !mutant!(GrantedNotUndone);");

    /// The undo is sent to nodes that have not answered.
    SilentNotUndone:
        edit(ATTEMPT, "remains_on",
            "Vote::Pending | Vote::TimedOut => Target::Unknown,",
            "Vote::Pending | Vote::TimedOut if !mutant!(SilentNotUndone) => Target::Unknown,");

    /// The undo of a grant does not wait for nodes that have not answered.
    GrantedUndoneLate:
        edit(ATTEMPT, "undo_waits_until",
            "let waits = pending && !remains.any(left);",
            "let waits = pending && (!remains.any(left) || mutant!(GrantedUndoneLate));");

    /// One server behind two nodes has one vote.
    DuplicateCountsTwice:
        edit(ROUND, "is_same_server",
            "one != 0 && one == other",
            "one != 0 && one == other && !mutant!(DuplicateCountsTwice)");

    /// A ballot keeps a margin from both ends of a node's window.
    NoBallotMargin:
        edit(CLOCKS, "Range::new",
            "let margin = window_us / 10;",
            "let margin = if mutant!(NoBallotMargin) { 0 } else { window_us / 10 };");

    /// The validity is the TTL minus the drift.
    NoDriftTerm:
        edit(VALIDITY, "deadline",
            "t0 + ttl.saturating_sub(drift.allowance(ttl))",
            "if mutant!(NoDriftTerm) {
                 return t0 + ttl;
             }
             t0 + ttl.saturating_sub(drift.allowance(ttl))");
}
