//! The callers of one client that want the same name.
//!
//! If there is another caller, the first attempt carries a ticket at once: the nodes need not report
//! first that the lock is held.
//!
//! While callers of a name give up, only a few of them ask the nodes at the same time. A caller that
//! gives up costs each node as much as a caller that gets the lock. If many tasks wait for a few
//! milliseconds each, the nodes would be busy with undos and could grant almost nothing. The others
//! wait here, where giving up costs nothing. The caller that came last goes first: the others are
//! about to give up. None waits here for longer than a call to a node may take, so a caller with
//! patience soon gets into the queue of the nodes, which is fair.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::message::{Claim, Mode};
use crate::name::Name;
use crate::time::Timestamp;

use super::{ClientRuntime, lock};

/// How many callers of one name may ask the nodes at the same time while callers of it give up,
/// undos included. Two are enough to hand a lock over without a pause. With more, callers wait so
/// long in the queue of the nodes that many give up there.
const ASKING_MAX: usize = 4;

/// See the module.
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
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::clock::{Clock, SteppedClock};

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
        let first = contention.join(&one, true);
        assert!(!first.contended);
        assert!(!contention.join(&other, true).contended);
        let second = contention.join(&both, true);
        assert!(second.contended);
        drop(first);
        assert!(
            contention.join(&one, true).contended,
            "the second caller is still there"
        );
        drop(second);
        assert!(!contention.join(&both, true).contended);
        assert!(lock(&contention.names).is_empty());
    }

    #[test]
    fn shared_claims_are_no_contention() {
        let contention = LocalContention::default();
        let shared = claims(["a"], Mode::Shared);
        let _first = contention.join(&shared, true);
        assert!(!contention.join(&shared, true).contended);
        assert!(
            !contention
                .join(&claims(["a"], Mode::Exclusive), true)
                .contended
        );
    }

    fn caller<'a>(contention: &'a LocalContention, claims: &'a [Claim]) -> ContentionEntry<'a> {
        contention.join(claims, true)
    }

    #[test]
    fn patient_callers_all_ask_at_once() {
        let contention = LocalContention::default();
        let claims = claims(["a"], Mode::Exclusive);
        let callers: Vec<_> = (0..1_000).map(|_| caller(&contention, &claims)).collect();
        assert!(callers.iter().all(|caller| caller.asks));
    }

    #[test]
    fn while_callers_give_up_only_a_few_ask() {
        let contention = LocalContention::default();
        let claims = claims(["a"], Mode::Exclusive);
        contention.undo_sent(&claims[0].name);
        let callers: Vec<_> = (0..100).map(|_| caller(&contention, &claims)).collect();
        let asking = callers.iter().filter(|caller| caller.asks).count();
        assert_eq!(asking, ASKING_MAX - 1, "and the one that is undone");
        assert!(
            callers[..asking].iter().all(|caller| caller.asks),
            "in order"
        );
        // A caller that does not wait asks at once.
        assert!(contention.join(&claims, false).asks);
    }

    #[test]
    fn callers_of_another_name_ask_at_once() {
        let contention = LocalContention::default();
        let (storm, other) = (
            claims(["a"], Mode::Exclusive),
            claims(["b"], Mode::Exclusive),
        );
        contention.undo_sent(&storm[0].name);
        let _storm: Vec<_> = (0..100).map(|_| caller(&contention, &storm)).collect();
        let others: Vec<_> = (0..100).map(|_| caller(&contention, &other)).collect();
        assert!(others.iter().all(|caller| caller.asks));
    }

    #[test]
    fn once_nobody_waits_and_no_undo_is_left_all_ask_again() {
        let contention = LocalContention::default();
        let claims = claims(["a"], Mode::Exclusive);
        let name = &claims[0].name;
        contention.undo_sent(name);
        let mut asking: Vec<_> = (1..ASKING_MAX)
            .map(|_| caller(&contention, &claims))
            .collect();
        let mut waiting = caller(&contention, &claims);
        assert!(!waiting.pass(NameCallers::has_room));
        contention.undo_ended(name, None);
        assert!(waiting.pass(NameCallers::has_room));
        asking.extend((0..100).map(|_| caller(&contention, &claims)));
        assert!(
            asking.iter().all(|caller| caller.asks),
            "nobody waits any more"
        );
        drop((asking, waiting));
        assert!(lock(&contention.names).is_empty());
    }

    #[tokio::test]
    async fn a_caller_that_waits_is_woken_by_room_and_else_by_its_patience() {
        let time = SteppedClock::starting_at(Duration::from_secs(1));
        let runtime = ClientRuntime::of_group(Vec::new(), Clock::Stepped(time.clone()));
        let (contention, claims) = (&runtime.contention, claims(["a"], Mode::Exclusive));
        let name = &claims[0].name;
        let second = Duration::from_secs(1);
        let patience = |wait: Option<Duration>| TurnLimits {
            gives_up_at: wait.map(|wait| time.now() + wait),
            longest: second,
        };
        let full = || {
            contention.undo_sent(name);
            let asking = (1..ASKING_MAX).map(|_| caller(contention, &claims));
            asking.collect::<Vec<_>>()
        };
        let mut cx = Context::from_waker(Waker::noop());

        // Room.
        let mut asking = full();
        let mut first = caller(contention, &claims);
        {
            let mut turn = pin!(first.may_ask(&runtime, patience(None)));
            assert!(turn.as_mut().poll(&mut cx).is_pending());
            asking.pop();
            assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(true));
        }
        drop((asking, first));
        contention.undo_ended(name, None);
        assert!(lock(&contention.names).is_empty());

        // After the longest time it asks in any case.
        let asking = full();
        let mut late = caller(contention, &claims);
        {
            let mut turn = pin!(late.may_ask(&runtime, patience(Some(2 * second))));
            assert!(turn.as_mut().poll(&mut cx).is_pending());
            time.step(second);
            assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(true));
        }
        drop(late);

        // When its wait is over it gives up, but only if the nodes have answered meanwhile.
        for answered in [false, true] {
            let mut short = caller(contention, &claims);
            let mut turn = pin!(short.may_ask(&runtime, patience(Some(second / 2))));
            assert!(turn.as_mut().poll(&mut cx).is_pending());
            contention.undo_sent(name);
            contention.undo_ended(name, answered.then(|| time.now()));
            time.step(second / 2);
            assert_eq!(turn.as_mut().poll(&mut cx), Poll::Ready(!answered));
        }
        drop(asking);
    }
}
