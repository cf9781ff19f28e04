//! What callers want of a node and has not been sent yet. A node that cannot be talked to costs a
//! vote and never a wait: what cannot be sent soon is answered at once.

use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::clock::Clock;
use crate::group::Group;
use crate::node::backlog::{Backlog, Kind};
use crate::node::{Call, CallError, Completion, Facts, InitMode, Trouble};
use crate::time::Timestamp;

/// The most calls in one batch, so that one batch does not occupy a server for long.
pub(super) const BATCH_MAX: usize = 256;

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
    fn kind(&self) -> Kind {
        match self {
            Self::Call(call) => Kind::of(&call.request),
            Self::Control(_) | Self::Listen => Kind::Control,
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
}

impl Work {
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
pub(super) struct Queue {
    arriving: UnboundedReceiver<Work>,
    /// Taken in, but not sent yet.
    held: Backlog<Work>,
    /// Nobody is left who could send more.
    closed: bool,
    /// The group that the node was last told to join, so that it can be joined again.
    group: Option<Group>,
    clock: Clock,
}

impl Queue {
    pub(super) fn new(arriving: UnboundedReceiver<Work>, clock: Clock) -> Self {
        Self {
            arriving,
            held: Backlog::default(),
            closed: false,
            group: None,
            clock,
        }
    }

    /// The group that the node is to be a member of.
    pub(super) fn group(&self) -> Option<Group> {
        self.group
    }

    /// From now on the node is to be a member of `group`.
    pub(super) fn set_group(&mut self, group: Group) {
        self.group = Some(group);
    }

    /// The next work, or `None` if there will never be more. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Work> {
        self.take_in();
        match self.held.pop() {
            Some(work) => Some(work),
            None => self.arrive().await,
        }
    }

    /// The next work that is there already.
    pub(super) fn try_next(&mut self) -> Option<Work> {
        self.take_in();
        match self.held.pop() {
            Some(work) => Some(work),
            None => {
                let work = self.arriving.try_recv().ok()?;
                self.note(&work);
                Some(work)
            }
        }
    }

    /// Takes in all that has arrived, if that is more than one batch takes, so that releases can go
    /// first. Otherwise it goes out together anyway, and need not be sorted.
    fn take_in(&mut self) {
        if self.held.is_empty() && self.arriving.len() <= BATCH_MAX {
            return;
        }
        while let Ok(work) = self.arriving.try_recv() {
            self.note(&work);
            self.hold(work);
        }
    }

    fn hold(&mut self, work: Work) {
        let kind = work.kind();
        self.held.push(work, kind);
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
            if self.closed && self.held.is_empty() {
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
    use std::sync::Arc;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::clock::SteppedClock;
    use crate::message::{Op, PlainAcquire, Reply, Request};
    use crate::node::Deliver;
    use crate::token::{TOKEN_ENTROPY_BYTES, Token};

    struct Nobody;

    impl Deliver<Reply> for Nobody {
        fn deliver(&self, _: u64, _: Result<Reply, CallError>) {}
    }

    fn call(who: usize, op: Op) -> Work {
        let mut entropy = [0; TOKEN_ENTROPY_BYTES];
        entropy[..8].copy_from_slice(&(who as u64).to_le_bytes());
        let request = Request {
            claims: Arc::from([]),
            token: Token::from_entropy(entropy),
            op,
        };
        Work::Call(Call {
            request: Arc::new(request),
            expires: Timestamp::from_nanos(u64::MAX),
            done: Completion::new(Arc::new(Nobody), 0),
        })
    }

    fn is_release(work: &Work) -> bool {
        matches!(work, Work::Call(call) if matches!(call.request.op, Op::PlainRelease))
    }

    /// Of `flood` acquires and a release behind them, at which place the release comes.
    fn place_of_release(flood: usize, of: usize) -> usize {
        let (to, arriving) = unbounded_channel();
        let clock = Clock::Stepped(SteppedClock::starting_at(Duration::from_secs(1)));
        let mut queue = Queue::new(arriving, clock);
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
