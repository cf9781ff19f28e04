//! Fenced keys on Redis and Valkey: one script, for any client in any language.
//!
//! [`FENCED`] runs one command on one key if the key's marks admit the fence. The server executes
//! the check and the command in one step:
//!
//! ```text
//! EVAL FENCED 2 KEY MARKS  read|write FENCE KEEP_MS  COMMAND [arguments after the key]
//! ```
//!
//! A refusal is an error reply, `STALEFENCE fence 5 is below the mark 7`: unlike a value it
//! cannot be overlooked. A command that itself fails, for instance with `WRONGTYPE`, has raised
//! the mark. That does no harm, because its fence was admitted.
//!
//! This module builds the arguments and sends nothing, so that it fits every client and every
//! version of it. With the crate `redis`:
//!
//! ```no_run
//! use ringfence::resource::Refused;
//! use ringfence::resource::redis::{FENCED, FencedKey};
//!
//! # async fn example(fence: u64) -> redis::RedisResult<()> {
//! let mut connection = redis::Client::open("redis://data:6379")?
//!     .get_multiplexed_async_connection()
//!     .await?;
//! let script = redis::Script::new(FENCED);
//! let balance = FencedKey::new("balance:1");
//!
//! let call = balance.read(fence, ["GET"]);
//! let amount: i64 = script.key(call.keys()).arg(call.args()).invoke_async(&mut connection).await?;
//!
//! let call = balance.write(fence, ["SET".to_owned(), (amount + 50).to_string()]);
//! let written: redis::RedisResult<()> =
//!     script.key(call.keys()).arg(call.args()).invoke_async(&mut connection).await;
//! if let Err(error) = written {
//!     match Refused::in_message(&error.to_string()) {
//!         Some(refused) => println!("too late: {refused}"),
//!         None => return Err(error),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The data may be on another server than the locks. On the same server a fenced key must not
//! have the name of a lock, because the lock is a key too.

use std::time::Duration;

use crate::name::hash_tag;

/// The whole script. Its keys and arguments are those of a [`FencedCall`].
pub const FENCED: &str = concat!(
    include_str!("lua/admit.lua"),
    include_str!("lua/fenced.lua")
);

/// The Lua function `admit(marks_key, 'read' or 'write', fence, keep_ms)`. Put it at the
/// beginning of your own script if that runs more than one command. It returns nothing, or the
/// error to return:
///
/// ```
/// use ringfence::resource::redis::ADMIT;
///
/// let transfer = format!(
///     "{ADMIT}
///      local refusal = admit(KEYS[3], 'write', ARGV[1], '0')
///      if refusal then return refusal end
///      redis.call('DECRBY', KEYS[1], ARGV[2])
///      return redis.call('INCRBY', KEYS[2], ARGV[2])"
/// );
/// # assert!(transfer.starts_with("-- Admits"));
/// ```
pub const ADMIT: &str = include_str!("lua/admit.lua");

/// The first word of the error reply of a refusal.
pub const STALE_FENCE: &str = "STALEFENCE";

/// The prefix for keys that have no hash tag and cannot be a hash tag. `{}` is an empty tag, so
/// Redis hashes the whole key. The CRC16 of this prefix is zero, so the result is in the slot of
/// the key.
const UNTAGGED_PREFIX: &str = "ringfence-marks:{}djpk:";

/// The default key of the marks of `key`: `ringfence-marks:{balance:1}:balance:1` for
/// `balance:1`, and `ringfence-marks:{1}:balance:{1}` for `balance:{1}`. In a cluster it is in
/// the slot of `key`.
pub fn marks_key(key: &str) -> String {
    match hash_tag(key) {
        Some(tag) => format!("ringfence-marks:{{{tag}}}:{key}"),
        None if key.contains('}') => format!("{UNTAGGED_PREFIX}{key}"),
        None => format!("ringfence-marks:{{{key}}}:{key}"),
    }
}

/// A key that is read and written under a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedKey {
    keys: [String; 2],
    keep_ms: u64,
}

/// One call of [`FENCED`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedCall {
    keys: [String; 2],
    args: Vec<Vec<u8>>,
}

impl FencedKey {
    /// The key `key`, with its marks at [`marks_key`].
    pub fn new(key: impl Into<String>) -> Self {
        let key = key.into();
        let marks = marks_key(&key);
        Self {
            keys: [key, marks],
            keep_ms: 0,
        }
    }

    /// Stores the marks at `key`, for instance one for all keys that one lock protects. All users
    /// of the resource must use the same key. In a cluster it must be in the slot of the data.
    pub fn marks_at(mut self, key: impl Into<String>) -> Self {
        self.keys[1] = key.into();
        self
    }

    /// Lets marks expire that were not raised for `keep`. By default they stay for ever, at about a
    /// hundred bytes each. All users of the resource must use the same value.
    ///
    /// No fence is admitted that the marks would have refused: fences are times, and a fence that
    /// is older than `keep` by the server's clock is refused, with or without marks. So `keep`
    /// must be longer than the longest hold (`max_hold`, one hour by default) plus the difference
    /// between clocks. The server's clock must not be set back by as much as `keep`.
    pub fn keep_marks(mut self, keep: Duration) -> Self {
        // Zero means for ever, so a shorter time than a millisecond is rounded up.
        self.keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// Runs `command`, which only reads: `["GET"]`, `["HMGET", "a", "b"]`. The key is inserted
    /// after the first word.
    pub fn read<W: Into<Vec<u8>>>(
        &self,
        fence: u64,
        command: impl IntoIterator<Item = W>,
    ) -> FencedCall {
        self.call("read", fence, command)
    }

    /// Runs `command`, which may write: `["SET", "150"]`, `["HSET", "a", "1"]`, `["DEL"]`. The
    /// key is inserted after the first word.
    pub fn write<W: Into<Vec<u8>>>(
        &self,
        fence: u64,
        command: impl IntoIterator<Item = W>,
    ) -> FencedCall {
        self.call("write", fence, command)
    }

    fn call<W: Into<Vec<u8>>>(
        &self,
        access: &str,
        fence: u64,
        command: impl IntoIterator<Item = W>,
    ) -> FencedCall {
        let (fence, keep_ms) = (fence.to_string(), self.keep_ms.to_string());
        let head = [access, &fence, &keep_ms].map(|word| word.as_bytes().to_vec());
        let args = head.into_iter().chain(command.into_iter().map(Into::into));
        FencedCall {
            keys: self.keys.clone(),
            args: args.collect(),
        }
    }
}

impl FencedCall {
    /// `KEYS` of the script: the data and its marks.
    pub fn keys(&self) -> &[String; 2] {
        &self.keys
    }

    /// `ARGV` of the script: the access, the fence, how long marks are kept, and the command.
    pub fn args(&self) -> &[Vec<u8>] {
        &self.args
    }

    /// All arguments of `EVAL`, for a client that only sends commands.
    pub fn eval(&self) -> Vec<Vec<u8>> {
        let keys = self.keys.iter().map(|key| key.clone().into_bytes());
        let head = [FENCED.as_bytes().to_vec(), b"2".to_vec()];
        let args = self.args.iter().cloned();
        head.into_iter().chain(keys).chain(args).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_in_the_slot_of_their_key_and_unique() {
        assert_eq!(marks_key("x"), "ringfence-marks:{x}:x");
        assert_eq!(marks_key("{x}"), "ringfence-marks:{x}:{x}");
        assert_eq!(marks_key("a{b}c"), "ringfence-marks:{b}:a{b}c");
        assert_eq!(marks_key("a}b"), "ringfence-marks:{}djpk:a}b");
    }

    #[test]
    fn a_call_has_the_arguments_that_the_script_reads() {
        let call = FencedKey::new("x").write(7, ["SET", "1"]);
        assert_eq!(call.keys(), &["x", "ringfence-marks:{x}:x"]);
        let words: Vec<&[u8]> = call.args().iter().map(Vec::as_slice).collect();
        assert_eq!(words, [&b"write"[..], b"7", b"0", b"SET", b"1"]);
        assert_eq!(call.eval()[0], FENCED.as_bytes());
        assert_eq!(
            call.eval()[1..4],
            [&b"2"[..], b"x", b"ringfence-marks:{x}:x"]
        );
        assert_eq!(call.eval()[4..], *call.args());
    }

    #[test]
    fn keeping_marks_for_zero_time_is_not_for_ever() {
        let key = FencedKey::new("x").keep_marks(Duration::ZERO);
        assert_eq!(key.read(7, ["GET"]).args()[2], b"1");
    }
}
