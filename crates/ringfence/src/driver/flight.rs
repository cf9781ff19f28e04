//! One round under way: a machine that replies are fed to as they arrive, by whoever brings them.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Poll, Waker};

use crate::message::Reply;
use crate::node::{CallError, Deliver};
use crate::protocol::{Attempt, LatchRound};
use crate::time::Timestamp;

use super::hold::Hold;
use super::round::Round;
use super::{Driver, lock};

/// What is known once a reply has been taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News {
    pub(crate) now: Timestamp,
    /// It brought the verdict. Of all the replies to a round, however many come at once, one did at
    /// most.
    pub(crate) decisive: bool,
}

/// A round under way.
pub(crate) struct Flight<R> {
    pub(crate) driver: Arc<Driver>,
    sent: Timestamp,
    state: Mutex<State<R>>,
    /// The hold that was won in this round, and wants to know when all votes are in.
    heir: OnceLock<Weak<Hold>>,
}

struct State<R> {
    round: R,
    /// Somebody has been told that there is a verdict.
    decided: bool,
    waker: Option<Waker>,
    /// Of whoever waits for the last answer.
    last: Option<Waker>,
    /// It counts among the attempts that were won before every node had answered.
    straggling: bool,
}

impl<R: Round> State<R> {
    /// Whether there is a verdict for the first time, and if there is one, who is to be woken.
    fn decide(&mut self) -> (bool, Option<Waker>) {
        if self.round.verdict().is_none() {
            return (false, None);
        }
        let decisive = !std::mem::replace(&mut self.decided, true);
        (decisive, self.waker.take())
    }
}

impl<R: Round> Flight<R> {
    /// A round of which the first request leaves at `sent`.
    pub(crate) fn new(driver: &Arc<Driver>, round: R, sent: Timestamp) -> Self {
        Self {
            driver: Arc::clone(driver),
            sent,
            state: Mutex::new(State {
                round,
                decided: false,
                waker: None,
                last: None,
                straggling: false,
            }),
            heir: OnceLock::new(),
        }
    }

    /// Looks into the round.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut R) -> T) -> T {
        look(&mut lock(&self.state).round)
    }

    /// Takes one reply: learns from it, feeds the machine, and returns whatever `then` makes of
    /// the machine. Wakes the waiting caller once there is a verdict, and only then.
    pub(crate) fn take<T>(
        &self,
        node: usize,
        outcome: Result<Reply, CallError>,
        then: impl FnOnce(&mut R, News) -> T,
    ) -> T {
        let now = self.driver.clock.now();
        let discount = self.driver.hear(node, &outcome, self.sent, now);
        let mut state = lock(&self.state);
        state.round.handle_reply(node, outcome, discount, now);
        let (decisive, waker) = state.decide();
        let made = then(&mut state.round, News { now, decisive });
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        made
    }

    /// Tells the machine that time has passed. Whether that brought the verdict.
    pub(crate) fn time_out(&self) -> bool {
        let now = self.driver.clock.now();
        let mut state = lock(&self.state);
        state.round.handle_timeout(now);
        let silent = state.round.silent();
        let (decisive, waker) = state.decide();
        drop(state);
        if !silent.is_empty() {
            let mut cluster = self.driver.cluster();
            for node in silent {
                cluster.silent(node);
            }
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        decisive
    }

    /// Waits for the verdict; `time_out` is called when the machine's own timeout has come. May be
    /// dropped at any time; the round goes on without its caller.
    pub(crate) async fn verdict(&self, time_out: impl Fn()) -> R::Verdict {
        loop {
            let Some(timeout) = self.with(|round| round.poll_timeout()) else {
                return self.concluded().await;
            };
            tokio::select! {
                biased;
                verdict = self.concluded() => return verdict,
                () = self.driver.schedule.sleep_until(timeout, &self.driver.clock) => time_out(),
            }
        }
    }

    /// Waits for the verdict of a round that somebody else tells when time has passed.
    pub(crate) async fn concluded(&self) -> R::Verdict {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            match state.round.verdict() {
                Some(verdict) => Poll::Ready(verdict),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<R> fmt::Debug for Flight<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flight({:?})", self.sent)
    }
}

impl Flight<Attempt> {
    /// The attempt was won: nodes that have not answered are counted until they have.
    pub(crate) fn won(&self) {
        let mut state = lock(&self.state);
        if !state.round.is_complete() {
            state.straggling = true;
            self.driver.straggling.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Has `hold` told when all votes are in.
    pub(crate) fn left_to(&self, hold: &Arc<Hold>) {
        // An attempt is won once.
        let _ = self.heir.set(Arc::downgrade(hold));
    }

    /// Completes once every node has answered, which may be never.
    pub(crate) async fn answered(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if state.round.is_complete() {
                return Poll::Ready(());
            }
            state.last = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Deliver<Reply> for Flight<Attempt> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        let complete = self.take(tag as usize, outcome, |attempt, _| attempt.is_complete());
        if !complete {
            return;
        }
        let mut state = lock(&self.state);
        let last = state.last.take();
        let straggled = std::mem::take(&mut state.straggling);
        drop(state);
        if let Some(waker) = last {
            waker.wake();
        }
        if straggled {
            self.driver.straggled();
        }
        if let Some(hold) = self.heir.get().and_then(Weak::upgrade) {
            hold.votes_are_in();
        }
    }
}

impl Deliver<Reply> for Flight<LatchRound> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        self.take(tag as usize, outcome, |_, _| ());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::clock::{Clock, SteppedClock};
    use crate::node::memory::MemoryNode;
    use crate::node::{Node, Trouble, TroubleKind};
    use crate::protocol::{Drift, Extension};

    const NODES: usize = 5;

    #[test]
    fn of_replies_that_come_at_once_one_brings_the_verdict() {
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let node = || Arc::new(MemoryNode::new("m")) as Arc<dyn Node>;
        let nodes = (0..NODES).map(|_| node()).collect();
        let driver = Driver::of_group(nodes, clock.clone());
        for _ in 0..200 {
            let (now, second) = (clock.now(), Duration::from_secs(1));
            let round = Extension::new(NODES, now, second, Drift::default(), second);
            let flight = Flight::new(&driver, round, now);
            let together = Barrier::new(NODES);
            let deliver = &|node| {
                together.wait();
                let trouble = Trouble::new(TroubleKind::Disconnected, "gone");
                let lost = Err(CallError::Unknown(trouble));
                flight.take(node, lost, |_, news| usize::from(news.decisive))
            };
            let decisive: usize = thread::scope(|scope| {
                let all: Vec<_> = (0..NODES)
                    .map(|n| scope.spawn(move || deliver(n)))
                    .collect();
                all.into_iter().map(|one| one.join().unwrap()).sum()
            });
            assert_eq!(decisive, 1);
            assert!(!flight.time_out(), "nor does the timeout afterwards");
        }
    }
}
