//! One `lock()` call: a loop of attempts. Every attempt that does not win is undone, also when the
//! caller's future is dropped. What to try next is decided by `protocol::Acquisition`. Also limits how
//! many callers of one client ask the nodes for the same name ([`LocalContention`]).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::message::{Claim, Kind, Mode, Reply};
use crate::name::Name;
use crate::node::Deliver;
use crate::protocol::{
    AcquireFailure, AcquireTerms, Acquisition, Asked, Attempt, FailureKind, GrantId, Next,
    QueueHint, RoundMachine, ceil_secs,
};
use crate::time::Timestamp;

use super::closing::Refusal;
use super::queued::Queued;
use super::releasing::{Releasing, UndoOf};
use super::sender::PendingRound;
use super::surplus_slots::SurplusSlots;
use super::ticket::TicketReplies;
use super::waiter::{Waiter, Woken};
use super::{ClientRuntime, lock};

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

/// Acquires `wanted` for a call that has `begun`. Dropping the future undoes what the nodes may have stored.
pub(crate) async fn acquire(
    runtime: &Arc<ClientRuntime>,
    wanted: &AcquireRequest,
    begun: Timestamp,
    mut on_lost: impl FnMut(&Attempt, Timestamp),
) -> Result<WonAttempt, Refusal<FailureKind>> {
    // An embedded node may answer at once: a task that locks in a loop would let no other task run.
    tokio::task::consume_budget().await;
    let (clock, entropy) = (&runtime.sender.clock, &runtime.entropy);
    let mut local = wanted.join(runtime);
    if let Some(local) = &mut local
        && !local.may_ask(runtime, wanted.patience(begun)).await
    {
        return Err(Refusal::Failed(AcquireFailure::unasked()));
    }
    let (seed, token) = entropy.seed_and_token().map_err(Refusal::NoEntropy)?;
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
            return Err(runtime.closing.refusal());
        }
        let fresh = match first.take() {
            Some(token) => token,
            None => entropy.token().map_err(Refusal::NoEntropy)?,
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
            return Err(runtime.closing.refusal());
        }
        let (at, wake_at, stays) = match pending.conclude(&mut acquisition, &mut on_lost) {
            Next::Granted { deadline } => {
                flush.granted = true;
                return Ok(pending.keep(deadline));
            }
            Next::GiveUp(failure) => return Err(Refusal::Failed(failure)),
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
            () = runtime.closing.begun() => return Err(runtime.closing.refusal()),
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
        let hint = match contended && self.terms.kind != Kind::Slot {
            true => QueueHint::Awaited,
            false => QueueHint::Unknown,
        };
        acquisition.in_queue(hint)
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

/// How many callers of one name may ask the nodes at the same time while callers of it give up,
/// undos included. Two are enough to hand a lock over without a pause. With more, callers wait so
/// long in the queue of the nodes that many give up there.
const ASKING_MAX: usize = 4;

/// The callers of one client that want the same name.
///
/// If there is another caller, the first attempt carries a ticket at once: the nodes need not report
/// first that the lock is held.
///
/// While callers of a name give up, only a few of them ask the nodes at the same time. A caller that
/// gives up costs each node as much as a caller that gets the lock. If many tasks wait for a few
/// milliseconds each, the nodes would be busy with undos and could grant almost nothing. The others
/// wait here, where giving up costs nothing. The caller that came last goes first: the others are
/// about to give up. None waits here for longer than a call to a node may take, so a caller with
/// patience soon gets into the queue of the nodes, which is fair.
#[derive(Debug, Default)]
pub(crate) struct LocalContention {
    names: Mutex<HashMap<Name, NameCallers>>,
}

/// The callers of one name.
#[derive(Debug, Default)]
struct NameCallers {
    /// Callers of the exclusive lock.
    exclusive: usize,
    /// Callers that may ask the nodes. Counted at the first name that they want.
    asking: usize,
    /// Callers that wait until they may.
    waiting: usize,
    /// Undos of callers that gave up, which no majority has confirmed.
    undos: usize,
    /// When a majority of the nodes last confirmed an undo.
    confirmed: Option<Timestamp>,
    /// Wakes the callers that wait.
    turn: Option<Arc<Notify>>,
}

impl NameCallers {
    /// Whether a caller that arrives now may ask at once.
    fn lets_pass(&self) -> bool {
        self.undos + self.waiting == 0 || self.has_room()
    }

    fn has_room(&self) -> bool {
        self.asking + self.undos < ASKING_MAX
    }

    /// What wakes the next caller, if it may ask now.
    fn next(&self) -> Option<Arc<Notify>> {
        self.turn
            .clone()
            .filter(|_| self.waiting > 0 && self.has_room())
    }

    fn is_unused(&self) -> bool {
        self.exclusive + self.asking + self.waiting + self.undos == 0
    }
}

/// One of these callers. Dropping it removes the caller.
#[derive(Debug)]
pub(crate) struct ContentionEntry<'a> {
    contention: &'a LocalContention,
    claims: &'a [Claim],
    /// Whether another caller of this client was already acquiring one of its names.
    pub(crate) contended: bool,
    /// Whether it may ask the nodes.
    asks: bool,
}

/// How long a caller waits until it may ask the nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnLimits {
    /// When the call's own wait ends.
    pub(crate) gives_up_at: Option<Timestamp>,
    /// After so long it asks in any case: the callers before it may wait for something that takes
    /// longer, such as nodes that do not answer.
    pub(crate) longest: Duration,
}

impl LocalContention {
    /// Adds a caller of `claims`. Shared claims are no contention: readers do not block each other.
    /// A caller that does not `wait` asks at once.
    pub(crate) fn join<'a>(&'a self, claims: &'a [Claim], waits: bool) -> ContentionEntry<'a> {
        let mut names = lock(&self.names);
        let (mut contended, mut asks) = (false, true);
        for (claim, is_first) in counted(claims) {
            let callers = names.entry(claim.name.clone()).or_default();
            if claim.mode == Mode::Exclusive {
                contended |= callers.exclusive > 0;
                callers.exclusive += 1;
            }
            if is_first {
                asks = !waits || callers.lets_pass();
                match asks {
                    true => callers.asking += 1,
                    false => callers.waiting += 1,
                }
            }
        }
        ContentionEntry {
            contention: self,
            claims,
            contended,
            asks,
        }
    }

    /// The undo of a caller of `name` that gave up was sent.
    pub(super) fn undo_sent(&self, name: &Name) {
        let mut names = lock(&self.names);
        names.entry(name.clone()).or_default().undos += 1;
    }

    /// Such an undo has ended: a majority of the nodes `confirmed` it at that time, or its lease has
    /// ended.
    pub(super) fn undo_ended(&self, name: &Name, confirmed: Option<Timestamp>) {
        self.change(name, |callers| {
            callers.undos = callers.undos.saturating_sub(1);
            callers.confirmed = callers.confirmed.max(confirmed);
        });
    }

    /// Changes the callers of `name`, and wakes the next one that waits if it may ask now.
    fn change<T>(&self, name: &Name, change: impl FnOnce(&mut NameCallers) -> T) -> Option<T> {
        let mut names = lock(&self.names);
        let callers = names.get_mut(name)?;
        let changed = change(callers);
        let next = callers.next();
        if callers.is_unused() {
            names.remove(name);
        }
        drop(names);
        if let Some(next) = next {
            next.notify_last();
        }
        Some(changed)
    }
}

impl ContentionEntry<'_> {
    /// Waits until the caller may ask the nodes. Returns false if its own wait ended before,
    /// although the nodes answer: then other callers of this client were in its way.
    pub(crate) async fn may_ask(&mut self, runtime: &ClientRuntime, patience: TurnLimits) -> bool {
        if self.asks {
            return true;
        }
        let clock = &runtime.sender.clock;
        let latest = clock.now() + patience.longest;
        let until = patience.gives_up_at.map_or(latest, |at| at.min(latest));
        let turn = self.change(|callers| Arc::clone(callers.turn.get_or_insert_default()));
        let turn = turn.unwrap_or_default();
        loop {
            let notified = turn.notified();
            tokio::pin!(notified);
            // Before the check, so that no notification in between is missed.
            notified.as_mut().enable();
            if self.pass(NameCallers::has_room) {
                return true;
            }
            tokio::select! {
                biased;
                () = notified => {}
                () = runtime.schedule.sleep_until(until, clock) => break,
                () = runtime.closing.begun() => break,
            }
        }
        let gives_up = patience.gives_up_at == Some(until);
        let answer = |at: Timestamp| at + patience.longest >= until;
        self.pass(|callers| !(gives_up && callers.confirmed.is_some_and(answer)))
    }

    /// Lets the caller ask, if `may`.
    fn pass(&mut self, may: impl FnOnce(&NameCallers) -> bool) -> bool {
        let passes = self.change(|callers| {
            let may = may(callers);
            if may {
                callers.waiting = callers.waiting.saturating_sub(1);
                callers.asking += 1;
            }
            may
        });
        self.asks = passes.unwrap_or(true);
        self.asks
    }

    fn change<T>(&self, change: impl FnOnce(&mut NameCallers) -> T) -> Option<T> {
        let claim = self.claims.first()?;
        self.contention.change(&claim.name, change)
    }
}

impl Drop for ContentionEntry<'_> {
    fn drop(&mut self) {
        for (claim, is_first) in counted(self.claims) {
            self.contention.change(&claim.name, |callers| {
                callers.exclusive -= usize::from(claim.mode == Mode::Exclusive);
                match (is_first, self.asks) {
                    (true, true) => callers.asking -= 1,
                    (true, false) => callers.waiting -= 1,
                    (false, _) => {}
                }
            });
        }
    }
}

/// The claims at whose names a caller is counted: the exclusive ones and the first.
fn counted(claims: &[Claim]) -> impl Iterator<Item = (&Claim, bool)> {
    let claims = claims.iter().zip(0..);
    claims
        .map(|(claim, index)| (claim, index == 0))
        .filter(|(claim, is_first)| *is_first || claim.mode == Mode::Exclusive)
}

#[cfg(test)]
mod tests;
