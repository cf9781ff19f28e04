//! What a client asks for next, drawn at random, and how it calls the product.

use std::time::Duration;

use ringfence::{
    AcquireError, ExtendError, Guard, Leadership, Locks, Lost, Owner, ReadGuard, ReleaseError,
    SemaphoreGuard, Votes,
};
use ringfence_core::protocol::Vote;

use crate::history::Mode;
use crate::random::Random;

/// The names that all clients compete for.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The name of the election, which is a lock like the others.
pub(super) const LEAD: &str = "lead";
/// The name of the semaphore.
pub(super) const POOL: &str = "pool";
/// The number of permits.
pub(super) const PERMITS: u32 = 2;

/// One call, and how its hold goes on.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) kind: WishKind,
    pub(super) names: Vec<&'static str>,
    pub(super) ttl: Duration,
    /// How long it waits in the queue; `None` if it does not wait.
    pub(super) wait: Option<Duration>,
    pub(super) renew: bool,
    /// When the caller drops the call before its end.
    pub(super) dropped_after: Option<Duration>,
    /// For how long the lock is held.
    pub(super) span: Duration,
    /// The holder does not notice the loss, and continues as if it still held the lock.
    pub(super) ignores_loss: bool,
    pub(super) end: HoldEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WishKind {
    Mutex,
    /// A reentrant lock, taken twice.
    Owned,
    Multi,
    Read,
    Write,
    Permit,
    Lead,
    /// Arrives at a latch.
    Arrive,
    /// Waits until a latch is open.
    Await,
}

/// How a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldEnd {
    Release,
    Drop,
    /// It is downgraded and shared for a while first, if it is a write lock.
    Downgrade,
    /// It is extended by hand first.
    Extend,
}

impl Wish {
    pub(super) fn draw(random: &mut Random) -> Self {
        use WishKind::{Arrive, Await, Lead, Multi, Mutex, Permit, Read, Write};
        let ignores_loss = random.chance(10);
        let kind = match ignores_loss {
            true => Mutex,
            false => random.pick(&[
                Mutex, Mutex, Mutex, Mutex, Mutex, Multi, Multi, Read, Read, Read, Write, Write,
                Permit, Lead, Arrive, Await,
            ]),
        };
        // Holds longer than the TTL. A holder that ignores the loss does so without noticing.
        let overstays = ignores_loss || (kind != Lead && random.chance(5));
        let first = random.between(0, NAMES.len() as u64 - 1) as usize;
        let names = match kind {
            Multi => vec![NAMES[first], NAMES[(first + 1) % NAMES.len()]],
            Lead => vec![LEAD],
            Permit => vec![POOL],
            _ => vec![NAMES[first]],
        };
        let ms = |ms: u64| Duration::from_millis(ms);
        let ttl_ms = match overstays {
            true => random.between(300, 900),
            false => random.between(300, 2_000),
        };
        let renew = kind == Lead || (!overstays && random.chance(60));
        Self {
            kind,
            names,
            ttl: ms(ttl_ms),
            wait: match random.chance(70) {
                true => Some(ms(random.between(200, 3_000))),
                false => None,
            },
            renew,
            dropped_after: random.chance(12).then(|| ms(random.between(1, 300))),
            span: match (overstays, renew) {
                (true, _) => ms(ttl_ms + random.between(50, 600)),
                (false, true) if random.chance(15) => ms(random.between(300, 1_800)),
                // Most holds are short, so that there are many.
                _ => ms(random.between(2, 120)),
            },
            ignores_loss,
            end: random.pick(&[
                HoldEnd::Release,
                HoldEnd::Release,
                HoldEnd::Release,
                HoldEnd::Drop,
                HoldEnd::Downgrade,
                HoldEnd::Extend,
            ]),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        match self.kind {
            WishKind::Read => Mode::Shared,
            WishKind::Permit => Mode::Permit { of: PERMITS },
            _ => Mode::Exclusive,
        }
    }

    /// Makes the call.
    pub(super) async fn ask(&self, locks: &Locks) -> Result<Held, AcquireError> {
        let wait = self.wait.unwrap_or_default();
        let waits = self.wait.is_some();
        match self.kind {
            WishKind::Mutex | WishKind::Multi => {
                let lock = locks.multi(&self.names).ttl(self.ttl).wait(wait);
                let lock = lock.renew(self.renew);
                match waits {
                    true => lock.lock().await.map(Held::Alone),
                    false => lock.try_lock().await.map(Held::Alone),
                }
            }
            WishKind::Owned => {
                let owner = Owner::new();
                let lock = locks.mutex(self.names[0]).ttl(self.ttl).wait(wait);
                let lock = lock.renew(self.renew).owner(&owner);
                let outer = lock.lock().await?;
                let inner = lock.lock().await?;
                drop(outer);
                Ok(Held::Alone(inner))
            }
            WishKind::Read | WishKind::Write => {
                let lock = locks.rw_lock(self.names[0]).ttl(self.ttl).wait(wait);
                let lock = lock.renew(self.renew);
                match (self.kind, waits) {
                    (WishKind::Read, true) => lock.read().await.map(Held::Sharing),
                    (WishKind::Read, false) => lock.try_read().await.map(Held::Sharing),
                    (_, true) => lock.write().await.map(Held::Alone),
                    (_, false) => lock.try_write().await.map(Held::Alone),
                }
            }
            WishKind::Permit => {
                let pool = locks.semaphore(self.names[0], PERMITS);
                let pool = pool.ttl(self.ttl).wait(wait).renew(self.renew);
                match waits {
                    true => pool.acquire().await.map(Held::Permit),
                    false => pool.try_acquire().await.map(Held::Permit),
                }
            }
            WishKind::Arrive | WishKind::Await => unreachable!("a latch is not held"),
            WishKind::Lead => {
                let election = locks.election(self.names[0]).ttl(self.ttl).wait(wait);
                election.campaign().await.map(Held::Leading)
            }
        }
    }
}

/// A guard of any kind.
#[derive(Debug)]
pub(super) enum Held {
    Alone(Guard),
    Sharing(ReadGuard),
    Permit(SemaphoreGuard),
    Leading(Leadership),
}

macro_rules! each {
    ($held:expr, $guard:ident => $what:expr) => {
        match $held {
            Held::Alone($guard) => $what,
            Held::Sharing($guard) => $what,
            Held::Permit($guard) => $what,
            Held::Leading($guard) => $what,
        }
    };
}

impl Held {
    pub(super) fn fence(&self) -> u64 {
        each!(self, guard => guard.fence())
    }

    pub(super) fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(guard) => Some(guard.slot()),
            _ => None,
        }
    }

    pub(super) fn deadline_us(&self) -> u64 {
        each!(self, guard => guard.exact_deadline()).as_micros()
    }

    pub(super) async fn lost(&self) -> Lost {
        each!(self, guard => guard.lost().await)
    }

    /// The nodes that granted it.
    pub(super) fn granted_by(&self) -> Vec<u64> {
        let votes: Votes = each!(self, guard => guard.votes());
        let votes = (0..).zip(votes.iter());
        let granted = votes.filter(|(_, node)| node.vote == Vote::Granted);
        granted.map(|(node, _)| node).collect()
    }

    pub(super) async fn extend(&self, ttl: Duration) -> Result<(), ExtendError> {
        match self {
            Self::Alone(guard) => guard.extend(ttl).await,
            Self::Sharing(guard) => guard.extend(ttl).await,
            Self::Permit(guard) => guard.extend(ttl).await,
            Self::Leading(_) => Ok(()),
        }
    }

    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Sharing(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
            Self::Leading(guard) => guard.resign().await,
        }
    }
}
