//! One `lock()` call: a loop of attempts. Every attempt that does not win is undone, also when the
//! caller's future is dropped. What to try next is decided by `protocol::Acquisition`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::message::{Claim, Kind, Reply};
use crate::node::Deliver;
use crate::protocol::{
    AcquireFailure, AcquireTerms, Acquisition, Asked, Attempt, GrantId, Next, QueueHint, ceil_secs,
};
use crate::time::Timestamp;

use super::ClientRuntime;
use super::contention::{ContentionEntry, TurnLimits};
use super::queued::Queued;
use super::releasing::{Releasing, UndoOf};
use super::sender::PendingRound;
use super::surplus_slots::SurplusSlots;
use super::ticket::TicketReplies;
use super::waiter::{Waiter, Woken};

/// Which lock a caller wants, and on which terms.
#[derive(Debug, Clone)]
pub(crate) struct AcquireRequest {
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) label: Arc<str>,
    /// After the TTL the nodes refuse other clients for this much longer.
    pub(crate) delay: Duration,
    pub(crate) terms: AcquireTerms,
}

/// An attempt that won. Late votes still arrive in its round.
#[derive(Debug)]
pub(crate) struct WonAttempt {
    pub(crate) round: Arc<PendingRound<Attempt>>,
    pub(crate) id: GrantId,
    pub(crate) deadline: Timestamp,
}

/// Why the caller got no grant.
#[derive(Debug)]
pub(crate) enum AcquireRefusal {
    Failed(AcquireFailure),
    Closed,
    /// The tokio runtime of the client has ended.
    RuntimeGone,
    NoEntropy(getrandom::Error),
}

impl AcquireRefusal {
    /// The refusal of a client that is closed or whose tokio runtime has ended.
    fn closed(runtime: &ClientRuntime) -> Self {
        match runtime.closing.is_runtime_gone() {
            false => Self::Closed,
            true => Self::RuntimeGone,
        }
    }
}

/// Acquires `wanted` for a call that has `begun`. Dropping the future undoes what the nodes may have stored.
pub(crate) async fn acquire(
    runtime: &Arc<ClientRuntime>,
    wanted: &AcquireRequest,
    begun: Timestamp,
    mut on_lost: impl FnMut(&Attempt, Timestamp),
) -> Result<WonAttempt, AcquireRefusal> {
    // An embedded node may answer at once: a task that locks in a loop would let no other task run.
    tokio::task::consume_budget().await;
    let (clock, entropy) = (&runtime.sender.clock, &runtime.entropy);
    let mut local = wanted.join(runtime);
    if let Some(local) = &mut local
        && !local.may_ask(runtime, wanted.patience(begun)).await
    {
        return Err(AcquireRefusal::Failed(AcquireFailure::unasked()));
    }
    let (seed, token) = entropy
        .seed_and_token()
        .map_err(AcquireRefusal::NoEntropy)?;
    // Declared before the attempts, so dropped after the undo of the last one was sent.
    let mut flush = FlushUnlessGranted {
        runtime,
        granted: false,
    };
    let mut first = Some(token);
    let mut acquisition = wanted.begin(local.as_ref(), seed, begun);
    let mut queued: Option<Queued> = None;
    loop {
        if runtime.closing.closed.load(Ordering::SeqCst) {
            return Err(AcquireRefusal::closed(runtime));
        }
        let fresh = match first.take() {
            Some(token) => token,
            None => entropy.token().map_err(AcquireRefusal::NoEntropy)?,
        };
        acquisition = wanted.with_ticket(acquisition, runtime);
        // t0 is read here, before the first send of each attempt.
        let attempt = acquisition.begin(&mut runtime.sender.cluster(), clock.now(), fresh);
        if attempt.ticket().is_some() || queued.is_some() {
            let queued = queued.get_or_insert_with(|| Queued::new(runtime, wanted));
            queued.begin_attempt(attempt.ticket());
        }
        let waiter = queued.as_ref().and_then(|queued| queued.waiter.as_ref());
        let mut pending = PendingAttempt::begin(runtime, wanted, attempt, waiter);
        if pending.round.verdict().await.is_none() {
            return Err(AcquireRefusal::closed(runtime));
        }
        let (at, wake_at, stays) = match pending.conclude(&mut acquisition, &mut on_lost) {
            Next::Granted { deadline } => {
                flush.granted = true;
                return Ok(pending.keep(deadline));
            }
            Next::GiveUp(failure) => return Err(AcquireRefusal::Failed(failure)),
            Next::Retry { at, wake_at, stays } => (at, wake_at, stays),
        };
        pending.stays = stays;
        let queued = queued.get_or_insert_with(|| Queued::new(runtime, wanted));
        queued.end_attempt(stays);
        tokio::select! {
            biased;
            woken = queued.wait_for_wake(at, wake_at, pending) => {
                if let Some(Woken { slot }) = woken {
                    acquisition.woken_for(slot);
                }
            }
            () = runtime.closing.begun() => return Err(AcquireRefusal::closed(runtime)),
        }
    }
}

impl AcquireRequest {
    /// How long the nodes keep the lock. The holder may rely on the TTL only.
    pub(crate) fn lease(&self) -> Duration {
        self.terms.ttl.saturating_add(self.delay)
    }

    /// Gives the call a ticket, if it needs one now.
    fn with_ticket(&self, acquisition: Acquisition, runtime: &ClientRuntime) -> Acquisition {
        match acquisition.needs_ticket() {
            true => acquisition.with_ticket(runtime.room.new_ticket_id(), Arc::clone(&self.label)),
            false => acquisition,
        }
    }

    /// Counts the caller among the callers of this client that want the same name.
    fn join<'a>(&'a self, runtime: &'a ClientRuntime) -> Option<ContentionEntry<'a>> {
        let has_record = self.terms.kind.has_record();
        has_record.then(|| runtime.contention.join(&self.claims, self.uses_queue()))
    }

    /// How long the caller waits for others of this client before it asks the nodes.
    fn patience(&self, begun: Timestamp) -> TurnLimits {
        TurnLimits {
            gives_up_at: self.terms.wait.map(|wait| begun + wait),
            longest: self.terms.call_timeout,
        }
    }

    /// The machine of this call. `local`: the caller among the other callers of this client.
    fn begin(&self, local: Option<&ContentionEntry>, seed: u64, begun: Timestamp) -> Acquisition {
        let acquisition = Acquisition::new(self.terms, begun, seed);
        if !self.uses_queue() {
            return acquisition;
        }
        let contended = local.is_some_and(|local| local.contended);
        let line = match contended && self.terms.kind != Kind::Slot {
            true => QueueHint::Awaited,
            false => QueueHint::Unknown,
        };
        acquisition.in_queue(line)
    }

    /// Whether the caller enters the wait queue. A caller that may try only once does not wait.
    fn uses_queue(&self) -> bool {
        let waits = self.terms.wait.is_none_or(|wait| !wait.is_zero());
        waits && self.terms.kind.has_record() && self.terms.attempts != Some(1)
    }
}

/// A call that ends without a grant flushes the nodes only while no more undos than this are
/// unconfirmed. With more the connections are busy, and a flush of each would keep them from reading
/// replies and from sending many calls together.
const FLUSHED_UNDOS_MAX: usize = 4;

/// Flushes the nodes if the call ends without a grant, also when its future is dropped: the undo is
/// sent even if the process ends right after.
struct FlushUnlessGranted<'a> {
    runtime: &'a Arc<ClientRuntime>,
    granted: bool,
}

impl Drop for FlushUnlessGranted<'_> {
    fn drop(&mut self) {
        let closing = &self.runtime.closing;
        if !self.granted
            && closing.releasing.load(Ordering::SeqCst) > 0
            && closing.unconfirmed.load(Ordering::SeqCst) <= FLUSHED_UNDOS_MAX
        {
            self.runtime.sender.flush();
        }
    }
}

/// An attempt in progress. Dropping it undoes it, unless it was kept.
pub(super) struct PendingAttempt<'a> {
    runtime: &'a Arc<ClientRuntime>,
    wanted: &'a AcquireRequest,
    pub(super) round: Arc<PendingRound<Attempt>>,
    /// Receives the replies if a node may grant this attempt another slot than the one it wins.
    surplus: Option<Arc<SurplusSlots>>,
    /// The waiter whose ticket the attempt carries.
    waiter: Option<Arc<Waiter>>,
    kept: bool,
    /// The attempt lost and the caller will retry: its ticket stays in the queue.
    stays: bool,
}

impl<'a> PendingAttempt<'a> {
    fn begin(
        runtime: &'a Arc<ClientRuntime>,
        wanted: &'a AcquireRequest,
        attempt: Attempt,
        waiter: Option<&Arc<Waiter>>,
    ) -> Self {
        let request = attempt.request(&wanted.claims, wanted.lease(), &wanted.label);
        let t0 = attempt.t0();
        let expires = attempt.poll_timeout().unwrap_or(t0);
        let surplus = attempt.asked() == Some(Asked::Any)
            || attempt.asked().is_some() && attempt.ticket().is_some();
        let waiter = waiter.filter(|_| attempt.ticket().is_some()).cloned();
        let round = Arc::new(PendingRound::new(runtime, attempt, t0));
        let surplus = surplus.then(|| Arc::new(SurplusSlots::new(runtime, &round, expires)));
        // Built before the first send, so that a panic in a node also leads to an undo.
        let pending = Self {
            runtime,
            wanted,
            round,
            surplus,
            waiter,
            kept: false,
            stays: false,
        };
        runtime.closing.attempting.fetch_add(1, Ordering::SeqCst);
        let mut to = match &pending.surplus {
            Some(surplus) => Arc::clone(surplus) as Arc<dyn Deliver<Reply>>,
            None => Arc::clone(&pending.round) as Arc<dyn Deliver<Reply>>,
        };
        if let Some(waiter) = &pending.waiter {
            let undoes_late = pending.surplus.is_some();
            to = Arc::new(TicketReplies::new(runtime, waiter, to, undoes_late));
        }
        to = runtime.sender.observation.traced(&request, to);
        runtime.sender.send_all(request, expires, &to);
        pending
    }

    /// What the verdict means for the call. `on_lost` observes an attempt that will be retried.
    fn conclude(
        &self,
        acquisition: &mut Acquisition,
        on_lost: &mut impl FnMut(&Attempt, Timestamp),
    ) -> Next {
        let sender = &self.runtime.sender;
        self.round.with(|attempt| {
            let next = acquisition.conclude(attempt, &sender.cluster(), sender.clock.now());
            if let Next::Retry { at, .. } = next {
                on_lost(attempt, at);
                self.warn_of_fence(acquisition.take_fence_ahead());
            }
            next
        })
    }

    /// A clock that was set back makes a free lock unavailable: says so, and for how long.
    fn warn_of_fence(&self, ahead: Option<Duration>) {
        if let (Some(left), Some(claim)) = (ahead, self.wanted.claims.first()) {
            tracing::warn!(
                target: "ringfence",
                name = %claim.name,
                seconds = ceil_secs(left),
                "the fence is ahead of the nodes' clocks: a clock was set back, and nobody gets the \
                 lock until the clocks have caught up"
            );
        }
    }

    fn keep(mut self, deadline: Timestamp) -> WonAttempt {
        self.kept = true;
        self.round.won();
        let (mut id, slot) = self
            .round
            .with(|attempt| (attempt.grant_id(&self.wanted.claims), attempt.slot()));
        if let Some(waiter) = &self.waiter {
            let surplus = match &self.surplus {
                Some(_) => self.round.with(|attempt| attempt.surplus_slots()),
                None => Vec::new(),
            };
            waiter.granted(self.runtime, &surplus, self.wanted.terms.call_timeout);
        }
        if let Some(slot) = slot {
            if let Some(surplus) = &self.surplus {
                surplus.won(id.clone().without_slot(slot), self.wanted);
            }
            id = id.with_slot(slot);
        }
        WonAttempt {
            round: Arc::clone(&self.round),
            id,
            deadline,
        }
    }

    fn undo(&self) {
        let (targets, id) = self.round.with(|attempt| {
            let leaves = !self.stays && attempt.ticket().is_some();
            let targets = match leaves {
                false => attempt.remains(),
                true => attempt.remaining_tickets(),
            };
            (targets, attempt.grant_id(&self.wanted.claims))
        });
        let waiter = self.waiter.as_ref().filter(|_| !self.stays);
        let had_ticket = waiter.map_or(Vec::new(), |waiter| waiter.undone_on(&targets));
        let (lease, call_timeout) = (self.wanted.lease(), self.wanted.terms.call_timeout);
        let of = match (&self.waiter, self.stays) {
            (Some(waiter), true) => UndoOf::Waiting(Arc::clone(waiter)),
            (None, true) => UndoOf::Live,
            (_, false) => UndoOf::Abandoned {
                round: Arc::clone(&self.round),
                had_ticket,
            },
        };
        Releasing::undo(self.runtime, &id, targets, lease, call_timeout, of);
    }
}

impl Drop for PendingAttempt<'_> {
    fn drop(&mut self) {
        if !self.kept {
            if !self.stays {
                // Before the undo is sent: a node that has written neither drops both.
                self.round.abandon();
            }
            self.undo();
        }
        // Last, so that `Locks::close`, which waits for this counter, finds the undo begun.
        let closing = &self.runtime.closing;
        if closing.attempting.fetch_sub(1, Ordering::SeqCst) == 1 {
            closing.attempts_ended.notify_waiters();
        }
    }
}
