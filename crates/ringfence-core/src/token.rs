//! The identity of one hold: `id.secret`. Whoever knows the token can extend and release the lock,
//! so the secret half is never shown; the id half may be.

use std::fmt;
use std::sync::Arc;

/// Bytes of the public half: enough to tell holders apart in a report.
const ID_BYTES: usize = 5;
/// Bytes of the secret half: 128 bits that nobody guesses.
const SECRET_BYTES: usize = 16;
/// How much randomness one token takes.
pub const TOKEN_ENTROPY_BYTES: usize = ID_BYTES + SECRET_BYTES;
/// A token from elsewhere may be longer than ours, but not without bound.
const TOKEN_MAX_BYTES: usize = 256;

/// One hold's random identity, as it stands in the lock's key.
///
/// `Debug` and `Display` show the id only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Arc<str>);

/// A string that is no `id.secret`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no lock token (expected `id.secret`)")]
pub struct TokenError;

impl Token {
    /// A token made of `entropy`, which must come from the operating system's generator.
    pub fn from_entropy(entropy: [u8; TOKEN_ENTROPY_BYTES]) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        // 43 characters: a string that Redis still keeps inside its object header.
        let mut text = String::with_capacity(2 * TOKEN_ENTROPY_BYTES + 1);
        for (i, byte) in entropy.into_iter().enumerate() {
            if i == ID_BYTES {
                text.push('.');
            }
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
        Self(text.into())
    }

    /// Reads a token that was written down earlier, for instance by `ringfence acquire`.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let shaped = text.len() <= TOKEN_MAX_BYTES
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
            && text
                .split_once('.')
                .is_some_and(|(id, secret)| !id.is_empty() && !secret.is_empty());
        if shaped && !is_tombstone(text) {
            Ok(Self(text.into()))
        } else {
            Err(TokenError)
        }
    }

    /// The public half.
    pub fn id(&self) -> &str {
        public_half(&self.0).unwrap_or_default()
    }

    /// The whole token. Whoever sees it can release the lock: keep it out of logs.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// What stands in the lock's key after a release that keeps it from others: `kept.` and the public
/// half of the token that released. No token looks like that, so nobody can extend or release it.
pub(crate) fn tombstone(token: &str) -> String {
    let id = token
        .split_once('.')
        .map(|(id, _)| id)
        .filter(|id| is_id(id));
    format!("{TOMBSTONE}{}", id.unwrap_or("0000000000"))
}

/// Whether a lock key's value is a tombstone.
pub(crate) fn is_tombstone(value: &str) -> bool {
    value.strip_prefix(TOMBSTONE).is_some_and(is_id)
}

const TOMBSTONE: &str = "kept.";

fn is_id(text: &str) -> bool {
    text.len() == 2 * ID_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The part of a lock key's value that may be shown: all of a tombstone, which has no secret; `None` for a value that is not `id.secret`,
/// since another library's value is a secret as a whole.
pub fn public_half(value: &str) -> Option<&str> {
    if is_tombstone(value) {
        return Some(value);
    }
    let (id, _) = value.split_once('.')?;
    is_id(id).then_some(id)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}.…)", self.id())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.…", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_and_display_keep_the_secret() {
        let token = Token::from_entropy([0xab; TOKEN_ENTROPY_BYTES]);
        assert_eq!(token.expose().len(), 43);
        assert_eq!(token.id(), "ababababab");
        for shown in [format!("{token:?}"), token.to_string()] {
            assert!(!shown.contains(&token.expose()[11..]), "{shown}");
        }
    }

    #[test]
    fn only_id_dot_secret_parses() {
        let token = Token::from_entropy([7; TOKEN_ENTROPY_BYTES]);
        assert_eq!(Token::parse(token.expose()), Ok(token));
        let dead = tombstone(Token::from_entropy([7; TOKEN_ENTROPY_BYTES]).expose());
        assert_eq!(dead, "kept.0707070707");
        for bad in [
            "",
            "x",
            ".x",
            "x.",
            "a b.c",
            "a.b\n",
            &"a.".repeat(200),
            &dead,
        ] {
            assert_eq!(Token::parse(bad), Err(TokenError), "{bad:?}");
        }
    }

    #[test]
    fn a_foreign_value_has_no_public_half() {
        assert_eq!(public_half("4f6a.secret"), None);
        assert_eq!(public_half("whole-value-is-secret"), None);
    }
}
