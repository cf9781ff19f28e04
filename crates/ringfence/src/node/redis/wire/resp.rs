//! RESP, the protocol of Redis servers: writes commands, finds the ends of replies, and reads
//! replies.
//!
//! A command is written as bytes directly behind the command before. The [`Cmd`](redis::Cmd) of the
//! crate `redis` stores the words of a command first and encodes them later. Code that writes
//! commands can write to both: see [`super::Words`].
//!
//! Finding the end of a reply takes linear time, even if the reply arrives in many pieces, and
//! stores nothing but the bytes. A hostile or broken server must not use up the process's memory or
//! time, so a reply that is too large is refused as soon as its size is announced. The usual replies of our scripts are read here. All others are
//! left to the parser of the crate `redis`, which handles everything but is slower.

use std::fmt;
use std::io::{self, Write};

use redis::{ErrorKind, RedisError, RedisResult, RedisWrite, Value};

use crate::node::TroubleKind;

/// The most bytes of one reply. Our largest replies are the parties of a latch (1,024 of 256 bytes
/// each) and a page of keys with the longest names (200 of about 2 KiB each): less than half of
/// this.
pub(crate) const REPLY_MAX_BYTES: usize = 1 << 20;
/// The most values in one reply, counted at all levels. The parties of a latch are 1,024, the names
/// of an `inspect` take 900. Small values take many times more memory than bytes on the wire.
pub(crate) const REPLY_MAX_VALUES: u64 = 16 << 10;
/// How deep a reply may be nested. `HELLO` takes four levels, our scripts take one.
pub(crate) const REPLY_MAX_DEPTH: usize = 16;
/// The longest line: numbers and statuses are short, and so is an error of an honest server.
pub(crate) const LINE_MAX_BYTES: usize = 64 << 10;
/// About how much memory the replies to one batch may take, by [`memory`]. The link fills a batch
/// only to half of it.
pub(crate) const BATCH_MAX_MEMORY: usize = 16 << 20;
/// Writes one command into a buffer. The command is complete when this is dropped.
pub(crate) struct Packer<'a> {
    bytes: &'a mut Vec<u8>,
    begin: usize,
    words: usize,
}

/// Writes one word of a command piece by piece. The word is complete when this is dropped.
struct Word<'a> {
    bytes: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Packer<'a> {
    /// Begins a command at the end of `bytes`.
    pub(crate) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self {
            begin: bytes.len(),
            bytes,
            words: 0,
        }
    }
}

impl RedisWrite for Packer<'_> {
    fn write_arg(&mut self, arg: &[u8]) {
        self.words += 1;
        // Reserve once for the three parts of a word.
        self.bytes.reserve(arg.len() + HEAD_MAX + END.len());
        self.bytes
            .extend_from_slice(CountPrefix::new(b'$', arg.len()).as_bytes());
        self.bytes.extend_from_slice(arg);
        self.bytes.extend_from_slice(END);
    }

    fn write_arg_fmt(&mut self, arg: impl fmt::Display) {
        // Writing to memory does not fail.
        let _ = write!(self.writer_for_next_arg(), "{arg}");
    }

    fn writer_for_next_arg(&mut self) -> impl io::Write + '_ {
        self.words += 1;
        Word {
            begin: self.bytes.len(),
            bytes: self.bytes,
        }
    }
}

impl Drop for Packer<'_> {
    fn drop(&mut self) {
        insert(self.bytes, self.begin, CountPrefix::new(b'*', self.words));
    }
}

impl io::Write for Word<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Word<'_> {
    fn drop(&mut self) {
        let length = self.bytes.len() - self.begin;
        self.bytes.extend_from_slice(END);
        insert(self.bytes, self.begin, CountPrefix::new(b'$', length));
    }
}

/// Inserts `head` at `at`. The length of the rest was not known before.
fn insert(bytes: &mut Vec<u8>, at: usize, head: CountPrefix) {
    let (head, end) = (head.as_bytes(), bytes.len());
    bytes.resize(end + head.len(), 0);
    bytes.copy_within(at..end, at + head.len());
    bytes[at..at + head.len()].copy_from_slice(head);
}

const END: &[u8] = b"\r\n";
/// A sign, the digits of the largest number, and the end.
const HEAD_MAX: usize = 1 + 20 + END.len();

/// The prefix of a command or a word: the number of words or bytes that follow. Written backwards.
struct CountPrefix {
    bytes: [u8; HEAD_MAX],
    begin: usize,
}

impl CountPrefix {
    fn new(sign: u8, mut number: usize) -> Self {
        let mut bytes = [0; HEAD_MAX];
        let mut begin = HEAD_MAX - END.len();
        bytes[begin..].copy_from_slice(END);
        loop {
            begin -= 1;
            bytes[begin] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        begin -= 1;
        bytes[begin] = sign;
        Self { bytes, begin }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

/// Finds the end of one reply.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    /// Where the next line of the reply begins. It may not have arrived yet.
    seen: usize,
    /// How much of that line was searched for its end.
    searched: usize,
    /// How many values are missing at each level.
    open: Vec<u64>,
    /// How many values were announced, including those that contain others.
    pub(crate) values: u64,
    /// How many bytes were searched for the end of a line.
    #[cfg(test)]
    looked_at: usize,
}

/// What one line of the protocol announces.
struct Header {
    /// How many bytes follow it.
    bytes: u64,
    /// How many values follow it.
    values: u64,
}

impl Framer {
    /// The length of the reply at the beginning of `bytes`, if it is complete. Each call must pass
    /// the bytes of the call before, perhaps with more behind them.
    ///
    /// # Errors
    /// If the reply is malformed or too large.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> RedisResult<Option<usize>> {
        if self.seen == 0 {
            self.values = 1;
        }
        loop {
            let Some(rest) = bytes.get(self.seen..) else {
                return Ok(None);
            };
            if self.seen > 0 && self.open.is_empty() {
                return Ok(Some(std::mem::take(&mut self.seen)));
            }
            let Some(line) = self.line(rest)? else {
                return Ok(None);
            };
            let header = Header::read(line)?;
            let end = (self.seen as u64)
                .saturating_add(line.len() as u64 + 2)
                .saturating_add(header.bytes);
            if end > REPLY_MAX_BYTES as u64 {
                return Err(Excess::Bytes.into());
            }
            self.seen = end as usize;
            self.count(header.values)?;
        }
    }

    /// The first line of `rest`, if it is complete. Bytes that were searched before are skipped.
    fn line<'a>(&mut self, rest: &'a [u8]) -> RedisResult<Option<&'a [u8]>> {
        #[cfg(test)]
        let before = self.searched;
        let line = line_from(rest, &mut self.searched);
        #[cfg(test)]
        {
            self.looked_at += self.searched - before;
        }
        if let Ok(Some(_)) = line {
            self.searched = 0;
        }
        line
    }

    /// Counts one value that contains `values` others.
    fn count(&mut self, values: u64) -> RedisResult<()> {
        if values > 0 {
            self.values = self.values.saturating_add(values);
            if self.values > REPLY_MAX_VALUES {
                return Err(Excess::Values.into());
            }
            if self.open.len() == REPLY_MAX_DEPTH {
                return Err(Excess::Depth.into());
            }
            self.open.push(values);
            return Ok(());
        }
        // It may have been the last value of several levels.
        while let Some(open) = self.open.last_mut() {
            *open -= 1;
            if *open > 0 {
                break;
            }
            self.open.pop();
        }
        Ok(())
    }
}

impl Header {
    fn read(line: &[u8]) -> RedisResult<Self> {
        let (kind, rest) = line.split_first().ok_or_else(garbage)?;
        let (mut bytes, mut values) = (0, 0);
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'!' | b'=' => {
                // A null has no content and no line end of its own.
                bytes = match length(rest)? {
                    Some(length) => length.saturating_add(2),
                    None => 0,
                };
            }
            b'*' | b'~' | b'>' => values = length(rest)?.unwrap_or(0),
            b'%' => values = length(rest)?.unwrap_or(0).saturating_mul(2),
            // The value that the attributes describe follows them.
            b'|' => {
                values = length(rest)?
                    .unwrap_or(0)
                    .saturating_mul(2)
                    .saturating_add(1)
            }
            _ => return Err(garbage()),
        }
        Ok(Self { bytes, values })
    }
}

/// The first line of `bytes` without its end, if it is complete.
fn line(bytes: &[u8]) -> RedisResult<Option<&[u8]>> {
    line_from(bytes, &mut 0)
}

/// The same, if the first `searched` bytes do not contain the end. Updates `searched`.
fn line_from<'a>(bytes: &'a [u8], searched: &mut usize) -> RedisResult<Option<&'a [u8]>> {
    let looked_at = &bytes[..bytes.len().min(LINE_MAX_BYTES)];
    let rest = looked_at.get(*searched..).unwrap_or_default();
    match rest.iter().position(|byte| *byte == b'\r') {
        Some(end) => {
            *searched += end;
            match bytes.get(*searched + 1) {
                Some(b'\n') => Ok(Some(&bytes[..*searched])),
                Some(_) => Err(garbage()),
                None => Ok(None),
            }
        }
        None if bytes.len() >= LINE_MAX_BYTES => Err(garbage()),
        None => {
            *searched = looked_at.len();
            Ok(None)
        }
    }
}

/// A length, or `None` for a null.
fn length(digits: &[u8]) -> RedisResult<Option<u64>> {
    match number(digits) {
        Some(-1) => Ok(None),
        Some(number) => u64::try_from(number).map(Some).map_err(|_| garbage()),
        None => Err(garbage()),
    }
}

/// Digits, perhaps after a minus sign.
fn number(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_i64;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        // Accumulate negatively so that i64::MIN fits.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative {
        Some(number)
    } else {
        number.checked_neg()
    }
}

/// Reads a complete reply.
///
/// # Errors
/// If it is malformed.
pub(crate) fn read_value(frame: &[u8]) -> RedisResult<Value> {
    let mut rest = frame;
    match usual(&mut rest, 0) {
        Some(value) if rest.is_empty() => Ok(value),
        _ => redis::parse_redis_value(frame),
    }
}

/// The value at the beginning of `rest`, if it is of a type that our scripts return.
fn usual(rest: &mut &[u8], depth: usize) -> Option<Value> {
    let head = line(rest).ok()??;
    let (kind, digits) = head.split_first()?;
    *rest = &rest[head.len() + 2..];
    match kind {
        b':' => number(digits).map(Value::Int),
        b'_' if digits.is_empty() => Some(Value::Nil),
        b'+' if digits == b"OK" => Some(Value::Okay),
        b'$' => match length(digits).ok()? {
            None => Some(Value::Nil),
            Some(length) => {
                let length = usize::try_from(length).ok()?;
                let (bytes, behind) = rest.split_at_checked(length)?;
                *rest = behind.strip_prefix(b"\r\n")?;
                Some(Value::BulkString(bytes.to_vec()))
            }
        },
        b'*' if depth < REPLY_MAX_DEPTH => match length(digits).ok()? {
            None => Some(Value::Nil),
            Some(length) => {
                // Each value takes at least three bytes, whatever length is announced.
                let length = usize::try_from(length).ok()?;
                let mut items = Vec::with_capacity(length.min(rest.len() / 3));
                for _ in 0..length {
                    items.push(usual(rest, depth + 1)?);
                }
                Some(Value::Array(items))
            }
        },
        _ => None,
    }
}

/// A limit that a server exceeded. The connection is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Bytes of one reply.
    Bytes,
    /// Values in one reply.
    Values,
    /// Levels in one reply.
    Depth,
    /// Replies to one batch of commands.
    Batch,
    /// Messages without a request.
    Pushes,
}

impl Excess {
    const ALL: [Self; 5] = [
        Self::Bytes,
        Self::Values,
        Self::Depth,
        Self::Batch,
        Self::Pushes,
    ];

    /// The excess in `error`, if any.
    pub(crate) fn of(error: &RedisError) -> Option<Self> {
        if error.kind() != ErrorKind::Client {
            return None;
        }
        let what = error.detail()?;
        Self::ALL.into_iter().find(|excess| excess.what() == what)
    }

    /// What the server did, as a text that follows its name.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Bytes => "sent a reply larger than 1 MiB; is this a Redis server?",
            Self::Values => "sent a reply of more than 16,384 values; is this a Redis server?",
            Self::Depth => "sent a reply of more than 16 nested levels; is this a Redis server?",
            Self::Batch => "sent replies that are far too large; is this a Redis server?",
            Self::Pushes => {
                "sent more messages than there are waiters to wake, so the connection was dropped; \
                 is this a Redis server, and who publishes on `ringfence:wake:*`?"
            }
        }
    }

    /// Too large replies mean that this is not a Redis server. But a flood of messages may end, and
    /// another client of an honest server may cause it.
    pub(crate) fn kind(self) -> TroubleKind {
        match self {
            Self::Bytes | Self::Values | Self::Depth | Self::Batch => TroubleKind::Garbage,
            Self::Pushes => TroubleKind::Disconnected,
        }
    }
}

impl From<Excess> for RedisError {
    fn from(excess: Excess) -> Self {
        let what = excess.what().to_owned();
        (ErrorKind::Client, "the server sent too much", what).into()
    }
}

/// About how much memory a reply of `bytes` and `values` takes.
pub(crate) fn memory(bytes: usize, values: u64) -> usize {
    let values = usize::try_from(values).unwrap_or(usize::MAX);
    bytes.saturating_add(values.saturating_mul(64))
}

fn garbage() -> RedisError {
    (ErrorKind::Parse, "not a reply of a Redis server").into()
}

#[cfg(test)]
mod tests;
