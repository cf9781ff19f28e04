//! The one place where random bytes are drawn from the operating system's generator.

use crate::token::{TOKEN_ENTROPY_BYTES, Token};

/// A fresh token.
///
/// # Errors
/// If the operating system has no randomness to give, which it says rather than make some up.
pub(crate) fn token() -> Result<Token, getrandom::Error> {
    bytes::<TOKEN_ENTROPY_BYTES>().map(Token::from_entropy)
}

/// A seed for jitter and a fresh token, in one system call.
///
/// # Errors
/// As [`token`].
pub(crate) fn seed_and_token() -> Result<(u64, Token), getrandom::Error> {
    const SEED: usize = size_of::<u64>();
    let drawn = bytes::<{ SEED + TOKEN_ENTROPY_BYTES }>()?;
    let (mut seed, mut token) = ([0; SEED], [0; TOKEN_ENTROPY_BYTES]);
    seed.copy_from_slice(&drawn[..SEED]);
    token.copy_from_slice(&drawn[SEED..]);
    Ok((u64::from_ne_bytes(seed), Token::from_entropy(token)))
}

/// What tells one client's tickets from another's.
pub(crate) fn client_id() -> String {
    format!("{:016x}", seed())
}

/// A seed for jitter. Nobody's safety depends on it, so a failing generator is no reason to fail.
pub(crate) fn seed() -> u64 {
    bytes()
        .map(u64::from_ne_bytes)
        .unwrap_or(0x9e37_79b9_7f4a_7c15)
}

#[allow(clippy::disallowed_methods)]
fn bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    #[cfg(feature = "simulation")]
    if crate::simulation::fill(&mut bytes) {
        return Ok(bytes);
    }
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
