//! Renewals take turns: no more than so many are under way at once, those that are due first go first.
//!
//! A client may hold a hundred thousand locks, of which very many are due together after a pause of the
//! machine or an outage. Asked for all at once, nodes that are slow answer every one of them too late,
//! and all are lost that could have been kept one after the other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::hold::Hold;
use super::lock;
use super::schedule::Schedule;

/// The most renewals under way at once: enough for twenty thousand in a second at 50 ms each.
pub(crate) const AT_ONCE: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Renewals {
    queue: Mutex<Queue>,
    /// Where the keeper is told to look.
    schedule: Arc<Schedule>,
}

#[derive(Debug, Default)]
struct Queue {
    under_way: usize,
    waiting: VecDeque<Arc<Hold>>,
}

impl Renewals {
    pub(crate) fn new(schedule: Arc<Schedule>) -> Self {
        Self {
            queue: Mutex::default(),
            schedule,
        }
    }

    /// `hold` is to be renewed when its turn comes.
    pub(crate) fn want(&self, hold: Arc<Hold>) {
        lock(&self.queue).waiting.push_back(hold);
    }

    /// The hold whose turn it is, if there is room. It ends its turn with [`finish`](Self::finish).
    pub(crate) fn next(&self) -> Option<Arc<Hold>> {
        let mut queue = lock(&self.queue);
        if queue.under_way >= AT_ONCE {
            return None;
        }
        let hold = queue.waiting.pop_front()?;
        queue.under_way += 1;
        Some(hold)
    }

    /// A turn is over.
    pub(crate) fn finish(&self) {
        let mut queue = lock(&self.queue);
        queue.under_way -= 1;
        // Not at every one: the keeper then begins many at once, which the nodes answer as cheaply.
        let call = queue.under_way <= AT_ONCE / 2 && !queue.waiting.is_empty();
        drop(queue);
        if call {
            self.schedule.nudge();
        }
    }
}
