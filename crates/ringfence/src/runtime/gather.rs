//! One request to all nodes outside the lock protocol: handshakes and inspection. Collects the
//! answers and leaves their meaning to the caller.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::group::Group;
use crate::message::{Reply, Request};
use crate::node::{CallError, Completion, Deliver, Facts, InitMode};
use crate::time::Timestamp;

use super::sender::{Sender, no_answer};

/// The answer of each node, in node order.
pub(crate) type Answers<T> = Vec<Result<T, CallError>>;
/// The answers that have arrived so far, in node order.
pub(crate) type PartialAnswers<T> = [Option<Result<T, CallError>>];

impl Sender {
    /// Asks every node for its facts. Returns when `enough` have answered, or at `until`.
    pub(crate) async fn probe(
        &self,
        until: Timestamp,
        enough: impl Fn(&PartialAnswers<Facts>) -> bool,
    ) -> Answers<Facts> {
        let ask = |node: usize, done| self.nodes[node].probe(done);
        gather(self.nodes.len(), &self.clock, until, ask, enough)
            .await
            .0
    }

    /// Makes every node join `group`. Returns when `enough` have answered, or at `until`, with the
    /// receiver of the answers that are still missing.
    pub(crate) async fn join(
        &self,
        group: Group,
        until: Timestamp,
        enough: impl Fn(&PartialAnswers<Facts>) -> bool,
    ) -> (Answers<Facts>, LateAnswers<Facts>) {
        let ask = |node: usize, done| self.nodes[node].join(group, done);
        gather(self.nodes.len(), &self.clock, until, ask, enough).await
    }

    /// Marks every node as allowed to vote in `group` without a quarantine.
    pub(crate) async fn init(
        &self,
        group: Group,
        mode: InitMode,
        until: Timestamp,
    ) -> Answers<Facts> {
        let ask = |node: usize, done| self.nodes[node].init(group, mode, done);
        gather(self.nodes.len(), &self.clock, until, ask, all)
            .await
            .0
    }

    /// Sends `request` to every node. Returns when `enough` have answered, or at `until`.
    pub(crate) async fn ask_all(
        &self,
        request: &Arc<Request>,
        until: Timestamp,
        enough: impl Fn(&PartialAnswers<Reply>) -> bool,
    ) -> Answers<Reply> {
        let ask = |node, done| self.ask(node, request, until, done);
        gather(self.nodes.len(), &self.clock, until, ask, enough)
            .await
            .0
    }
}

impl Sender {
    /// Sends each of `requests` to the node with its number, and waits for all answers or until
    /// `until`.
    pub(crate) async fn ask_each(
        &self,
        requests: &[(usize, Arc<Request>)],
        until: Timestamp,
    ) -> Answers<Reply> {
        let ask = |at: usize, done| {
            let (node, request) = &requests[at];
            self.ask(*node, request, until, done);
        };
        gather(requests.len(), &self.clock, until, ask, all).await.0
    }
}

/// The `enough` that waits for the answers of all nodes.
pub(crate) fn all<T>(_: &PartialAnswers<T>) -> bool {
    false
}

struct Collector<T>(mpsc::UnboundedSender<(usize, Result<T, CallError>)>);

impl<T: Send> Deliver<T> for Collector<T> {
    fn deliver(&self, tag: u64, outcome: Result<T, CallError>) {
        // Fails if the receiver was dropped: the answer came too late.
        let _ = self.0.send((tag as usize, outcome));
    }
}

/// Receives the answers that arrive after `gather` returned. Ends once all nodes have answered.
pub(crate) type LateAnswers<T> = mpsc::UnboundedReceiver<(usize, Result<T, CallError>)>;

/// Calls `ask` for each of `nodes` nodes and collects the answers until `enough` accepts them,
/// all nodes have answered, or the clock reaches `until`. A node that has not answered by then
/// counts as timed out. Also returns the receiver of the answers that are still missing.
pub(crate) async fn gather<T: Clone + Send + 'static>(
    nodes: usize,
    clock: &Clock,
    until: Timestamp,
    mut ask: impl FnMut(usize, Completion<T>),
    enough: impl Fn(&PartialAnswers<T>) -> bool,
) -> (Answers<T>, LateAnswers<T>) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let collector: Arc<dyn Deliver<T>> = Arc::new(Collector(sender));
    let mut answers = vec![None; nodes];
    for node in 0..nodes {
        ask(node, Completion::new(Arc::clone(&collector), node as u64));
    }
    drop(collector);
    let mut missing = nodes;
    while missing > 0 && !enough(&answers) {
        tokio::select! {
            biased;
            Some((node, outcome)) = receiver.recv() => {
                missing -= 1;
                answers[node] = Some(outcome);
            }
            () = clock.sleep_until(until) => break,
        }
    }
    // Also take the answers that have already arrived: more answers detect more duplicate nodes.
    while let Ok((node, outcome)) = receiver.try_recv() {
        answers[node] = Some(outcome);
    }
    let answers = answers.into_iter();
    let answers = answers
        .map(|answer| answer.unwrap_or_else(|| Err(no_answer())))
        .collect();
    (answers, receiver)
}
