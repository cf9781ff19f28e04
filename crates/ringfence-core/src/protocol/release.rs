//! The release of a lock: the final release of a holder, or the undo of a lost attempt. It is
//! retried until every node that may hold something has acknowledged it, or until every lease has
//! ended.

use std::time::Duration;

use crate::message::{Answer, ReleaseKind, Reply};
use crate::node::CallError;
use crate::time::Timestamp;

use super::round::is_same_server;
use super::{RoundMachine, Target, Vote, quorum};

/// The pause before a release is resent to a node, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// A release in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PendingRelease {
    kind: ReleaseKind,
    call_timeout: Duration,
    /// When the last lease of the lock has ended.
    until: Timestamp,
    /// Until when a majority has to keep the lock from others (`hold_at_least`).
    keep_until: Option<Timestamp>,
    nodes: Vec<ReleaseNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReleaseNode {
    target: Target,
    progress: Progress,
    tries: u32,
    /// An earlier request may have been executed although its reply was lost.
    maybe_applied: bool,
    /// The first answer of the node.
    answer: Option<ReleaseAnswer>,
    /// The server that gave the answer.
    server: u64,
    /// The node votes, so an answer without our token shows that the lock had ended.
    votes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Progress {
    Due { at: Timestamp },
    Sent { timeout: Timestamp },
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ReleaseAnswer {
    Released,
    Gone,
    Taken,
    /// The lock was gone or taken, but perhaps because of an earlier request of ours. Or the same
    /// server answered through another node.
    Unclear,
}

/// The result of a final release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseVerdict {
    /// A majority held our token until now and has released it.
    Released,
    /// A majority answered, but a majority no longer held the lock.
    Expired,
    /// Like `Expired`, and another client holds the lock now.
    Taken,
    /// Too few answers to decide whether a majority held the lock.
    Unconfirmed,
}

impl PendingRelease {
    /// Releases on `targets`, from `now` on and until `until` at the latest.
    ///
    /// An undo goes to the nodes that may hold something; a final release goes to all nodes.
    pub fn new(
        kind: ReleaseKind,
        targets: Vec<Target>,
        now: Timestamp,
        until: Timestamp,
        call_timeout: Duration,
    ) -> Self {
        let nodes = targets.into_iter().map(|target| ReleaseNode {
            target,
            progress: match (kind, target) {
                (ReleaseKind::Undo, Target::Nothing) => Progress::Over,
                _ => Progress::Due { at: now },
            },
            tries: 0,
            maybe_applied: false,
            answer: None,
            server: 0,
            votes: false,
        });
        Self {
            kind,
            call_timeout,
            until,
            keep_until: None,
            nodes: nodes.collect(),
        }
    }

    /// The same release, which keeps the lock from others until `keep_until`. It is retried until
    /// then, also after the lease has ended, unless a majority has acknowledged it before.
    pub fn keeping(self, keep_until: Option<Timestamp>) -> Self {
        Self { keep_until, ..self }
    }

    /// The next node to send the release to at `now`, and whether the fate of the acquire is
    /// unknown there. If the lock is to be kept from others, the fate also counts as unknown for a
    /// node that did not have the lock or may have lost it since the first request: otherwise such
    /// a node would not keep it.
    pub fn poll_send(&mut self, now: Timestamp) -> Option<(usize, bool)> {
        let timeout = now + self.call_timeout;
        let due = |state: &ReleaseNode| matches!(state.progress, Progress::Due { at } if at <= now);
        let node = self.nodes.iter().position(due)?;
        let state = &mut self.nodes[node];
        state.progress = Progress::Sent { timeout };
        state.tries += 1;
        let known = state.target == Target::Holds && state.tries == 1;
        let may_lack_it = self.keep_until.is_some() && !known;
        let fate_unknown = state.target == Target::Unknown || may_lack_it;
        Some((node, fate_unknown))
    }

    /// The request to `node` was never sent, because there is nothing to release.
    pub fn withdraw(&mut self, node: usize) {
        self.nodes[node].progress = Progress::Over;
    }

    /// Until when a release is resent to a node with this `target`.
    fn retry_until(&self, target: Target) -> Option<Timestamp> {
        let acknowledged =
            |state: &&ReleaseNode| !matches!(state.answer, None | Some(ReleaseAnswer::Taken));
        let kept = self.nodes.iter().filter(acknowledged).count() >= quorum(self.nodes.len());
        let keep_until = self.keep_until.filter(|_| !kept);
        match target {
            // The node had nothing of ours: one request was enough.
            Target::Nothing => keep_until,
            Target::Holds | Target::Unknown => keep_until.max(Some(self.until)),
        }
    }

    /// Whether every node is done.
    pub fn is_settled(&self) -> bool {
        self.nodes.iter().all(|s| s.progress == Progress::Over)
    }

    /// Whether a majority of the nodes has released our token, as far as that is known. From then
    /// on the other nodes block no client.
    pub fn is_confirmed(&self) -> bool {
        let done =
            |state: &&ReleaseNode| state.progress == Progress::Over || state.answer.is_some();
        self.nodes.iter().filter(done).count() >= quorum(self.nodes.len())
    }
}

impl RoundMachine for PendingRelease {
    type Verdict = ReleaseVerdict;

    /// A node that may have lost the lock, such as a new master, does not show that the lock had ended.
    fn handle_reply(
        &mut self,
        node: usize,
        outcome: Result<Reply, CallError>,
        discount: Option<Vote>,
        now: Timestamp,
    ) {
        let until = self.retry_until(self.nodes[node].target);
        let server = outcome.as_ref().map_or(0, |reply| reply.standing.server);
        // A server behind two nodes counts once: for the node whose reply was read first.
        let mut others = self.nodes.iter().enumerate();
        let duplicate =
            others.position(|(n, other)| n != node && is_same_server(other.server, server));
        if let (Some(duplicate), Ok(reply)) = (duplicate, &outcome)
            && reply.answer == Answer::Released
        {
            // The server executed this release first, so the request through the other node found
            // nothing.
            self.nodes[duplicate].answer = Some(ReleaseAnswer::Released);
        }
        let state = &mut self.nodes[node];
        match outcome {
            Ok(reply) => {
                let answer = match reply.answer {
                    _ if duplicate.is_some() => ReleaseAnswer::Unclear,
                    Answer::Released => ReleaseAnswer::Released,
                    // An earlier request may have released it. `Expired` would wrongly blame the
                    // holder.
                    _ if state.maybe_applied => ReleaseAnswer::Unclear,
                    Answer::Held(_) => ReleaseAnswer::Taken,
                    _ => ReleaseAnswer::Gone,
                };
                // A repeated request that finds nothing does not change the first answer.
                if state.answer.is_none() {
                    state.answer = Some(answer);
                    // A freeze of our own clock does not change what the node has.
                    state.votes = matches!(discount, None | Some(Vote::Outdated));
                }
                state.server = server;
                state.progress = Progress::Over;
            }
            // The late failure of an earlier request does not change the result of a later one.
            Err(_) if state.progress == Progress::Over => {}
            Err(error) => {
                state.maybe_applied |=
                    error.may_have_been_applied() && state.target != Target::Nothing;
                state.retry_later(now, until);
            }
        }
    }

    /// Resends the release to nodes that have not answered, as long as it is
    /// useful.
    fn handle_timeout(&mut self, now: Timestamp) {
        for node in 0..self.nodes.len() {
            let until = self.retry_until(self.nodes[node].target);
            let state = &mut self.nodes[node];
            match state.progress {
                Progress::Sent { timeout } if timeout <= now => {
                    state.maybe_applied |= state.target != Target::Nothing;
                    state.retry_later(now, until);
                }
                Progress::Due { .. } if until.map_or(state.tries > 0, |until| until <= now) => {
                    state.progress = Progress::Over;
                }
                _ => {}
            }
        }
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let next = |state: &ReleaseNode| match state.progress {
            Progress::Due { at } => Some(at),
            Progress::Sent { timeout } => Some(timeout),
            Progress::Over => None,
        };
        self.nodes.iter().filter_map(next).min()
    }

    /// The result of a final release, as soon as it cannot change or every node has had the time of
    /// one call to answer. An undo has no verdict, because no caller waits for it.
    fn verdict(&self) -> Option<ReleaseVerdict> {
        if self.kind == ReleaseKind::Undo {
            return None;
        }
        let quorum = quorum(self.nodes.len());
        let count = |wanted: ReleaseAnswer| {
            let same = self.nodes.iter().filter(|s| s.answer == Some(wanted));
            same.filter(|s| s.votes || wanted == ReleaseAnswer::Released)
                .count()
        };
        let (released, gone, taken) = (
            count(ReleaseAnswer::Released),
            count(ReleaseAnswer::Gone),
            count(ReleaseAnswer::Taken),
        );
        if released >= quorum {
            return Some(ReleaseVerdict::Released);
        }
        let had_one_call = |state: &ReleaseNode| {
            state.answer.is_some()
                || state.progress == Progress::Over
                || state.tries > 1
                || (state.tries == 1 && matches!(state.progress, Progress::Due { .. }))
        };
        let answered = self.nodes.iter().filter(|s| s.answer.is_some()).count();
        // As for every proof of loss: so many nodes must lack our token that no majority can have
        // held it. A node without a clear answer may have held it.
        let proved = self.nodes.len() - (gone + taken) < quorum;
        if answered < quorum || !proved {
            let all_had_one_call = self.nodes.iter().all(had_one_call);
            return all_had_one_call.then_some(ReleaseVerdict::Unconfirmed);
        }
        Some(if taken > 0 {
            ReleaseVerdict::Taken
        } else {
            ReleaseVerdict::Expired
        })
    }
}

impl ReleaseNode {
    fn retry_later(&mut self, now: Timestamp, until: Option<Timestamp>) {
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

    /// A final release that has been sent to as many nodes, all of which hold the lock.
    fn sent_to(nodes: usize) -> PendingRelease {
        let targets = vec![Target::Holds; nodes];
        let until = T0 + SECOND * 10;
        let mut release = PendingRelease::new(ReleaseKind::Final, targets, T0, until, SECOND);
        while release.poll_send(T0).is_some() {}
        release
    }

    fn replied(answer: Answer) -> Result<Reply, CallError> {
        Ok(Reply {
            stamp: None,
            standing: Standing {
                incarnation: 1,
                born_us: 0,
                clock_us: 1,
                server: 0,
                replicated: false,
                epoch: None,
            },
            answer,
        })
    }

    fn trouble() -> Trouble {
        Trouble::new(TroubleKind::Disconnected, "gone")
    }

    #[test]
    fn a_node_that_could_not_be_reached_may_have_held_the_lock() {
        let mut release = sent_to(3);
        release.handle_reply(0, replied(Answer::Released), None, T0);
        release.handle_reply(1, replied(Answer::Gone), None, T0);
        release.handle_reply(2, Err(CallError::NotSent(trouble())), None, T0);
        assert_eq!(release.verdict(), Some(ReleaseVerdict::Unconfirmed));
    }

    #[test]
    fn a_key_gone_after_a_lost_reply_may_be_our_own_release() {
        let mut release = sent_to(3);
        for node in 0..3 {
            release.handle_reply(node, Err(CallError::Unknown(trouble())), None, T0);
        }
        let later = T0 + SECOND;
        while release.poll_send(later).is_some() {}
        release.handle_reply(0, replied(Answer::Gone), None, later);
        release.handle_reply(1, replied(Answer::Held(Holder::default())), None, later);
        release.handle_reply(2, replied(Answer::Gone), None, later);
        assert_eq!(release.verdict(), Some(ReleaseVerdict::Unconfirmed));
    }

    /// The only node is a new master that has not got our lock from the former one.
    #[test]
    fn a_new_master_without_the_token_is_no_proof_of_loss() {
        for answer in [Answer::Gone, Answer::Held(Holder::default())] {
            let mut release = sent_to(1);
            let left = Vote::Quarantined { left: SECOND };
            release.handle_reply(0, replied(answer), Some(left), T0);
            assert_eq!(release.verdict(), Some(ReleaseVerdict::Unconfirmed));
            assert!(release.is_settled());
        }
    }

    /// It was restored there.
    #[test]
    fn a_new_master_confirms_the_release_of_what_it_has() {
        let mut release = sent_to(1);
        let left = Vote::Quarantined { left: SECOND };
        release.handle_reply(0, replied(Answer::Released), Some(left), T0);
        assert_eq!(release.verdict(), Some(ReleaseVerdict::Released));
    }

    #[test]
    fn a_majority_without_the_token_is_proof_of_loss() {
        let mut release = sent_to(3);
        release.handle_reply(0, replied(Answer::Released), None, T0);
        release.handle_reply(1, replied(Answer::Gone), None, T0);
        release.handle_reply(2, replied(Answer::Held(Holder::default())), None, T0);
        assert_eq!(release.verdict(), Some(ReleaseVerdict::Taken));
    }
}
