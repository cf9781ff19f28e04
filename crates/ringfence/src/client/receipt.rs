//! A hold on paper: what `ringfence acquire` prints and `ringfence release` reads.

use std::fmt;
use std::sync::Arc;

use crate::driver::taker::Taker;
use crate::driver::withdraw::Traces;
use crate::message::{Ballot, Claim, Kind};
use crate::token::Token;

/// What another process needs to extend or release a lock: the token and its ballot.
///
/// `Debug` shows the token's id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Receipt {
    token: Token,
    ballot: Ballot,
}

/// A string that is no receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no token as `ringfence acquire` prints it (expected `id.secret.fence`)")]
pub struct ReceiptError;

impl Receipt {
    pub(super) fn new(traces: &Traces) -> Self {
        Self {
            token: traces.token.clone(),
            ballot: traces.ballot,
        }
    }

    /// Reads `id.secret.fence`.
    pub fn parse(text: &str) -> Result<Self, ReceiptError> {
        let (token, ballot) = text.rsplit_once('.').ok_or(ReceiptError)?;
        let plain_digits = ballot.bytes().all(|b| b.is_ascii_digit());
        let number: u64 = ballot.parse().map_err(|_| ReceiptError)?;
        if !plain_digits || number > Ballot::MAX.get() {
            return Err(ReceiptError);
        }
        let token = Token::parse(token).map_err(|_| ReceiptError)?;
        Ok(Self {
            token,
            ballot: Ballot::new(number),
        })
    }

    /// The whole receipt. Whoever sees it can release the lock: keep it out of logs.
    pub fn expose(&self) -> String {
        format!("{}.{}", self.token.expose(), self.ballot)
    }

    /// The fence of the grant.
    pub fn fence(&self) -> u64 {
        self.ballot.get()
    }

    pub(super) fn traces(&self, claims: Arc<[Claim]>, kind: Kind) -> Traces {
        Traces {
            claims,
            token: self.token.clone(),
            ballot: self.ballot,
            kind,
            taker: Taker::default(),
            place: None,
            slots: None,
        }
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
