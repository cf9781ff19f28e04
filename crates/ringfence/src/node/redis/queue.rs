//! The way from callers to the task of a node: what they want is queued until the link takes it out. A
//! node that cannot be talked to costs a vote and never a wait: what cannot be sent soon is answered at
//! once.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::SendError;

use crate::clock::Clock;
use crate::group::Group;
use crate::node::backlog::{Backlog, Urgency};
use crate::node::{
    Call, CallError, Completion, Facts, Hear, InitMode, Node, Tier, Trouble, TroubleKind,
};
use crate::time::Timestamp;

use super::RedisNode;

/// The most calls in one batch, so that one batch does not occupy a server for long.
pub(super) const BATCH_MAX: usize = 256;

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&self, call: Call) {
        self.enqueue(Work::Call(call));
    }

    /// A connection that only the client library can make is flushed by the library's own task, if
    /// that still runs.
    fn flush(&self) {
        self.member.flush();
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.listeners.add(client, to);
        self.enqueue(Work::Listen);
    }

    fn tier(&self) -> Option<Tier> {
        *self.tier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn probe(&self, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Probe(done)));
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Join(group, done)));
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.enqueue(Work::Control(Control::Init(group, mode, done)));
    }
}

impl RedisNode {
    fn enqueue(&self, work: Work) {
        // The task ends before the node does only when its runtime is shut down, or it panicked.
        if let Err(SendError(work)) = self.work.send(work) {
            if self.was_said_last(&work) {
                let what = format!(
                    "{} was told, but its reply cannot be read: the tokio runtime has ended",
                    self.name
                );
                let trouble = Trouble::new(TroubleKind::Disconnected, what);
                return work.fail(CallError::Unknown(trouble));
            }
            let what = format!(
                "{} was not asked: the task of its connection has ended, perhaps with its runtime",
                self.name
            );
            work.refuse(&CallError::NotSent(Trouble::new(
                TroubleKind::Disconnected,
                what,
            )));
        }
    }

    /// Whether `work` was written to a connection that its runtime has left behind.
    fn was_said_last(&self, work: &Work) -> bool {
        let Work::Call(call) = work else {
            return false;
        };
        let mut words = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        words.as_mut().is_some_and(|words| words.say(&call.request))
    }
}

/// Something a caller wants of a node.
#[derive(Debug)]
pub(super) enum Work {
    /// A lock operation.
    Call(Call),
    /// A matter of the node itself.
    Control(Control),
    /// Somebody new listens for wakes.
    Listen,
}

/// A matter of the node itself.
#[derive(Debug)]
pub(super) enum Control {
    Probe(Completion<Facts>),
    Join(Group, Completion<Facts>),
    Init(Group, InitMode, Completion<Facts>),
}

impl Work {
    fn urgency(&self) -> Urgency {
        match self {
            Self::Call(call) => Urgency::of(&call.request),
            Self::Control(_) | Self::Listen => Urgency::Control,
        }
    }

    /// Answers that it was not sent, because of `failure`.
    pub(super) fn refuse(self, failure: &CallError) {
        match self {
            // Whatever the server did to the handshake, it has not seen this call.
            Self::Call(call) => {
                call.done
                    .complete(Err(CallError::NotSent(failure.trouble().clone())));
            }
            Self::Control(control) => control.complete(Err(failure.clone())),
            // The next connection will subscribe to everything.
            Self::Listen => {}
        }
    }

    /// Answers with `failure`, if an answer is waited for.
    pub(super) fn fail(self, failure: CallError) {
        match self {
            Self::Call(call) => call.done.complete(Err(failure)),
            Self::Control(control) => control.complete(Err(failure)),
            Self::Listen => {}
        }
    }
}

impl Control {
    /// Delivers the answer.
    pub(super) fn complete(self, outcome: Result<Facts, CallError>) {
        match self {
            Self::Probe(done) | Self::Join(_, done) | Self::Init(_, _, done) => {
                done.complete(outcome);
            }
        }
    }
}

/// The work of one node, in the order in which it came; but if there is more than fits into a batch,
/// releases first.
pub(super) struct WorkQueue {
    arriving: UnboundedReceiver<Work>,
    /// Taken in, but not sent yet.
    held: Backlog<Work>,
    /// Nobody is left who could send more.
    closed: bool,
    /// The group that the node was last told to join, so that it can be joined again.
    pub(super) group: Option<Group>,
    clock: Clock,
}

impl WorkQueue {
    pub(super) fn new(arriving: UnboundedReceiver<Work>, clock: Clock) -> Self {
        Self {
            arriving,
            held: Backlog::default(),
            closed: false,
            group: None,
            clock,
        }
    }

    /// The next work, or `None` if there will never be more. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Work> {
        match self.next_of_many() {
            Some(work) => Some(work),
            None => self.arrive().await,
        }
    }

    /// The next work that is there already.
    pub(super) fn try_next(&mut self) -> Option<Work> {
        self.next_of_many().or_else(|| {
            let work = self.arriving.try_recv().ok()?;
            self.note(&work);
            Some(work)
        })
    }

    /// The next work, if there is more than one batch takes, so that releases can go first. Otherwise it
    /// goes out together anyway, and need not be sorted.
    fn next_of_many(&mut self) -> Option<Work> {
        if self.held.len == 0 && self.arriving.len() <= BATCH_MAX {
            return None;
        }
        self.take_in();
        self.held.pop()
    }

    /// Takes in all that has arrived.
    fn take_in(&mut self) {
        while let Ok(work) = self.arriving.try_recv() {
            self.note(&work);
            self.hold(work);
        }
    }

    fn hold(&mut self, work: Work) {
        let urgency = work.urgency();
        self.held.push(work, urgency);
    }

    /// Takes nothing more in.
    pub(super) fn close(&mut self) {
        self.arriving.close();
    }

    /// Puts `work` back to be the next.
    pub(super) fn put_back(&mut self, work: Work) {
        self.held.put_back(work);
    }

    /// Waits for `attempt` and holds what arrives meanwhile: calls for `patience` at most and never
    /// beyond their own expiry, then they are answered with `trouble`. `None` if everybody left.
    pub(super) async fn hold_during<T>(
        &mut self,
        attempt: impl Future<Output = T>,
        patience: Duration,
        trouble: &Trouble,
    ) -> Option<T> {
        tokio::pin!(attempt);
        let failure = CallError::NotSent(trouble.clone());
        let patient_until = self.clock.now() + patience;
        loop {
            if self.closed && self.held.len == 0 {
                return None;
            }
            let due = self.release_due(patient_until, &failure);
            let clock = self.clock.clone();
            tokio::select! {
                biased;
                outcome = &mut attempt => return Some(outcome),
                work = self.arrive(), if !self.closed => if let Some(work) = work {
                    self.hold(work);
                    self.take_in();
                },
                () = clock.sleep_until(due.unwrap_or(patient_until)), if due.is_some() => {}
            }
        }
    }

    /// Answers the held calls whose time is over. When the next one's will be, if there is one.
    fn release_due(&mut self, patient_until: Timestamp, failure: &CallError) -> Option<Timestamp> {
        let now = self.clock.now();
        let mut next = None;
        for work in self.held.drain() {
            let due = match &work {
                Work::Call(call) => call.expires.min(patient_until),
                // Probes and joins wait for the attempt, which is bounded itself.
                Work::Control(_) | Work::Listen => {
                    self.hold(work);
                    continue;
                }
            };
            if due <= now {
                work.refuse(failure);
            } else {
                next = Some(next.map_or(due, |next: Timestamp| next.min(due)));
                self.hold(work);
            }
        }
        next
    }

    /// Answers everything with `failure` for as long as `rest` lasts. Whether anybody is left.
    pub(super) async fn refuse_during(&mut self, rest: Duration, failure: &CallError) -> bool {
        for work in self.held.drain() {
            work.refuse(failure);
        }
        let until = self.clock.now() + rest;
        let clock = self.clock.clone();
        let rested = clock.sleep_until(until);
        tokio::pin!(rested);
        while !self.closed {
            tokio::select! {
                biased;
                work = self.arrive() => if let Some(work) = work { work.refuse(failure) },
                () = &mut rested => return true,
            }
        }
        false
    }

    async fn arrive(&mut self) -> Option<Work> {
        let work = self.arriving.recv().await;
        match &work {
            Some(work) => self.note(work),
            None => self.closed = true,
        }
        work
    }

    /// A node that is away when it is told to join must join when it comes back.
    fn note(&mut self, work: &Work) {
        if let Work::Control(Control::Join(group, _)) = work {
            self.group = Some(*group);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::clock::SteppedClock;
    use crate::message::{Op, PlainAcquire};
    use crate::node::backlog::tests::call_of;

    fn call(who: usize, op: Op) -> Work {
        Work::Call(call_of(who, op, Timestamp::from_nanos(u64::MAX)))
    }

    fn is_release(work: &Work) -> bool {
        matches!(work, Work::Call(call) if matches!(call.request.op, Op::PlainRelease))
    }

    /// Of `flood` acquires and a release behind them, at which place the release comes.
    fn place_of_release(flood: usize, of: usize) -> usize {
        let (to, arriving) = unbounded_channel();
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let mut queue = WorkQueue::new(arriving, clock);
        for who in 0..flood {
            to.send(call(who, Op::PlainAcquire(PlainAcquire { ttl_ms: 1 })))
                .unwrap();
        }
        to.send(call(of, Op::PlainRelease)).unwrap();
        let all: Vec<Work> = std::iter::from_fn(|| queue.try_next()).collect();
        assert_eq!(all.len(), flood + 1);
        all.iter().position(is_release).unwrap()
    }

    #[test]
    fn under_a_flood_a_release_goes_first() {
        assert_eq!(place_of_release(BATCH_MAX, 5_000), 0);
        assert_eq!(place_of_release(10_000, 50_000), 0);
    }

    #[test]
    fn but_never_before_the_acquire_of_its_own_token() {
        assert_eq!(place_of_release(1_000, 999), 1_000);
    }

    #[test]
    fn what_fits_into_one_batch_keeps_its_order() {
        assert_eq!(place_of_release(BATCH_MAX - 1, 5_000), BATCH_MAX - 1);
    }
}
