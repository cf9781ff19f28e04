//! The values that requests and rules are made of: names, tokens, ballots and points in time.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

/// The longest name (with its prefix), in bytes.
pub const NAME_MAX_BYTES: usize = 1024;

/// The most names that one lock may cover.
pub const NAMES_MAX: usize = 128;

/// Keys that begin like this are our own side records; a lock there would overwrite them.
const RESERVED: &str = "ringfence:";

/// The word in the key of a semaphore's slot; the number of the slot follows it.
const SLOT: &str = "slot";

/// The full key of one lock: 1 to 1,024 bytes, prefix included.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a lock's name must not be empty")]
    Empty,
    /// The name is longer than [`NAME_MAX_BYTES`].
    #[error("a lock's name may have {NAME_MAX_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// The name begins with the prefix of our own records.
    #[error("names that begin with `{RESERVED}` are kept for ringfence's own records")]
    Reserved,
    /// A lock over several names got none.
    #[error("a lock over several names needs at least one")]
    None,
    /// A lock over several names got more than [`NAMES_MAX`].
    #[error("a lock may cover {NAMES_MAX} names, this one has {0}")]
    TooMany(usize),
    /// A lock over several names got the same one twice.
    #[error("the name `{0}` is given twice")]
    Twice(Name),
}

impl Name {
    /// Checks `name` under `prefix`.
    pub fn new(prefix: &str, name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let bytes = prefix.len() + name.len();
        if bytes > NAME_MAX_BYTES {
            return Err(NameError::TooLong(bytes));
        }
        let key: Arc<str> = if prefix.is_empty() {
            Arc::from(name)
        } else {
            Arc::from(format!("{prefix}{name}"))
        };
        if key.starts_with(RESERVED) {
            return Err(NameError::Reserved);
        }
        Ok(Self(key))
    }

    /// Checks a whole set: not empty, not too many, none twice. The order given is kept.
    pub fn set<S: AsRef<str>>(
        prefix: &str,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Arc<[Self]>, NameError> {
        let names = names
            .into_iter()
            .map(|name| Self::new(prefix, name.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        match names.len() {
            0 => return Err(NameError::None),
            n if n > NAMES_MAX => return Err(NameError::TooMany(n)),
            _ => {}
        }
        let mut sorted: Vec<&Self> = names.iter().collect();
        sorted.sort();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(NameError::Twice(pair[0].clone()));
        }
        Ok(names.into())
    }

    /// Where those wait who want a permit of the semaphore of this name. Not a name that anybody
    /// could give: a semaphore and a lock of one name have nothing to do with each other.
    pub fn gate(&self) -> Self {
        self.part("admission")
    }

    /// The slot number `slot` of the semaphore of this name: a lock of its own.
    pub fn slot(&self, slot: u32) -> Self {
        self.part(&format!("{SLOT}:{slot}"))
    }

    /// Where those stand who have arrived at the latch of this name. A lock or semaphore of the same
    /// name has nothing to do with it.
    pub fn latch(&self) -> Self {
        self.part("latch")
    }

    /// The key `ringfence:{tag}:part:NAME`. All keys of one semaphore have the same hash tag.
    fn part(&self, part: &str) -> Self {
        let tag = side_key_tag(&self.0);
        Self(format!("{RESERVED}{{{tag}}}:{part}:{}", self.0).into())
    }

    /// The name that was given for the lock, semaphore or latch that this key belongs to.
    pub fn given(&self) -> &str {
        self.given_of_part().unwrap_or(&self.0)
    }

    fn given_of_part(&self) -> Option<&str> {
        let (_, part) = self.0.strip_prefix(RESERVED)?.split_once("}:")?;
        match part.split_once(':')? {
            // The number of the slot follows.
            (SLOT, slot) => slot.split_once(':').map(|(_, given)| given),
            (_, given) => Some(given),
        }
    }

    /// The key as it stands on a node.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key for people. Nearly always it is the key itself, and shared with it.
    pub fn shown(&self) -> Arc<str> {
        match self.0.escape_debug().eq(self.0.chars()) {
            true => Arc::clone(&self.0),
            false => self.to_string().into(),
        }
    }
}

/// Redis' rule: what stands between the first `{` and the first `}` after it, unless that is empty.
pub fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The hash tag in the keys `ringfence:{tag}:purpose:NAME` that belong to the name `key`: its own tag,
/// or the whole key.
///
/// The tag never contains `}`, so that the purpose and the name behind it can be read from the key, and
/// no two names share a key. A name without a tag that contains `}` loses its closing braces there.
pub fn side_key_tag(key: &str) -> Cow<'_, str> {
    match hash_tag(key) {
        Some(tag) => Cow::Borrowed(tag),
        None if !key.contains('}') => Cow::Borrowed(key),
        None => match key.replace('}', "") {
            tag if tag.is_empty() => Cow::Borrowed("-"),
            tag => Cow::Owned(tag),
        },
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names come from users and end up in terminals and logs: no raw control characters.
        write!(f, "{}", self.0.escape_debug())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

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
    #[inline]
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

/// What an attempt proposes, and its fence if it is granted: microseconds, near the nodes' time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot(u64);

impl Ballot {
    /// Lua counts in doubles: beyond this, two ballots could look the same to a server.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The ballot `value`, or the highest there is.
    pub const fn new(value: u64) -> Self {
        if value > Self::MAX.0 {
            Self::MAX
        } else {
            Self(value)
        }
    }

    /// The ballot as a number: the fence of the grant that it won.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A point on the client's own clock, which counts suspend and is never set.
///
/// Only differences mean anything; a `Timestamp` of another process or boot means nothing here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    /// One more than the nanoseconds, so that a timestamp that may be missing takes no more room.
    NonZeroU64,
);

impl Timestamp {
    /// The beginning of the clock.
    pub const ZERO: Self = Self::from_nanos(0);

    /// The point `nanos` after the beginning of the clock, or the last that can be written.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the beginning of the clock.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Microseconds since the beginning of the clock: the unit in which node clocks are compared.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.as_nanos() / 1000
    }

    /// How long after `earlier` this is; zero if it is not.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates: a timestamp too far away to be written is one that never comes.
    #[inline]
    fn add(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    #[inline]
    fn sub(self, rhs: Duration) -> Self {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.as_nanos().saturating_sub(nanos))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.as_nanos()))
    }
}

#[cfg(test)]
mod tests;
