//! What a client asks for next, drawn at random.

use std::time::Duration;

use crate::history::Mode;
use crate::random::Random;

/// The names that all clients compete for.
pub(super) const NAMES: [&str; 4] = ["a", "b", "c", BREAKABLE];
/// The name whose holds are broken. It is never one of several names: the history has one end for
/// all names of a hold.
const BREAKABLE: &str = "d";
/// The name of the election, which is a lock like the others.
pub(super) const LEAD: &str = "lead";
/// The name of the semaphore.
pub(super) const POOL: &str = "pool";
/// The number of permits.
pub(super) const PERMITS: u32 = 2;

/// One call, and how its hold goes on.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) kind: CallKind,
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
pub(super) enum CallKind {
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
    /// Breaks the hold of another client.
    Break,
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

impl Call {
    pub(super) fn draw(random: &mut Random) -> Self {
        use CallKind::{Arrive, Await, Break, Lead, Multi, Mutex, Permit, Read, Write};
        let ignores_loss = random.chance(10);
        let kind = match ignores_loss {
            true => Mutex,
            false => random.pick(&[
                Mutex, Mutex, Mutex, Mutex, Mutex, Multi, Multi, Read, Read, Read, Write, Write,
                Permit, Lead, Arrive, Await, Break,
            ]),
        };
        // Holds longer than the TTL. A holder that ignores the loss does so without noticing.
        let overstays = ignores_loss || (kind != Lead && random.chance(5));
        let first = random.between(0, NAMES.len() as u64 - 1) as usize;
        let names = match kind {
            Multi => vec![NAMES[first % 3], NAMES[(first + 1) % 3]],
            Break => vec![random.pick(&[BREAKABLE, LEAD, POOL])],
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
            CallKind::Read => Mode::Shared,
            CallKind::Permit => Mode::Permit { of: PERMITS },
            _ => Mode::Exclusive,
        }
    }
}
