//! A command as the bytes that a server reads, written straight behind those of the command before.
//!
//! The client library's own [`Cmd`](redis::Cmd) holds the words of a command first and makes bytes of
//! them later. Whoever writes commands here writes them for both: see [`super::line`].

use std::fmt;
use std::io::{self, Write};

use redis::RedisWrite;

/// One command on its way into a buffer; whole once this is dropped.
pub(super) struct Packer<'a> {
    bytes: &'a mut Vec<u8>,
    begin: usize,
    words: usize,
}

/// One word of a command that is written piece by piece; whole once this is dropped.
struct Word<'a> {
    bytes: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Packer<'a> {
    /// A command behind what is in `bytes`.
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
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
        // Most are short, and grown one by one the buffer would be asked for room three times.
        self.bytes.reserve(arg.len() + HEAD_MAX + END.len());
        self.bytes
            .extend_from_slice(Head::new(b'$', arg.len()).as_bytes());
        self.bytes.extend_from_slice(arg);
        self.bytes.extend_from_slice(END);
    }

    fn write_arg_fmt(&mut self, arg: impl fmt::Display) {
        // What is written into memory does not fail.
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
        insert(self.bytes, self.begin, Head::new(b'*', self.words));
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
        insert(self.bytes, self.begin, Head::new(b'$', length));
    }
}

/// Puts `head` before what stands behind `at`. How long that would be was not known before.
fn insert(bytes: &mut Vec<u8>, at: usize, head: Head) {
    let (head, end) = (head.as_bytes(), bytes.len());
    bytes.resize(end + head.len(), 0);
    bytes.copy_within(at..end, at + head.len());
    bytes[at..at + head.len()].copy_from_slice(head);
}

const END: &[u8] = b"\r\n";
/// A sign, the digits of the largest number, and the end.
const HEAD_MAX: usize = 1 + 20 + END.len();

/// What stands before a command or a word: how many there are of what follows. Written from the end.
struct Head {
    bytes: [u8; HEAD_MAX],
    begin: usize,
}

impl Head {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Cmd;

    use super::*;

    /// How a word is written.
    #[derive(Debug, Clone)]
    enum Way {
        Whole(Vec<u8>),
        Shown(u64),
        InPieces(Vec<Vec<u8>>),
    }

    fn word() -> impl Strategy<Value = Way> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..120);
        prop_oneof![
            bytes().prop_map(Way::Whole),
            any::<u64>().prop_map(Way::Shown),
            prop::collection::vec(bytes(), 0..4).prop_map(Way::InPieces),
        ]
    }

    fn write(words: &[Way], out: &mut impl RedisWrite) {
        for word in words {
            match word {
                Way::Whole(bytes) => out.write_arg(bytes),
                Way::Shown(number) => out.write_arg_fmt(number),
                Way::InPieces(pieces) => {
                    let mut word = out.writer_for_next_arg();
                    for piece in pieces {
                        word.write_all(piece).unwrap();
                    }
                }
            }
        }
    }

    proptest! {
        /// The library makes the same bytes of the same words.
        #[test]
        fn commands_are_packed_as_the_library_would(
            commands in prop::collection::vec(prop::collection::vec(word(), 1..130), 1..4),
        ) {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for words in commands {
                write(&words, &mut Packer::new(&mut ours));
                let mut cmd = Cmd::new();
                write(&words, &mut cmd);
                theirs.extend(cmd.get_packed_command());
            }
            prop_assert_eq!(ours, theirs);
        }
    }
}
