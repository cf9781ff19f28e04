//! Taking back what was set on the nodes: the final release of a holder, or the undo of a lost
//! attempt. Held on to until every node that may hold something has acknowledged, or the time for
//! which it could hold anything has passed.

use std::time::Duration;

use crate::message::{Answer, ReleaseKind, Reply};
use crate::node::CallError;
use crate::time::Timestamp;

use super::quorum;
use super::vote::is_same;

/// The pause after a node could not be told, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// What a node may have of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// Nothing.
    Nothing,
    /// Our token, as it said itself.
    Holds,
    /// Nobody knows: the acquire may be on its way still.
    Unknown,
}

/// Taking back what was set on the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Withdrawal {
    kind: ReleaseKind,
    call_timeout: Duration,
    /// After this nothing of ours can be left.
    until: Timestamp,
    /// Until when a majority is to keep it from others, if it is to be kept at all.
    keep_until: Option<Timestamp>,
    nodes: Vec<NodeState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NodeState {
    target: Target,
    progress: Progress,
    tries: u32,
    /// An earlier try may have been carried out although its answer was lost.
    maybe_done: bool,
    /// The first word of the node on the matter.
    said: Option<Said>,
    /// Which server said it.
    server: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Progress {
    Due { at: Timestamp },
    Sent { timeout: Timestamp },
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Said {
    Released,
    Gone,
    Taken,
    /// Gone or taken, perhaps because of an earlier try of ours, or the same server has said it
    /// through another node.
    Unclear,
}

/// What a final release amounted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithdrawalVerdict {
    /// A majority held our token until now, and no longer does.
    Released,
    /// A majority answered, but the lock was not held by a majority any more.
    Expired,
    /// As `Expired`, and somebody else holds it now.
    Taken,
    /// Too few answers to say whether a majority held it.
    Unconfirmed,
}

impl Withdrawal {
    /// Takes back from `targets`, beginning at `now` and until `until` at the latest.
    ///
    /// An undo goes to nodes that may hold something; a final release goes to all.
    pub fn new(
        kind: ReleaseKind,
        targets: Vec<Target>,
        now: Timestamp,
        until: Timestamp,
        call_timeout: Duration,
    ) -> Self {
        let nodes = targets.into_iter().map(|target| NodeState {
            target,
            progress: match (kind, target) {
                (ReleaseKind::Undo, Target::Nothing) => Progress::Over,
                _ => Progress::Due { at: now },
            },
            tries: 0,
            maybe_done: false,
            said: None,
            server: 0,
        });
        Self {
            kind,
            call_timeout,
            until,
            keep_until: None,
            nodes: nodes.collect(),
        }
    }

    /// The same release, which is to be kept from others until `keep_until`. Nodes are told until then,
    /// also after the lease has ended, unless a majority has been told before.
    pub fn keeping(self, keep_until: Option<Timestamp>) -> Self {
        Self { keep_until, ..self }
    }

    /// The next node to tell at `now`, and whether the fate of its acquire is unknown. If the lock is to be
    /// kept, it is also unknown of a node that did not have it, or may have lost it since it was first
    /// told: such a node keeps it only if it is told so.
    pub fn poll_send(&mut self, now: Timestamp) -> Option<(usize, bool)> {
        let timeout = now + self.call_timeout;
        let due = |state: &NodeState| matches!(state.progress, Progress::Due { at } if at <= now);
        let node = self.nodes.iter().position(due)?;
        let state = &mut self.nodes[node];
        state.progress = Progress::Sent { timeout };
        state.tries += 1;
        let known = state.target == Target::Holds && state.tries == 1;
        let keeps_anew = self.keep_until.is_some() && !known;
        let fate_unknown = state.target == Target::Unknown || keeps_anew;
        Some((node, fate_unknown))
    }

    /// Takes `node`'s outcome at `now`.
    pub fn handle_reply(
        &mut self,
        node: usize,
        outcome: &Result<Reply, CallError>,
        now: Timestamp,
    ) {
        let until = self.told_until(self.nodes[node].target);
        let server = outcome.as_ref().map_or(0, |reply| reply.standing.server);
        // One server behind two nodes speaks once, through the node whose reply was read first.
        let mut others = self.nodes.iter().enumerate();
        let twin = others.position(|(n, other)| n != node && is_same(other.server, server));
        if let (Some(twin), Ok(reply)) = (twin, outcome)
            && reply.answer == Answer::Released
        {
            // The server carried out this release first, so the other one found nothing.
            self.nodes[twin].said = Some(Said::Released);
        }
        let state = &mut self.nodes[node];
        match outcome {
            Ok(reply) => {
                let said = match reply.answer {
                    _ if twin.is_some() => Said::Unclear,
                    Answer::Released => Said::Released,
                    // To call that expired would accuse a holder that did everything right.
                    _ if state.maybe_done => Said::Unclear,
                    Answer::Held(_) => Said::Taken,
                    _ => Said::Gone,
                };
                // A second try that finds nothing does not unsay what the first one did.
                state.said.get_or_insert(said);
                state.server = server;
                state.progress = Progress::Over;
            }
            // An earlier try that failed late does not unsay what a later one achieved.
            Err(_) if state.progress == Progress::Over => {}
            Err(error) => {
                state.maybe_done |=
                    error.may_have_been_applied() && state.target != Target::Nothing;
                state.try_again(now, until);
            }
        }
    }

    /// Until when a node that may have `target` of ours is told again.
    fn told_until(&self, target: Target) -> Option<Timestamp> {
        let told = |state: &&NodeState| !matches!(state.said, None | Some(Said::Taken));
        let kept = self.nodes.iter().filter(told).count() >= quorum(self.nodes.len());
        let keep_until = self.keep_until.filter(|_| !kept);
        match target {
            // Nothing of ours was there to begin with: one word to it was enough.
            Target::Nothing => keep_until,
            Target::Holds | Target::Unknown => keep_until.max(Some(self.until)),
        }
    }

    /// Time has passed: a node that has not answered is told again, as long as it may matter.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        for node in 0..self.nodes.len() {
            let until = self.told_until(self.nodes[node].target);
            let state = &mut self.nodes[node];
            match state.progress {
                Progress::Sent { timeout } if timeout <= now => {
                    state.maybe_done |= state.target != Target::Nothing;
                    state.try_again(now, until);
                }
                Progress::Due { .. } if until.map_or(state.tries > 0, |until| until <= now) => {
                    state.progress = Progress::Over;
                }
                _ => {}
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let next = |state: &NodeState| match state.progress {
            Progress::Due { at } => Some(at),
            Progress::Sent { timeout } => Some(timeout),
            Progress::Over => None,
        };
        self.nodes.iter().filter_map(next).min()
    }

    /// Whether nothing is left to do.
    pub fn is_settled(&self) -> bool {
        self.nodes.iter().all(|s| s.progress == Progress::Over)
    }

    /// Whether a majority of the nodes has nothing of ours any more, as far as that is known. From
    /// then on the others stand in nobody's way.
    pub fn is_confirmed(&self) -> bool {
        let done = |state: &&NodeState| state.progress == Progress::Over || state.said.is_some();
        self.nodes.iter().filter(done).count() >= quorum(self.nodes.len())
    }

    /// What a final release amounts to, as soon as that cannot change or every node has had one
    /// call's time to answer.
    /// Nobody waits for an undo, so it has no verdict.
    pub fn verdict(&self) -> Option<WithdrawalVerdict> {
        if self.kind == ReleaseKind::Undo {
            return None;
        }
        let quorum = quorum(self.nodes.len());
        let said = |wanted: Said| self.nodes.iter().filter(|s| s.said == Some(wanted)).count();
        let (released, gone, taken) = (said(Said::Released), said(Said::Gone), said(Said::Taken));
        if released >= quorum {
            return Some(WithdrawalVerdict::Released);
        }
        let heard = |state: &NodeState| {
            state.said.is_some()
                || state.progress == Progress::Over
                || state.tries > 1
                || (state.tries == 1 && matches!(state.progress, Progress::Due { .. }))
        };
        let answered = released + gone + taken + said(Said::Unclear);
        // As with every loss: proved only once so many nodes lack it that no majority can have had
        // it. A node that could not be told, or not clearly, may well have.
        let proved = self.nodes.len() - (gone + taken) < quorum;
        if answered < quorum || !proved {
            let all_heard = self.nodes.iter().all(heard);
            return all_heard.then_some(WithdrawalVerdict::Unconfirmed);
        }
        Some(if taken > 0 {
            WithdrawalVerdict::Taken
        } else {
            WithdrawalVerdict::Expired
        })
    }
}

impl NodeState {
    fn try_again(&mut self, now: Timestamp, until: Option<Timestamp>) {
        let pause = RETRY_MIN
            .saturating_mul(1 << self.tries.clamp(1, 8).saturating_sub(1))
            .min(RETRY_MAX);
        let at = now + pause;
        self.progress = if until.is_some_and(|until| at < until) {
            Progress::Due { at }
        } else {
            Progress::Over
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Holder, Standing};
    use crate::node::{Trouble, TroubleKind};

    const T0: Timestamp = Timestamp::from_nanos(1_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    /// A final release that has been sent to three nodes which all hold.
    fn sent() -> Withdrawal {
        let targets = vec![Target::Holds; 3];
        let until = T0 + SECOND * 10;
        let mut release = Withdrawal::new(ReleaseKind::Final, targets, T0, until, SECOND);
        while release.poll_send(T0).is_some() {}
        release
    }

    fn said(answer: Answer) -> Result<Reply, CallError> {
        Ok(Reply {
            stamp: None,
            standing: Standing {
                incarnation: 1,
                born_us: 0,
                clock_us: 1,
                server: 0,
            },
            answer,
        })
    }

    fn trouble() -> Trouble {
        Trouble::new(TroubleKind::Disconnected, "gone")
    }

    #[test]
    fn a_node_that_could_not_be_told_may_have_held() {
        let mut release = sent();
        release.handle_reply(0, &said(Answer::Released), T0);
        release.handle_reply(1, &said(Answer::Gone), T0);
        release.handle_reply(2, &Err(CallError::NotSent(trouble())), T0);
        assert_eq!(release.verdict(), Some(WithdrawalVerdict::Unconfirmed));
    }

    #[test]
    fn what_is_gone_after_a_lost_answer_may_be_our_own_doing() {
        let mut release = sent();
        for node in 0..3 {
            release.handle_reply(node, &Err(CallError::Unknown(trouble())), T0);
        }
        let later = T0 + SECOND;
        while release.poll_send(later).is_some() {}
        release.handle_reply(0, &said(Answer::Gone), later);
        release.handle_reply(1, &said(Answer::Held(Holder::default())), later);
        release.handle_reply(2, &said(Answer::Gone), later);
        assert_eq!(release.verdict(), Some(WithdrawalVerdict::Unconfirmed));
    }

    #[test]
    fn a_majority_without_the_token_is_proof_of_loss() {
        let mut release = sent();
        release.handle_reply(0, &said(Answer::Released), T0);
        release.handle_reply(1, &said(Answer::Gone), T0);
        release.handle_reply(2, &said(Answer::Held(Holder::default())), T0);
        assert_eq!(release.verdict(), Some(WithdrawalVerdict::Taken));
    }
}
