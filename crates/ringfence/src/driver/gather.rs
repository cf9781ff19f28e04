//! Asking all nodes something once, outside the lock protocol: handshakes and inspection.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::node::{CallError, Completion, Deliver, Trouble, TroubleKind};
use crate::time::Timestamp;

struct Collector<T>(mpsc::UnboundedSender<(usize, Result<T, CallError>)>);

impl<T: Send> Deliver<T> for Collector<T> {
    fn deliver(&self, tag: u64, outcome: Result<T, CallError>) {
        // Nobody listens any more: the answer came too late to matter.
        let _ = self.0.send((tag as usize, outcome));
    }
}

/// Asks `nodes` nodes through `ask` and collects what they say until `enough`, all have answered,
/// or `until`. Who has not answered by then has timed out.
pub(crate) async fn gather<T: Clone + Send + 'static>(
    nodes: usize,
    clock: &Clock,
    until: Timestamp,
    ask: impl FnMut(usize, Completion<T>),
    enough: impl Fn(&[Option<Result<T, CallError>>]) -> bool,
) -> Vec<Result<T, CallError>> {
    gather_first(nodes, clock, until, ask, enough).await.0
}

/// What nodes say after enough of them have spoken; ends once all have.
pub(crate) type Rest<T> = mpsc::UnboundedReceiver<(usize, Result<T, CallError>)>;

/// The same as [`gather`], with the answers that are still to come.
pub(crate) async fn gather_first<T: Clone + Send + 'static>(
    nodes: usize,
    clock: &Clock,
    until: Timestamp,
    mut ask: impl FnMut(usize, Completion<T>),
    enough: impl Fn(&[Option<Result<T, CallError>>]) -> bool,
) -> (Vec<Result<T, CallError>>, Rest<T>) {
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
