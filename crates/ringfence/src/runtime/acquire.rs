//! One `lock()` call: a loop of attempts. Every attempt that does not win is undone, also when the
//! caller's future is dropped. What to try next is decided by `protocol::Acquisition`.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::{Claim, Kind, Mode, Reply};
use crate::name::Name;
use crate::node::Deliver;
use crate::protocol::{
    AcquireFailure, AcquireTerms, Acquisition, Asked, Attempt, GrantId, Next, QueueHint, ceil_secs,
};
use crate::time::Timestamp;

use super::queued::Queued;
use super::releasing::Releasing;
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
    let (seed, token) = entropy
        .seed_and_token()
        .map_err(AcquireRefusal::NoEntropy)?;
    // Declared first, so dropped last: after the undo of the last attempt was sent.
    let mut flush = FlushUnlessGranted {
        runtime,
        granted: false,
    };
    let mut first = Some(token);
    let has_record = wanted.terms.kind.has_record();
    let local = has_record.then(|| runtime.contention.join(&wanted.claims));
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
        if acquisition.needs_ticket() {
            acquisition =
                acquisition.with_ticket(runtime.room.new_ticket_id(), Arc::clone(&wanted.label));
        }
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

/// Flushes the nodes if the call ends without a grant, also when its future is dropped: the undo is
/// sent even if the process ends right after.
struct FlushUnlessGranted<'a> {
    runtime: &'a Arc<ClientRuntime>,
    granted: bool,
}

impl Drop for FlushUnlessGranted<'_> {
    fn drop(&mut self) {
        if !self.granted && self.runtime.closing.releasing.load(Ordering::SeqCst) > 0 {
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
        if let Some(waiter) = self.waiter.as_ref().filter(|_| !self.stays) {
            waiter.undone_on(&targets);
        }
        let (lease, call_timeout) = (self.wanted.lease(), self.wanted.terms.call_timeout);
        let stays = self.waiter.clone().filter(|_| self.stays);
        Releasing::undo(self.runtime, &id, targets, lease, call_timeout, stays);
    }
}

impl Drop for PendingAttempt<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.undo();
        }
        // Last, so that `Locks::close`, which waits for this counter, finds the undo begun.
        let closing = &self.runtime.closing;
        if closing.attempting.fetch_sub(1, Ordering::SeqCst) == 1 {
            closing.attempts_ended.notify_waiters();
        }
    }
}

/// How many callers of this client currently acquire each name. If there is another caller, the
/// first attempt carries a ticket at once: the nodes need not report first that the lock is held.
#[derive(Debug, Default)]
pub(crate) struct LocalContention {
    callers: Mutex<HashMap<Name, usize>>,
}

/// One of these callers. Dropping it removes the caller.
#[derive(Debug)]
pub(crate) struct ContentionEntry<'a> {
    contention: &'a LocalContention,
    claims: &'a [Claim],
    /// Whether another caller of this client was already acquiring one of its names.
    pub(crate) contended: bool,
}

impl LocalContention {
    /// Adds a caller of `claims`. Shared claims do not count: readers do not block each other.
    pub(crate) fn join<'a>(&'a self, claims: &'a [Claim]) -> ContentionEntry<'a> {
        let mut callers = lock(&self.callers);
        let mut contended = false;
        for claim in exclusive(claims) {
            let others = callers.entry(claim.name.clone()).or_default();
            contended |= *others > 0;
            *others += 1;
        }
        ContentionEntry {
            contention: self,
            claims,
            contended,
        }
    }
}

impl Drop for ContentionEntry<'_> {
    fn drop(&mut self) {
        let mut callers = lock(&self.contention.callers);
        for claim in exclusive(self.claims) {
            if let Some(all) = callers.get_mut(&claim.name) {
                *all -= 1;
                if *all == 0 {
                    callers.remove(&claim.name);
                }
            }
        }
    }
}

fn exclusive(claims: &[Claim]) -> impl Iterator<Item = &Claim> {
    let exclusive = |claim: &&Claim| claim.mode == Mode::Exclusive;
    claims.iter().filter(exclusive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims<const N: usize>(names: [&str; N], mode: Mode) -> [Claim; N] {
        names.map(|name| Claim {
            name: Name::new("", name).unwrap(),
            mode,
        })
    }

    #[test]
    fn a_second_caller_is_contended_until_the_first_has_ended() {
        let contention = LocalContention::default();
        let (one, both) = (
            claims(["a"], Mode::Exclusive),
            claims(["a", "b"], Mode::Exclusive),
        );
        let other = claims(["c"], Mode::Exclusive);
        let first = contention.join(&one);
        assert!(!first.contended);
        assert!(!contention.join(&other).contended);
        let second = contention.join(&both);
        assert!(second.contended);
        drop(first);
        assert!(
            contention.join(&one).contended,
            "the second caller is still there"
        );
        drop(second);
        assert!(!contention.join(&both).contended);
        assert!(lock(&contention.callers).is_empty());
    }

    #[test]
    fn shared_claims_are_no_contention() {
        let contention = LocalContention::default();
        let shared = claims(["a"], Mode::Shared);
        let _first = contention.join(&shared);
        assert!(!contention.join(&shared).contended);
        assert!(!contention.join(&claims(["a"], Mode::Exclusive)).contended);
    }
}
