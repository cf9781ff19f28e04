//! Where one reply ends and the next begins, and what the usual ones say.
//!
//! Finding the end takes a time that grows with what arrives, however it is cut into pieces, and keeps
//! nothing but the bytes themselves. A reply that is larger than [`super::limits`] allows is refused as
//! soon as its size is announced. The shapes that our scripts answer with are read here; whatever
//! else a server may say is left to the client library's parser, which is thorough and slower.

use redis::{ErrorKind, RedisError, RedisResult, Value};

use super::limits::{Excess, LINE_MAX_BYTES, REPLY_MAX_BYTES, REPLY_MAX_DEPTH, REPLY_MAX_VALUES};

/// Looks for the end of one reply.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// Up to where the reply is known: the next line begins there. It may not have arrived yet.
    seen: usize,
    /// How much of that line has been searched for its end.
    searched: usize,
    /// How many values are still to come at each level.
    open: Vec<u64>,
    /// How many values have been announced, those that contain others included.
    values: u64,
    /// How many bytes were searched for the end of a line.
    #[cfg(test)]
    looked_at: usize,
}

/// One line of the protocol: what it announces, and where it ends.
struct Header {
    /// How many bytes follow it.
    bytes: u64,
    /// How many values follow it.
    values: u64,
}

impl Framer {
    /// How long the reply is that `bytes` begin with, if all of it is there. Each time `bytes` must
    /// begin with what they began with before.
    ///
    /// # Errors
    /// If that is no reply, or one that is too large.
    pub(super) fn find(&mut self, bytes: &[u8]) -> RedisResult<Option<usize>> {
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

    /// How many values the reply has that was found last.
    pub(super) fn values(&self) -> u64 {
        self.values
    }

    /// The first line of `rest`, if it is complete. What was searched before is not searched again.
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

    /// One value more has been seen, in which there are `values` others.
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
        // It may have been the last one of several levels.
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
                // What there is not, has no end of its own either.
                bytes = match length(rest)? {
                    Some(length) => length.saturating_add(2),
                    None => 0,
                };
            }
            b'*' | b'~' | b'>' => values = length(rest)?.unwrap_or(0),
            b'%' => values = length(rest)?.unwrap_or(0).saturating_mul(2),
            // What the attributes are of follows them.
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

/// The same, where the first `searched` bytes are known not to contain the end. Says how many do not.
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

/// A length, or `None` for what is not there.
fn length(digits: &[u8]) -> RedisResult<Option<u64>> {
    match number(digits) {
        Some(-1) => Ok(None),
        Some(number) => u64::try_from(number).map(Some).map_err(|_| garbage()),
        None => Err(garbage()),
    }
}

/// Digits, perhaps behind a minus.
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
        // Downwards, where there is room for one more.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative {
        Some(number)
    } else {
        number.checked_neg()
    }
}

/// What a whole reply says.
///
/// # Errors
/// If it is no reply.
pub(super) fn read(frame: &[u8]) -> RedisResult<Value> {
    let mut rest = frame;
    match usual(&mut rest, 0) {
        Some(value) if rest.is_empty() => Ok(value),
        _ => redis::parse_redis_value(frame),
    }
}

/// The value at the beginning of `rest`, if it is of the sorts that scripts of ours answer with.
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
                // Each takes three bytes at least, whatever is announced.
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

fn garbage() -> RedisError {
    (ErrorKind::Parse, "no reply of a Redis server").into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Some reply that a server may give, in its own words.
    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let text = || "[a-zA-Z :.]{0,12}";
        let bulk = |sign: char| {
            let body = prop::collection::vec(any::<u8>(), 0..40);
            body.prop_map(move |body| {
                let mut bytes = format!("{sign}{}\r\n", body.len()).into_bytes();
                bytes.extend(body);
                bytes.extend(b"\r\n");
                bytes
            })
        };
        let line = |sign: &'static str| {
            text().prop_map(move |text| format!("{sign}{text}\r\n").into_bytes())
        };
        let leaf = prop_oneof![
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            bulk('$'),
            bulk('$'),
            Just(b"+OK\r\n".to_vec()),
            Just(b"$-1\r\n".to_vec()),
            Just(b"*-1\r\n".to_vec()),
            Just(b"_\r\n".to_vec()),
            Just(b"#t\r\n".to_vec()),
            Just(b",1.5\r\n".to_vec()),
            Just(b"(12345678901234567890\r\n".to_vec()),
            Just(b"=7\r\ntxt:abc\r\n".to_vec()),
            Just(b"!7\r\nERR bad\r\n".to_vec()),
            line("+"),
            line("-ERR "),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            let items = prop::collection::vec(inner, 0..5);
            (
                items,
                prop::sample::select(vec!['*', '*', '*', '~', '%', '|']),
            )
                .prop_map(|(items, sign)| {
                    let count = match sign {
                        '%' | '|' => items.len() / 2,
                        _ => items.len(),
                    };
                    let values = match sign {
                        '%' => 2 * count,
                        '|' => 2 * count + 1,
                        _ => count,
                    };
                    let mut bytes = format!("{sign}{count}\r\n").into_bytes();
                    let rest = std::iter::repeat(b":7\r\n".to_vec());
                    bytes.extend(items.into_iter().chain(rest).take(values).flatten());
                    bytes
                })
        })
    }

    proptest! {
        /// However the bytes are cut, a reply is found when its last byte is there and not before, and
        /// says what the library's parser says it does.
        #[test]
        fn a_reply_is_found_and_read_as_the_library_would(
            replies in prop::collection::vec(reply(), 1..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = replies.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let (mut framer, mut begin, mut found) = (Framer::default(), 0, Vec::new());
            for cut in cuts {
                while let Some(length) = framer.find(&bytes[begin..cut.max(begin)]).unwrap() {
                    found.push(bytes[begin..begin + length].to_vec());
                    begin += length;
                }
            }
            prop_assert_eq!(&found, &replies);
            for reply in replies {
                match redis::parse_redis_value(&reply) {
                    Ok(value) => prop_assert_eq!(read(&reply).unwrap(), value),
                    Err(_) => prop_assert!(read(&reply).is_err()),
                }
            }
        }

        /// Whatever arrives, it is looked at without a panic and never found longer than it is.
        #[test]
        fn anything_else_does_no_harm(bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"*$:-+_%|>~\r\n0123456789".to_vec())],
            0..200,
        )) {
            if let Ok(Some(length)) = Framer::default().find(&bytes) {
                prop_assert!(length <= bytes.len());
                let _ = read(&bytes[..length]);
            }
        }
    }

    #[test]
    fn what_no_server_says_is_refused() {
        let deep = b"*1\r\n".repeat(REPLY_MAX_DEPTH + 1);
        let long = [b"+", &*vec![b'x'; LINE_MAX_BYTES]].concat();
        let refused: [&[u8]; 9] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"\r\n",
            b"$-2\r\n",
            b"$x\r\n",
            b"*99999999999999999999\r\n",
            b"*\r\n",
            b":1\rx",
            &deep,
            &long,
        ];
        for bytes in refused {
            let refused = Framer::default().find(bytes).is_err();
            assert!(refused, "{}", String::from_utf8_lossy(bytes));
        }
        assert!(read(b"$3\r\nabcde").is_err(), "a text without its end");
        assert!(read(b"_\xff\r\n").is_err(), "nothing, and something");
    }

    fn refused(bytes: &[u8]) -> Option<Excess> {
        Excess::of(&Framer::default().find(bytes).unwrap_err())
    }

    #[test]
    fn a_reply_that_is_too_large_is_refused_when_it_is_announced() {
        let (bulk, array) = (REPLY_MAX_BYTES, REPLY_MAX_VALUES);
        for announced in [
            format!("${bulk}\r\n"),
            format!("!{bulk}\r\n"),
            format!("={bulk}\r\n"),
            format!("$60000000\r\n{}", "x".repeat(100)),
            format!("${}\r\n", i64::MAX),
            format!("*2\r\n:1\r\n${bulk}\r\n"),
            // None of them is too large, but all together are.
            format!(
                "*2\r\n${0}\r\n{1}\r\n${0}\r\n",
                bulk / 2,
                "x".repeat(bulk / 2)
            ),
        ] {
            assert_eq!(refused(announced.as_bytes()), Some(Excess::Bytes));
        }
        for announced in [
            format!("*{array}\r\n"),
            format!("~{array}\r\n"),
            format!(">{array}\r\n"),
            format!("%{}\r\n", array / 2),
            format!("|{}\r\n", i64::MAX),
            format!("*{}\r\n", i64::MAX),
            format!(
                "*2\r\n*{0}\r\n{1}*{0}\r\n",
                array / 2,
                "_\r\n".repeat(array as usize / 2)
            ),
        ] {
            assert_eq!(refused(announced.as_bytes()), Some(Excess::Values));
        }
        let deep = "*1\r\n".repeat(REPLY_MAX_DEPTH + 1);
        assert_eq!(refused(deep.as_bytes()), Some(Excess::Depth));
    }

    #[test]
    fn the_largest_replies_that_are_allowed_are_found() {
        let head = format!("${}\r\n", REPLY_MAX_BYTES - 12);
        let bulk = format!("{head}{}\r\n", "x".repeat(REPLY_MAX_BYTES - 12));
        assert_eq!(bulk.len(), REPLY_MAX_BYTES);
        let many = REPLY_MAX_VALUES - 1;
        let array = format!("*{many}\r\n{}", ":1\r\n".repeat(many as usize));
        let levels = "*1\r\n".repeat(REPLY_MAX_DEPTH);
        for (reply, values) in [
            (bulk, 1),
            (array, REPLY_MAX_VALUES),
            (format!("{levels}:1\r\n"), REPLY_MAX_DEPTH as u64 + 1),
        ] {
            // Twice: nothing of the first is counted for the second.
            let twice = [reply.as_bytes(), reply.as_bytes()].concat();
            let mut framer = Framer::default();
            for begin in [0, reply.len()] {
                assert_eq!(framer.find(&twice[begin..]).unwrap(), Some(reply.len()));
                assert_eq!(framer.values(), values);
            }
        }
    }

    #[test]
    fn a_reply_that_comes_byte_by_byte_is_searched_once() {
        let zeros = "0".repeat(LINE_MAX_BYTES - 100);
        for reply in [
            format!("-{}\r\n", "x".repeat(LINE_MAX_BYTES - 100)),
            // A header of many digits is not read again for each byte behind it.
            format!("${zeros}20000\r\n{}\r\n", "x".repeat(20_000)),
            format!("*5000\r\n{}", ":1\r\n".repeat(5_000)),
        ] {
            let mut framer = Framer::default();
            for end in 1..reply.len() {
                assert_eq!(framer.find(&reply.as_bytes()[..end]).unwrap(), None);
            }
            let found = framer.find(reply.as_bytes()).unwrap();
            assert_eq!(found, Some(reply.len()));
            assert!(framer.looked_at <= reply.len(), "{}", framer.looked_at);
        }
    }
}
