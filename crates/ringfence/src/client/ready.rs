//! Waiting until locks can be taken: until a majority of the nodes answers and votes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::node::Facts;
use crate::protocol::{Vote, quorum};
use crate::runtime::gather::{Answers, PartialAnswers};
use crate::time::Timestamp;

use super::Locks;
use super::error::ConnectError;
use super::lock::NO_QUORUM_AFTER;
use super::votes::Votes;

/// How long the nodes may take to answer once.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause before the nodes are asked again.
const AGAIN: Duration = Duration::from_millis(50);

impl Locks {
    /// Waits until a majority of the nodes answers and votes, for at most 15 s. Use it at the start of
    /// a program: [`connect`](Self::connect) succeeds also while no majority answers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use ringfence::Locks;
    /// let locks = Locks::connect("memory:").await?;
    /// locks.ready().await?; // or the reason, with what each node says
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ready_within`](Self::ready_within).
    pub async fn ready(&self) -> Result<(), ConnectError> {
        self.ready_within(NO_QUORUM_AFTER).await
    }

    /// The same, for at most `span`. Zero only looks.
    ///
    /// # Errors
    /// [`ConnectError::NoQuorum`] if no majority answers in time, [`ConnectError::Quarantined`] if the
    /// quarantine of a majority lasts longer, [`ConnectError::Misconfigured`] if waiting does not help.
    pub async fn ready_within(&self, span: Duration) -> Result<(), ConnectError> {
        let runtime = &self.shared.runtime;
        let clock = &runtime.sender.clock;
        let until = clock.now() + span;
        let quorum = quorum(self.shared.names.len());
        loop {
            self.check_runtime()?;
            let asked = clock.now();
            let is_there = |answer: &&Option<_>| matches!(answer, Some(Ok(_)));
            let enough =
                |answers: &PartialAnswers<Facts>| answers.iter().filter(is_there).count() >= quorum;
            let answers = runtime.sender.probe(asked + PATIENCE, enough).await;
            let votes = self.standing_votes(&answers, asked);
            let count =
                |wanted: fn(&Vote) -> bool| votes.iter().filter(|vote| wanted(vote)).count();
            if count(|vote| *vote == Vote::Granted) >= quorum
                && runtime.joined.load(Ordering::SeqCst)
            {
                return Ok(());
            }
            let misconfigured = count(Vote::is_misconfigured) >= quorum;
            let left = majority_in(&votes, quorum).filter(|left| !left.is_zero());
            let votes = Votes::worded("answers", &self.shared.names, votes);
            let now = clock.now();
            match left {
                _ if misconfigured => return Err(ConnectError::Misconfigured { votes }),
                Some(left) if now + left >= until => {
                    return Err(ConnectError::Quarantined { left, votes });
                }
                None if now >= until => return Err(ConnectError::NoQuorum { votes }),
                _ => clock.sleep_until((now + AGAIN).min(until)).await,
            }
        }
    }

    /// What the answers of a handshake that was requested at `asked` are worth as votes.
    fn standing_votes(&self, answers: &Answers<Facts>, asked: Timestamp) -> Vec<Vote> {
        let sender = &self.shared.runtime.sender;
        let votes = answers
            .iter()
            .enumerate()
            .map(|(node, answer)| match answer {
                Ok(facts) => {
                    sender.observe_facts(node, facts, asked);
                    let standing = facts.standing.unwrap_or_default();
                    let discount =
                        (sender.cluster()).discount(node, standing, facts.sent, facts.received);
                    discount.unwrap_or(Vote::Granted)
                }
                Err(error) => Vote::Failed(error.clone()),
            });
        votes.collect()
    }
}

/// When a majority votes, if enough nodes answer.
fn majority_in(votes: &[Vote], quorum: usize) -> Option<Duration> {
    let waits = votes.iter().filter_map(|vote| match vote {
        Vote::Granted => Some(Duration::ZERO),
        Vote::Quarantined { left } | Vote::ClockJumped { left, .. } => Some(*left),
        _ => None,
    });
    let mut waits: Vec<Duration> = waits.collect();
    waits.sort_unstable();
    waits.get(quorum - 1).copied()
}
