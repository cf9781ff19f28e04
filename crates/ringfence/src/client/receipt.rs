//! Receipts: what another process needs to extend or release a lock. `ringfence acquire` prints
//! one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Ballot, Claim, Kind};
use crate::protocol::{FinalRelease, GrantId, HoldPolicy, Target};
use crate::runtime::hold::HeldLock;
use crate::runtime::releasing::Releasing;
use crate::token::Token;

use super::error::{ConfigError, ExtendError, ReleaseError};
use super::guard::{Guard, release_result};
use super::lock::Lock;

/// What another process needs to extend or release a lock: the token and its ballot.
///
/// `Debug` shows the token's id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Receipt {
    token: Token,
    ballot: Ballot,
    /// How long the lock was taken for, if the process that took it said so.
    ttl: Option<Duration>,
}

/// The text is not a receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a receipt: expected `id.secret.fence` or `id.secret.fence.ttl`")]
pub struct ReceiptError;

impl Receipt {
    pub(super) fn new(id: &GrantId) -> Self {
        Self {
            token: id.token.clone(),
            ballot: id.ballot,
            ttl: None,
        }
    }

    /// Reads `id.secret.fence`, or `id.secret.fence.ttl` with the TTL in milliseconds.
    pub fn parse(text: &str) -> Result<Self, ReceiptError> {
        let parts: Vec<&str> = text.split('.').collect();
        let [id, secret, ballot, ref ttl @ ..] = parts[..] else {
            return Err(ReceiptError);
        };
        let number = |text: &str| -> Result<u64, ReceiptError> {
            match text.bytes().all(|b| b.is_ascii_digit()) {
                true => text.parse().map_err(|_| ReceiptError),
                false => Err(ReceiptError),
            }
        };
        let ballot = number(ballot)?;
        let ttl = match ttl {
            [] => None,
            [ttl] => Some(Duration::from_millis(number(ttl)?)),
            _ => return Err(ReceiptError),
        };
        if ballot > Ballot::MAX.get() {
            return Err(ReceiptError);
        }
        Ok(Self {
            token: Token::parse(&format!("{id}.{secret}")).map_err(|_| ReceiptError)?,
            ballot: Ballot::new(ballot),
            ttl,
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

    /// The whole receipt as text. A reader of it can release the lock: keep it out of logs.
    pub fn expose(&self) -> String {
        let text = format!("{}.{}", self.token.expose(), self.ballot);
        match self.ttl {
            Some(ttl) => format!("{text}.{}", ttl.as_millis()),
            None => text,
        }
    }

    /// The fence of the grant.
    pub fn fence(&self) -> u64 {
        self.ballot.get()
    }

    fn id(&self, claims: Arc<[Claim]>, kind: Kind) -> GrantId {
        GrantId::of_receipt(claims, self.token.clone(), self.ballot, kind)
    }
}

impl Lock {
    /// Extends a lock that [`Guard::leave`] left behind, perhaps in another process. Returns how
    /// long it is valid now.
    ///
    /// # Errors
    /// If the lock is lost, if no majority of the nodes confirmed, or if `ttl` is not allowed.
    pub async fn extend_receipt(
        &self,
        receipt: &Receipt,
        ttl: Duration,
    ) -> Result<Duration, ExtendError> {
        let wanted = self.clone().ttl(ttl).wanted(None)?;
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
        let hold = HeldLock::resume(runtime, receipt.id(wanted.claims, self.kind), policy);
        let names = &self.locks.shared.names;
        let deadline = Guard::extend_hold(&hold, wanted.terms.ttl, names).await?;
        Ok(deadline.since(runtime.sender.clock.now()))
    }

    /// Releases a lock that [`Guard::leave`] left behind, perhaps in another process.
    ///
    /// # Errors
    /// If the lock was not held any more, or if no majority of the nodes confirmed.
    pub async fn release_receipt(&self, receipt: &Receipt) -> Result<(), ReleaseReceiptError> {
        let wanted = self.wanted(None)?;
        let runtime = &self.locks.shared.runtime;
        let release = FinalRelease {
            // The process that left it may have left requests on their way, too.
            targets: vec![Target::Unknown; runtime.sender.nodes.len()],
            lease_left: wanted.lease(),
            call_timeout: wanted.terms.call_timeout,
            keep_until: None,
            keeps_on: false,
        };
        let id = receipt.id(wanted.claims, self.kind);
        let verdict = Releasing::finish(runtime, &id, release).verdict().await;
        let released = release_result(verdict);
        tracing::debug!(
            target: "ringfence",
            name = %self.name(),
            fence = receipt.fence(),
            outcome = ?verdict,
            "lock released by receipt"
        );
        released.map_err(ReleaseReceiptError::Release)
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
    /// The lock was no longer held, or no majority confirmed.
    #[error(transparent)]
    Release(ReleaseError),
    /// The request is not valid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
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
        ] {
            assert_eq!(Receipt::parse(bad), Err(ReceiptError), "{bad:?}");
        }
    }
}
