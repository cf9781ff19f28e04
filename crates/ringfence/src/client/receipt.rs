//! Receipts: what another process needs to extend or release a lock. `ringfence acquire` prints
//! one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Ballot, Kind, Slots};
use crate::protocol::{FinalRelease, GrantId, HoldPolicy, Target};
use crate::runtime::acquire::AcquireRequest;
use crate::runtime::hold::HeldLock;
use crate::runtime::releasing::Releasing;
use crate::token::Token;

use super::error::{ConfigError, ExtendError, ReleaseError};
use super::guard::{extend_hold, release_result};
use super::inspection::{Holder, LockState};
use super::kind::Fenced;
use super::lock::{Lock, LockTerms};
use super::{Locks, PERMITS_MAX};

/// What another process needs to extend or release a lock: the token, its ballot, and what kind of
/// lock it is.
///
/// `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Receipt {
    token: Token,
    ballot: Ballot,
    /// How long the lock was taken for, if the process that took it said so.
    ttl: Option<Duration>,
    held_as: HeldAs,
    lock_delay: Duration,
    hold_at_least: Duration,
}

/// What a receipt is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldAs {
    Exclusive,
    Shared,
    /// The permit with this slot of a semaphore with so many permits.
    Slot {
        slot: u32,
        permits: u32,
    },
}

/// The text is not a receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a receipt: expected `id.secret.fence` or `id.secret.fence.ttl`")]
pub struct ReceiptError;

impl Receipt {
    pub(super) fn new(hold: &HeldLock) -> Self {
        let (id, policy) = (hold.id(), hold.policy());
        let held_as = match (id.kind, id.slots.as_deref()) {
            (Kind::Slot, Some((claims, Slots::Only(slot)))) => HeldAs::Slot {
                slot: *slot,
                // The first claim is the admission record.
                permits: u32::try_from(claims.len() - 1).unwrap_or(PERMITS_MAX),
            },
            (Kind::Shared, _) => HeldAs::Shared,
            _ => HeldAs::Exclusive,
        };
        Self {
            token: id.token.clone(),
            ballot: id.ballot,
            ttl: None,
            held_as,
            lock_delay: policy.lock_delay,
            hold_at_least: policy.hold_at_least,
        }
    }

    /// Reads `id.secret.fence`, and after it in this order what applies: the TTL in milliseconds,
    /// `shared` or `slotNofM`, `delayMS`, `keepMS`.
    pub fn parse(text: &str) -> Result<Self, ReceiptError> {
        let mut parts = text.split('.').peekable();
        let mut next = || parts.next().ok_or(ReceiptError);
        let token = format!("{}.{}", next()?, next()?);
        let token = Token::parse(&token).map_err(|_| ReceiptError)?;
        let ballot = number(next()?)?;
        if ballot > Ballot::MAX.get() {
            return Err(ReceiptError);
        }
        let ttl = parts.next_if(|part| number(part).is_ok());
        let held_as = parts.next_if(|part| *part == "shared" || part.starts_with("slot"));
        let mut span = |word: &str| {
            let part = parts.next_if(|part| part.starts_with(word));
            part.map_or(Ok(Duration::ZERO), |part| millis(&part[word.len()..]))
        };
        let (lock_delay, hold_at_least) = (span("delay")?, span("keep")?);
        if parts.next().is_some() {
            return Err(ReceiptError);
        }
        Ok(Self {
            token,
            ballot: Ballot::new(ballot),
            ttl: ttl.map(millis).transpose()?,
            held_as: held_as.map_or(Ok(HeldAs::Exclusive), HeldAs::parse)?,
            lock_delay,
            hold_at_least,
        })
    }

    /// The same receipt, which tells that the lock was taken for `ttl`.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        let ttl = Some(ttl);
        Self { ttl, ..self }
    }

    /// How long the lock was taken for, if the receipt tells it.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// How many permits the semaphore has, if this is the receipt of a permit. Then
    /// [`Semaphore::extend_receipt`](crate::Semaphore::extend_receipt) extends it; every other
    /// receipt is one for [`Lock::extend_receipt`].
    pub fn permits(&self) -> Option<u32> {
        match self.held_as {
            HeldAs::Slot { permits, .. } => Some(permits),
            HeldAs::Exclusive | HeldAs::Shared => None,
        }
    }

    /// The whole receipt as text. A reader of it can release the lock: keep it out of logs.
    pub fn expose(&self) -> String {
        let mut text = format!("{}.{}", self.token.expose(), self.ballot);
        if let Some(ttl) = self.ttl {
            text += &format!(".{}", ttl.as_millis());
        }
        match self.held_as {
            HeldAs::Exclusive => {}
            HeldAs::Shared => text += ".shared",
            HeldAs::Slot { slot, permits } => text += &format!(".slot{slot}of{permits}"),
        }
        for (word, span) in [("delay", self.lock_delay), ("keep", self.hold_at_least)] {
            if !span.is_zero() {
                text += &format!(".{word}{}", span.as_millis());
            }
        }
        text
    }

    /// The fence of the grant.
    pub fn fence(&self) -> u64 {
        self.ballot.get()
    }
}

impl HeldAs {
    fn parse(text: &str) -> Result<Self, ReceiptError> {
        let Some(slot) = text.strip_prefix("slot") else {
            return Ok(Self::Shared);
        };
        let (slot, permits) = slot.split_once("of").ok_or(ReceiptError)?;
        let [slot, permits] = [number(slot)?, number(permits)?];
        if slot >= permits || permits > u64::from(PERMITS_MAX) {
            return Err(ReceiptError);
        }
        Ok(Self::Slot {
            slot: slot as u32,
            permits: permits as u32,
        })
    }
}

fn number(text: &str) -> Result<u64, ReceiptError> {
    match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text.parse().map_err(|_| ReceiptError),
        false => Err(ReceiptError),
    }
}

fn millis(text: &str) -> Result<Duration, ReceiptError> {
    number(text).map(Duration::from_millis)
}

impl<K: Fenced> Lock<K> {
    /// Extends a lock that [`Guard::leave`](crate::Guard::leave) left
    /// behind, perhaps in another process. Returns how long it is valid now.
    ///
    /// # Errors
    /// If the lock is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    pub async fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        let terms = &self.terms;
        terms.locks.own(terms.extend_left(receipt, ttl)).await
    }

    /// Releases a lock that [`Guard::leave`](crate::Guard::leave) left
    /// behind, perhaps in another process. If it was taken with
    /// [`hold_at_least`](crate::Lock::hold_at_least), other clients are kept out for the rest of that
    /// time, counted from the grant by the clocks of the nodes.
    ///
    /// # Errors
    /// If the lock was not held any more, or if no majority of the nodes confirmed.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        let terms = &self.terms;
        terms.locks.own(terms.release_left(receipt)).await
    }
}

impl LockTerms {
    async fn extend_left(&self, receipt: &Receipt, ttl: Duration) -> Result<Duration, ExtendError> {
        let mut terms = self.clone();
        terms.ttl = ttl;
        let (wanted, id) = terms.resumed(receipt)?;
        let policy = HoldPolicy {
            ttl: wanted.terms.ttl,
            lock_delay: wanted.delay,
            hold_at_least: Duration::ZERO,
            call_timeout: wanted.terms.call_timeout,
            drift: wanted.terms.drift,
            renew: false,
            max_hold: None,
            label: wanted.label,
        };
        let runtime = &self.locks.shared.runtime;
        let hold = HeldLock::resume(runtime, id, policy);
        let names = &self.locks.shared.names;
        let deadline = extend_hold(&hold, wanted.terms.ttl, names).await?;
        Ok(deadline.since(runtime.sender.clock.now()))
    }

    async fn release_left(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        let (wanted, id) = self.resumed(receipt)?;
        let runtime = &self.locks.shared.runtime;
        let keep = self.locks.keep_left(receipt, &id).await;
        let keep = keep.map_err(ReleaseReceiptError::Release)?;
        let release = FinalRelease {
            // The process that left it may have left requests on their way, too.
            targets: vec![Target::Unknown; runtime.sender.nodes.len()],
            lease_left: wanted.lease(),
            call_timeout: wanted.terms.call_timeout,
            keep_until: keep.map(|keep| runtime.sender.clock.now() + keep),
            keeps_on: false,
        };
        let verdict = Releasing::finish(runtime, &id, release).verdict().await;
        let released = release_result(verdict);
        tracing::debug!(
            target: "ringfence",
            name = %self.name,
            fence = receipt.fence(),
            outcome = ?verdict,
            "lock released by receipt"
        );
        released.map_err(ReleaseReceiptError::Release)
    }

    /// The request and the grant that `receipt` stands for, on the terms of this lock.
    fn resumed(&self, receipt: &Receipt) -> Result<(AcquireRequest, GrantId), ConfigError> {
        let lock = match (self.kind, receipt.held_as) {
            (Kind::Slot, HeldAs::Slot { .. }) | (Kind::Exclusive, HeldAs::Exclusive) => {
                self.clone()
            }
            (Kind::Exclusive, HeldAs::Shared) => self.shared(),
            (_, HeldAs::Slot { .. }) => return Err(ConfigError::ReceiptOfPermit),
            (_, _) => return Err(ConfigError::ReceiptOfLock),
        };
        let lock_delay = receipt.lock_delay;
        let wanted = Self { lock_delay, ..lock }.wanted(None)?;
        let claims = Arc::clone(&wanted.claims);
        let (token, ballot) = (receipt.token.clone(), receipt.ballot);
        let id = GrantId::of_receipt(
            Arc::clone(&claims),
            token,
            ballot,
            wanted.terms.kind,
            wanted.delay,
        );
        let HeldAs::Slot { slot, .. } = receipt.held_as else {
            return Ok((wanted, id));
        };
        // The first claim is the admission record.
        let permits = claims.len() - 1;
        if slot as usize >= permits {
            return Err(ConfigError::ReceiptOfPermit);
        }
        let slots = Some(Box::new((claims, Slots::All)));
        let id = GrantId { slots, ..id }.with_slot(slot);
        Ok((wanted, id))
    }
}

impl Locks {
    /// For how much longer `hold_at_least` keeps the lock of `receipt` from others, if it is
    /// released now. Only the nodes know when it was granted. A lock that has another holder by now
    /// or has ended is not kept.
    async fn keep_left(
        &self,
        receipt: &Receipt,
        id: &GrantId,
    ) -> Result<Option<Duration>, ReleaseError> {
        let span = receipt.hold_at_least;
        if span.is_zero() {
            return Ok(None);
        }
        let seen = self.inspect_claims(Arc::clone(&id.claims)).await;
        if seen.state == LockState::Unknown {
            return Err(ReleaseError::Unconfirmed);
        }
        let is_ours = |one: &&Holder| one.id.as_deref() == Some(id.token.id());
        let ours = seen.holders.iter().find(is_ours);
        Ok(ours.map(|ours| span.saturating_sub(ours.held_for.unwrap_or_default())))
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt")
            .field("token", &self.token)
            .field("fence", &self.fence())
            .finish()
    }
}

/// What the release of a receipt found.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseReceiptError {
    /// The lock was not held, or no majority confirmed. A receipt does not tell whether the lock has
    /// expired, was released before, or never existed.
    #[error("{}", not_released(*.0))]
    Release(ReleaseError),
    /// The request is not valid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}

fn not_released(why: ReleaseError) -> String {
    const NOT_HELD: &str = "this token does not hold the lock: it has expired, was released before, \
                            or never existed";
    match why {
        ReleaseError::Expired => NOT_HELD.to_owned(),
        ReleaseError::Taken => format!("{NOT_HELD}; another client holds the lock now"),
        ReleaseError::Unconfirmed | ReleaseError::ForkedProcess => why.to_string(),
    }
}

impl ReleaseReceiptError {
    /// Whether the same call may succeed later: no majority of the nodes has confirmed yet.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Release(ReleaseError::Unconfirmed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read() {
        let text = "0123456789.00112233445566778899aabbccddeeff.1794731796997730";
        let receipt = Receipt::parse(text).unwrap();
        assert_eq!(receipt.expose(), text);
        assert_eq!(receipt.fence(), 1_794_731_796_997_730);
        assert!(!format!("{receipt:?}").contains("aabbcc"));
    }

    #[test]
    fn the_kind_and_the_terms_are_told() {
        let plain = "0123456789.00112233445566778899aabbccddeeff.1794731796997730";
        for rest in [
            ".10000",
            ".shared",
            ".10000.shared",
            ".slot2of3",
            ".10000.slot0of256.delay5000",
            ".10000.delay1.keep60000",
            ".keep1",
        ] {
            let text = format!("{plain}{rest}");
            let receipt = Receipt::parse(&text).expect("a receipt");
            assert_eq!(receipt.expose(), text);
            assert_eq!(receipt.permits().is_some(), rest.contains("slot"));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "x",
            "a.b",
            "a.b.",
            "a.b.-1",
            "a.b.+1",
            "a.b.9007199254740992",
            "..1",
            "a b.c.1",
            "a.b.1.2.3",
            "a.b.1.shared.2",
            "a.b.1.share",
            "a.b.1.slot3of3",
            "a.b.1.slot0of257",
            "a.b.1.slot1",
            "a.b.1.delay",
            "a.b.1.keep1.delay1",
        ] {
            assert_eq!(Receipt::parse(bad), Err(ReceiptError), "{bad:?}");
        }
    }
}
