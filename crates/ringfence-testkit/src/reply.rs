//! The few lines of RESP with which a test talks to its server without the library.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Nil,
    List(Vec<Reply>),
    Error(String),
}

/// Sends one command and reads its reply.
pub(crate) fn ask(stream: &mut (impl Read + Write), command: &[&str]) -> io::Result<Reply> {
    let mut request = format!("*{}\r\n", command.len());
    for word in command {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    // One request, one reply: the buffer cannot contain the beginning of another.
    read(&mut BufReader::new(stream))
}

fn read(input: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end_matches("\r\n");
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| nonsense(line))?;
    match kind {
        "+" | ":" => Ok(Reply::Text(rest.to_owned())),
        "-" => Ok(Reply::Error(rest.to_owned())),
        "$" | "*" if rest == "-1" => Ok(Reply::Nil),
        "$" => read_text(input, length(rest)?),
        "*" => (0..length(rest)?)
            .map(|_| read(input))
            .collect::<io::Result<_>>()
            .map(Reply::List),
        _ => Err(nonsense(line)),
    }
}

fn read_text(input: &mut impl BufRead, length: usize) -> io::Result<Reply> {
    let mut bytes = vec![0; length + 2];
    input.read_exact(&mut bytes)?;
    bytes.truncate(length);
    Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

fn length(digits: &str) -> io::Result<usize> {
    digits.parse().map_err(|_| nonsense(digits))
}

fn nonsense(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP: {line:?}"))
}

/// As plain text: nil is empty, and a list has one line per item.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Error(text) => f.write_str(text),
            Self::Nil => Ok(()),
            Self::List(items) => items.iter().enumerate().try_for_each(|(index, item)| {
                let separator = if index == 0 { "" } else { "\n" };
                write!(f, "{separator}{item}")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &str) -> io::Result<Reply> {
        read(&mut bytes.as_bytes())
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let reply = parse("*5\r\n+OK\r\n:7\r\n$3\r\na\nb\r\n$-1\r\n-ERR no\r\n").unwrap();
        let text = |text: &str| Reply::Text(text.to_owned());
        let items = vec![
            text("OK"),
            text("7"),
            text("a\nb"),
            Reply::Nil,
            Reply::Error("ERR no".to_owned()),
        ];
        assert_eq!(reply, Reply::List(items));
        assert_eq!(reply.to_string(), "OK\n7\na\nb\n\nERR no");
    }

    #[test]
    fn an_incomplete_reply_is_an_error() {
        for bytes in ["", "$5\r\nab", "*2\r\n+OK\r\n", "$x\r\n", "?\r\n", "\r\n"] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
