//! Asking all nodes something once, outside the lock protocol: handshakes and inspection.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::group::Group;
use crate::message::{Reply, Request};
use crate::node::{CallError, Completion, Deliver, Facts, InitMode, Trouble, TroubleKind};
use crate::time::Timestamp;

use super::sender::Sender;

/// What each node said, in node order.
pub(crate) type Answers<T> = Vec<Result<T, CallError>>;
/// What each node has said so far.
pub(crate) type SoFar<T> = [Option<Result<T, CallError>>];

impl Sender {
    /// Asks every node what it is, until `enough` have said so, or `until`.
    pub(crate) async fn probe(
        &self,
        until: Timestamp,
        enough: impl Fn(&SoFar<Facts>) -> bool,
    ) -> Answers<Facts> {
        let ask = |node: usize, done| self.nodes[node].probe(done);
        gather(self.nodes.len(), &self.clock, until, ask, enough)
            .await
            .0
    }

    /// Has every node join `group`, until `enough` have, or `until`. With the answers that are still to
    /// come.
    pub(crate) async fn join(
        &self,
        group: Group,
        until: Timestamp,
        enough: impl Fn(&SoFar<Facts>) -> bool,
    ) -> (Answers<Facts>, Rest<Facts>) {
        let ask = |node: usize, done| self.nodes[node].join(group, done);
        gather(self.nodes.len(), &self.clock, until, ask, enough).await
    }

    /// Has every node marked as grown up in `group`.
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

    /// Sends `request` to every node, until `enough` have answered, or `until`.
    pub(crate) async fn ask_all(
        &self,
        request: &Arc<Request>,
        until: Timestamp,
        enough: impl Fn(&SoFar<Reply>) -> bool,
    ) -> Answers<Reply> {
        let ask = |node, done| self.ask(node, request, until, done);
        gather(self.nodes.len(), &self.clock, until, ask, enough)
            .await
            .0
    }
}

/// Only the answers of all nodes are enough.
pub(crate) fn all<T>(_: &SoFar<T>) -> bool {
    false
}

struct Collector<T>(mpsc::UnboundedSender<(usize, Result<T, CallError>)>);

impl<T: Send> Deliver<T> for Collector<T> {
    fn deliver(&self, tag: u64, outcome: Result<T, CallError>) {
        // Nobody listens any more: the answer came too late to matter.
        let _ = self.0.send((tag as usize, outcome));
    }
}

/// What nodes say after enough of them have spoken; ends once all have.
pub(crate) type Rest<T> = mpsc::UnboundedReceiver<(usize, Result<T, CallError>)>;

/// Asks `nodes` nodes through `ask` and collects what they say until `enough`, all have answered,
/// or `until`. A node that has not answered by then has timed out. With the answers that are still to
/// come.
pub(crate) async fn gather<T: Clone + Send + 'static>(
    nodes: usize,
    clock: &Clock,
    until: Timestamp,
    mut ask: impl FnMut(usize, Completion<T>),
    enough: impl Fn(&SoFar<T>) -> bool,
) -> (Answers<T>, Rest<T>) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let collector: Arc<dyn Deliver<T>> = Arc::new(Collector(sender));
    let mut answers = vec![None; nodes];
    for node in 0..nodes {
        ask(node, Completion::new(Arc::clone(&collector), node as u64));
    }
    drop(collector);
    let mut open = nodes;
    while open > 0 && !enough(&answers) {
        tokio::select! {
            biased;
            Some((node, outcome)) = receiver.recv() => {
                open -= 1;
                answers[node] = Some(outcome);
            }
            () = clock.sleep_until(until) => break,
        }
    }
    // Enough is no reason to overlook who has answered too: that is how one server behind two
    // addresses is found out.
    while let Ok((node, outcome)) = receiver.try_recv() {
        answers[node] = Some(outcome);
    }
    let silent = || {
        Err(CallError::Unknown(Trouble::new(
            TroubleKind::Timeout,
            "no answer in time",
        )))
    };
    let answers = answers.into_iter();
    let answers = answers
        .map(|answer| answer.unwrap_or_else(silent))
        .collect();
    (answers, receiver)
}
