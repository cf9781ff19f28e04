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

/// A round under way.
pub(crate) struct Flight<R> {
    pub(crate) driver: Arc<Driver>,
    sent: Timestamp,
    state: Mutex<State<R>>,
    /// The hold that was won in this round before all nodes had answered.
    heir: OnceLock<Weak<Hold>>,
}

struct State<R> {
    round: R,
    waker: Option<Waker>,
    /// Of whoever waits for the last answer.
    last: Option<Waker>,
    /// It counts among the attempts that were won before every node had answered.
    straggling: bool,
}

impl<R: Round> State<R> {
    /// Who is to be woken, if there is a verdict.
    fn waker_if_decided(&mut self) -> Option<Waker> {
        self.round.verdict().and_then(|_| self.waker.take())
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
        then: impl FnOnce(&mut R, Timestamp) -> T,
    ) -> T {
        let now = self.driver.clock.now();
        let discount = self.driver.hear(node, &outcome, self.sent, now);
        let mut state = lock(&self.state);
        state.round.handle_reply(node, outcome, discount, now);
        let waker = state.waker_if_decided();
        let made = then(&mut state.round, now);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        made
    }

    /// Tells the machine that time has passed.
    pub(crate) fn time_out(&self) {
        let now = self.driver.clock.now();
        let mut state = lock(&self.state);
        state.round.handle_timeout(now);
        let silent = state.round.silent();
        let waker = state.waker_if_decided();
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

    /// Has `hold` told of every answer from now on.
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
        if let Some(hold) = self.heir.get().and_then(Weak::upgrade) {
            hold.hear_acquire(self);
        }
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
    }
}

impl Deliver<Reply> for Flight<LatchRound> {
    fn deliver(&self, tag: u64, outcome: Result<Reply, CallError>) {
        self.take(tag as usize, outcome, |_, _| ());
    }
}
