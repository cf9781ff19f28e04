//! One `lock()` call: attempt after attempt, each of them taken back unless it is won, whatever
//! happens to the caller.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::{Claim, Kind, Mode, Reply};
use crate::name::Name;
use crate::node::Deliver;
use crate::protocol::{Acquisition, Asked, Attempt, Failure, GrantId, Line, Next, Terms};
use crate::time::Timestamp;

use super::queued::Queued;
use super::releasing::Releasing;
use super::sender::PendingRound;
use super::strays::Strays;
use super::ticket::TicketReplies;
use super::waiter::{Waiter, Woken};
use super::{Driver, lock};

/// What is to be acquired.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) claims: Arc<[Claim]>,
    pub(crate) label: Arc<str>,
    /// For how much longer than the TTL the nodes keep it from others.
    pub(crate) delay: Duration,
    pub(crate) terms: Terms,
}

/// An attempt that was won. Late votes still arrive in its round.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) round: Arc<PendingRound<Attempt>>,
    pub(crate) id: GrantId,
    pub(crate) deadline: Timestamp,
}

/// Why there is no grant.
#[derive(Debug)]
pub(crate) enum Refusal {
    Failed(Failure),
    Closed,
    /// The client's runtime has ended.
    RuntimeGone,
    NoEntropy(getrandom::Error),
}

impl Refusal {
    /// The client was closed, one way or the other.
    fn closed(driver: &Driver) -> Self {
        match driver.closing.is_runtime_gone() {
            false => Self::Closed,
            true => Self::RuntimeGone,
        }
    }
}

/// Acquires `wanted`. Dropping the future takes back what may have been set.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    wanted: &Wanted,
    mut on_lost: impl FnMut(&Attempt, Timestamp),
) -> Result<Won, Refusal> {
    let (clock, entropy) = (&driver.sender.clock, &driver.entropy);
    let (seed, token) = entropy.seed_and_token().map_err(Refusal::NoEntropy)?;
    // Dropped last, when what was set has been taken back.
    let mut leaving = Leaving {
        driver,
        granted: false,
    };
    let mut first = Some(token);
    let has_record = wanted.terms.kind.has_record();
    let asking = has_record.then(|| driver.contention.join(&wanted.claims));
    let mut acquisition = wanted.begin(driver, asking.as_ref(), seed);
    let mut queued: Option<Queued> = None;
    loop {
        if driver.closing.closed.load(Ordering::SeqCst) {
            return Err(Refusal::closed(driver));
        }
        let fresh = match first.take() {
            Some(token) => token,
            None => entropy.token().map_err(Refusal::NoEntropy)?,
        };
        if acquisition.needs_ticket() {
            acquisition = acquisition.with_ticket(driver.room.ticket());
        }
        // t0 is read here, before the first send of each attempt.
        let attempt = acquisition.begin(&mut driver.sender.cluster(), clock.now(), fresh);
        if attempt.place().is_some() || queued.is_some() {
            let queued = queued.get_or_insert_with(|| Queued::new(driver, wanted));
            queued.step_up(attempt.place());
        }
        let waiter = queued.as_ref().and_then(|queued| queued.waiter.as_ref());
        let mut pending = PendingAttempt::begin(driver, wanted, attempt, waiter);
        if pending.round.verdict().await.is_none() {
            return Err(Refusal::closed(driver));
        }
        let next = pending.round.with(|attempt| {
            let next = acquisition.conclude(attempt, &driver.sender.cluster(), clock.now());
            if let Next::Retry { at, .. } = next {
                on_lost(attempt, at);
            }
            next
        });
        let (at, wake_at, stays) = match next {
            Next::Granted { deadline } => {
                leaving.granted = true;
                return Ok(pending.keep(deadline));
            }
            Next::GiveUp(failure) => return Err(Refusal::Failed(failure)),
            Next::Retry { at, wake_at, stays } => (at, wake_at, stays),
        };
        pending.stays = stays;
        let queued = queued.get_or_insert_with(|| Queued::new(driver, wanted));
        queued.step_back(stays);
        tokio::select! {
            biased;
            woken = queued.turn(at, wake_at, pending) => if let Some(Woken { slot }) = woken {
                acquisition.woken_for(slot);
            },
            () = driver.closing.begun() => return Err(Refusal::closed(driver)),
        }
    }
}

impl Wanted {
    /// How long the nodes keep it. What the holder may count on is the TTL alone.
    pub(crate) fn lease(&self) -> Duration {
        self.terms.ttl.saturating_add(self.delay)
    }

    /// The way to a grant, for a caller that is `asking` among others.
    fn begin(&self, driver: &Driver, asking: Option<&Asking>, seed: u64) -> Acquisition {
        let acquisition = Acquisition::new(self.terms, driver.sender.clock.now(), seed);
        if !self.waits_in_line() {
            return acquisition;
        }
        let in_company = asking.is_some_and(|asking| asking.in_company);
        let line = match in_company && self.terms.kind != Kind::Slot {
            true => Line::Awaited,
            false => Line::Unknown,
        };
        acquisition.in_line(line)
    }

    /// A caller that may try once only has nothing to wait for.
    fn waits_in_line(&self) -> bool {
        let waits = self.terms.wait.is_none_or(|wait| !wait.is_zero());
        waits && self.terms.kind.has_record() && self.terms.attempts != Some(1)
    }
}

/// A caller that leaves without a grant, or is dropped: what it had set is taken back even if the
/// process ends right after.
struct Leaving<'a> {
    driver: &'a Arc<Driver>,
    granted: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.granted && self.driver.closing.withdrawing.load(Ordering::SeqCst) > 0 {
            self.driver.sender.flush();
        }
    }
}

/// An attempt under way. Dropped, it is undone.
pub(super) struct PendingAttempt<'a> {
    driver: &'a Arc<Driver>,
    wanted: &'a Wanted,
    pub(super) round: Arc<PendingRound<Attempt>>,
    /// Where the replies go if a node may keep more of ours than the slot that is won.
    strays: Option<Arc<Strays>>,
    /// Whose ticket it carries, if it carries one.
    waiter: Option<Arc<Waiter>>,
    kept: bool,
    /// Lost, but to be tried again: the place in line is kept.
    stays: bool,
}

impl<'a> PendingAttempt<'a> {
    fn begin(
        driver: &'a Arc<Driver>,
        wanted: &'a Wanted,
        attempt: Attempt,
        waiter: Option<&Arc<Waiter>>,
    ) -> Self {
        let request = attempt.request(&wanted.claims, wanted.lease(), &wanted.label);
        let t0 = attempt.t0();
        let expires = attempt.poll_timeout().unwrap_or(t0);
        let strays = attempt.asked() == Some(Asked::Any)
            || attempt.asked().is_some() && attempt.place().is_some();
        let waiter = waiter.filter(|_| attempt.place().is_some()).cloned();
        let round = Arc::new(PendingRound::new(driver, attempt, t0));
        let strays = strays.then(|| Arc::new(Strays::new(driver, &round, expires)));
        // Made before the first send, so that not even a panic in a node leaves something behind.
        let pending = Self {
            driver,
            wanted,
            round,
            strays,
            waiter,
            kept: false,
            stays: false,
        };
        driver.closing.attempting.fetch_add(1, Ordering::SeqCst);
        let mut to = match &pending.strays {
            Some(strays) => Arc::clone(strays) as Arc<dyn Deliver<Reply>>,
            None => Arc::clone(&pending.round) as Arc<dyn Deliver<Reply>>,
        };
        if let Some(waiter) = &pending.waiter {
            let takes_back = pending.strays.is_some();
            to = Arc::new(TicketReplies::new(driver, waiter, to, takes_back));
        }
        driver.sender.send_all(request, expires, &to);
        pending
    }

    fn keep(mut self, deadline: Timestamp) -> Won {
        self.kept = true;
        self.round.won();
        let (mut id, slot) = self
            .round
            .with(|attempt| (attempt.grant_id(&self.wanted.claims), attempt.slot()));
        if let Some(waiter) = &self.waiter {
            let strays = match &self.strays {
                Some(_) => self.round.with(|attempt| attempt.strays()),
                None => Vec::new(),
            };
            waiter.granted(self.driver, &strays, self.wanted.terms.call_timeout);
        }
        if let Some(slot) = slot {
            if let Some(strays) = &self.strays {
                strays.won(id.clone().without_slot(slot), self.wanted);
            }
            id = id.with_slot(slot);
        }
        Won {
            round: Arc::clone(&self.round),
            id,
            deadline,
        }
    }

    fn undo(&self) {
        let (targets, id) = self.round.with(|attempt| {
            let leaves = !self.stays && attempt.place().is_some();
            let targets = match leaves {
                false => attempt.remains(),
                true => attempt.remains_in_line(),
            };
            (targets, attempt.grant_id(&self.wanted.claims))
        });
        if let Some(waiter) = self.waiter.as_ref().filter(|_| !self.stays) {
            waiter.is_told_to(&targets);
        }
        let (lease, call_timeout) = (self.wanted.lease(), self.wanted.terms.call_timeout);
        let stays = self.waiter.clone().filter(|_| self.stays);
        Releasing::undo(self.driver, &id, targets, lease, call_timeout, stays);
    }
}

impl Drop for PendingAttempt<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.undo();
        }
        // Last, so that whoever waits for the attempt to end finds its withdrawal begun.
        let closing = &self.driver.closing;
        if closing.attempting.fetch_sub(1, Ordering::SeqCst) == 1 {
            closing.given_up.notify_waiters();
        }
    }
}

/// How many callers of this client ask for a name at the moment. A caller that is not the only one need
/// not find out from the nodes that there is a queue to stand in.
#[derive(Debug, Default)]
pub(crate) struct LocalContention {
    asking: Mutex<HashMap<Name, usize>>,
}

/// One of these callers. Dropped, it no longer asks.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    contention: &'a LocalContention,
    claims: &'a [Claim],
    /// Whether another caller asked for one of its names before, and has not got it yet.
    pub(crate) in_company: bool,
}

impl LocalContention {
    /// One more asks for `claims`. Callers that would share them are in no other's way.
    pub(crate) fn join<'a>(&'a self, claims: &'a [Claim]) -> Asking<'a> {
        let mut asking = lock(&self.asking);
        let mut in_company = false;
        for claim in exclusive(claims) {
            let others = asking.entry(claim.name.clone()).or_default();
            in_company |= *others > 0;
            *others += 1;
        }
        Asking {
            contention: self,
            claims,
            in_company,
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut asking = lock(&self.contention.asking);
        for claim in exclusive(self.claims) {
            if let Some(all) = asking.get_mut(&claim.name) {
                *all -= 1;
                if *all == 0 {
                    asking.remove(&claim.name);
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
    fn a_second_caller_is_in_company_until_the_first_has_gone() {
        let contention = LocalContention::default();
        let (one, both) = (
            claims(["a"], Mode::Exclusive),
            claims(["a", "b"], Mode::Exclusive),
        );
        let other = claims(["c"], Mode::Exclusive);
        let first = contention.join(&one);
        assert!(!first.in_company);
        assert!(!contention.join(&other).in_company);
        let second = contention.join(&both);
        assert!(second.in_company);
        drop(first);
        assert!(contention.join(&one).in_company, "the second still asks");
        drop(second);
        assert!(!contention.join(&both).in_company);
        assert!(lock(&contention.asking).is_empty());
    }

    #[test]
    fn callers_that_share_are_no_company() {
        let contention = LocalContention::default();
        let shared = claims(["a"], Mode::Shared);
        let _first = contention.join(&shared);
        assert!(!contention.join(&shared).in_company);
        assert!(!contention.join(&claims(["a"], Mode::Exclusive)).in_company);
    }
}
