//! A consumer: takes a message, and works on the task if the table says that it is the first.

use crate::Outcome;
use crate::queue::Queue;
use crate::tasks::Tasks;

/// What became of the messages that a consumer has taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Consumed {
    /// Messages whose task was run.
    pub(crate) ran: usize,
    /// Messages whose task another consumer had, or which was not marked as enqueued.
    pub(crate) dropped: usize,
}

/// Takes all messages that are there.
pub(crate) async fn consume(queue: &mut Queue, tasks: &mut Tasks) -> Outcome<Consumed> {
    let mut consumed = Consumed::default();
    while let Some(id) = queue.pop().await? {
        match tasks.begin(id)? {
            Some(run) => {
                // The work is here.
                tasks.succeed(id, run)?;
                consumed.ran += 1;
            }
            None => consumed.dropped += 1,
        }
    }
    Ok(consumed)
}
