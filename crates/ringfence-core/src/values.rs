//! The values inside requests and rules: names, tokens, ballots and timestamps.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

/// The longest name in bytes, prefix included.
pub const NAME_MAX_BYTES: usize = 1024;

/// The most names that one lock may cover.
pub const NAMES_MAX: usize = 128;

/// Keys with this prefix are our own records. A lock with such a name would overwrite them.
const RESERVED: &str = "ringfence:";

/// The word in the key of a semaphore's slot, before its number.
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
    /// The list of names is empty.
    #[error("a lock over several names needs at least one")]
    None,
    /// The list has more than [`NAMES_MAX`] names.
    #[error("a lock may cover {NAMES_MAX} names, this one has {0}")]
    TooMany(usize),
    /// The list has the same name twice.
    #[error("the name `{0}` is given twice")]
    Twice(Name),
}

impl Name {
    /// Checks `name`, with `prefix` before it.
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

    /// Checks a list of names: not empty, not too many, none twice. Keeps the order.
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

    /// The key of the admission record of the semaphore with this name: its one wait queue and its
    /// number of permits. Users cannot lock this key, so a semaphore and a lock with the same name
    /// are independent.
    pub fn admission(&self) -> Self {
        self.part("admission")
    }

    /// The key of slot `slot` of the semaphore with this name. Each slot is a lock of its own.
    pub fn slot(&self, slot: u32) -> Self {
        self.part(&format!("{SLOT}:{slot}"))
    }

    /// The key of the latch with this name. A lock or semaphore with the same name is independent.
    pub fn latch(&self) -> Self {
        self.part("latch")
    }

    /// The key `ringfence:{tag}:part:NAME`. All keys of one semaphore have the same hash tag.
    fn part(&self, part: &str) -> Self {
        let tag = side_key_tag(&self.0);
        Self(format!("{RESERVED}{{{tag}}}:{part}:{}", self.0).into())
    }

    /// The name that the user gave to the lock, semaphore or latch of this key.
    pub fn given(&self) -> &str {
        match self.of_part() {
            None => &self.0,
            // The number of the slot follows.
            Some((SLOT, slot)) => slot.split_once(':').map_or(slot, |(_, given)| given),
            Some((_, given)) => given,
        }
    }

    /// Which part of a semaphore or latch this is: `admission`, `slot` or `latch`.
    pub fn part_word(&self) -> Option<&str> {
        Some(self.of_part()?.0)
    }

    fn of_part(&self) -> Option<(&str, &str)> {
        let (_, part) = self.0.strip_prefix(RESERVED)?.split_once("}:")?;
        part.split_once(':')
    }

    /// The key on a node.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as text for people, with control characters escaped. It nearly always equals the key
    /// and then shares its memory.
    pub fn shown(&self) -> Arc<str> {
        match self.0.escape_debug().eq(self.0.chars()) {
            true => Arc::clone(&self.0),
            false => self.to_string().into(),
        }
    }
}

/// The hash tag by Redis' rule: the text between the first `{` and the first `}` after it, unless
/// that text is empty.
pub fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// The hash tag in the keys `ringfence:{tag}:purpose:NAME` that belong to the name `key`: its own
/// tag, or the whole key.
///
/// The tag never contains `}`, so that the purpose and the name behind it can be read from the key,
/// and no two names share a key. A name without a tag that contains `}` loses its closing braces
/// there.
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
        // Names come from users and are printed to terminals and logs: escape control characters.
        write!(f, "{}", self.0.escape_debug())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// The size of the public half: enough to distinguish holders in a report.
const ID_BYTES: usize = 5;
/// The size of the secret half: 128 bits, which cannot be guessed.
const SECRET_BYTES: usize = 16;
/// The number of random bytes in one token.
pub const TOKEN_ENTROPY_BYTES: usize = ID_BYTES + SECRET_BYTES;
/// A token of another program may be longer than ours, but must have a limit.
const TOKEN_MAX_BYTES: usize = 256;

/// The random identity of one hold, as it is stored in the lock's key.
///
/// `Debug` and `Display` show only the id.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Arc<str>);

/// The text is not `id.secret`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a lock token (expected `id.secret`)")]
pub struct TokenError;

impl Token {
    /// A token from `entropy`, which must come from the operating system's generator.
    pub fn from_entropy(entropy: [u8; TOKEN_ENTROPY_BYTES]) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        // 43 characters: Redis stores a string of up to 44 bytes inside its object header.
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

    /// Parses a token that was saved earlier, for example by `ringfence acquire`.
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

    /// The whole token. A reader of it can release the lock: never log it.
    #[inline]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// The value of the lock's key after a release that keeps the lock from others: `kept.` and the
/// public half of the token. No token equals it, so no client can extend or release it.
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

/// The part of a lock key's value that may be shown. A tombstone has no secret and is shown whole.
/// For a value that is not `id.secret` this is `None`: the value of another library is a secret as
/// a whole.
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

/// What an attempt proposes, and its fence if it is granted: microseconds, close to the nodes'
/// clocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ballot(u64);

impl Ballot {
    /// Lua computes with doubles: above this, a server could take two ballots for the same.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The ballot `value`, at most [`Ballot::MAX`].
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
/// Only differences have a meaning. A `Timestamp` of another process or boot has none here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    /// The nanoseconds plus one, so that `Option<Timestamp>` needs no extra memory.
    NonZeroU64,
);

impl Timestamp {
    /// The start of the clock.
    pub const ZERO: Self = Self::from_nanos(0);

    /// The point `nanos` after the start of the clock, or the last point that fits.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the start of the clock.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Microseconds since the start of the clock, the unit in which node clocks are compared.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.as_nanos() / 1000
    }

    /// The time from `earlier` to this point; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates: a timestamp that does not fit is so far in the future that it never comes.
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

/// Names as nodes report them, which may be wrong or hostile.
impl Name {
    /// The name at `key`, as a node reports it: of a lock, or of a part of a semaphore or latch.
    /// `None` if no client of ours uses such a key.
    pub fn of_key(key: &str) -> Option<Self> {
        if !key.starts_with(RESERVED) {
            return Self::new("", key).ok();
        }
        let found = Self(Arc::from(key));
        let given = Self::new("", found.given()).ok()?;
        let same = match found.part_word()? {
            SLOT => given.slot(found.slot_number()?),
            "admission" => given.admission(),
            "latch" => given.latch(),
            _ => return None,
        };
        (same == found).then_some(found)
    }

    /// The number of the slot, if this is a slot of a semaphore.
    pub fn slot_number(&self) -> Option<u32> {
        match self.of_part()? {
            (SLOT, slot) => slot.split_once(':')?.0.parse().ok(),
            _ => None,
        }
    }
}

/// The pseudo-random number generator splitmix64, for delays and simulations: the same seed gives
/// the same numbers. They are predictable, so never use them for secrets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A duration between half of `span` and all of it. The lower bound keeps two clients that
    /// collided from colliding again at once.
    pub(crate) fn spread(&mut self, span: Duration) -> Duration {
        let half = span / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(self.draw() % nanos.max(1))
    }
}

#[cfg(test)]
mod tests;
