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
    line: Arc<Mutex<Line>>,
    /// Where the keeper is told that there is room again.
    schedule: Arc<Schedule>,
}

#[derive(Debug, Default)]
struct Line {
    under_way: usize,
    waiting: VecDeque<Arc<Hold>>,
}

/// The right to renew. Dropped, it is the next one's.
#[derive(Debug)]
pub(crate) struct Turn {
    line: Arc<Mutex<Line>>,
    schedule: Arc<Schedule>,
}

impl Renewals {
    pub(crate) fn new(schedule: Arc<Schedule>) -> Self {
        Self {
            line: Arc::default(),
            schedule,
        }
    }

    /// `hold` is to be renewed when its turn comes.
    pub(crate) fn want(&self, hold: Arc<Hold>) {
        lock(&self.line).waiting.push_back(hold);
    }

    /// Whose turn it is, if there is room.
    pub(crate) fn next(&self) -> Option<(Arc<Hold>, Turn)> {
        let mut line = lock(&self.line);
        if line.under_way >= AT_ONCE {
            return None;
        }
        let hold = line.waiting.pop_front()?;
        line.under_way += 1;
        let turn = Turn {
            line: Arc::clone(&self.line),
            schedule: Arc::clone(&self.schedule),
        };
        Some((hold, turn))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = lock(&self.line);
        line.under_way -= 1;
        // Not at every one: the keeper then begins many at once, which the nodes answer as cheaply.
        let call = line.under_way <= AT_ONCE / 2 && !line.waiting.is_empty();
        drop(line);
        if call {
            self.schedule.nudge();
        }
    }
}
