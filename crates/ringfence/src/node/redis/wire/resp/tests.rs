use proptest::prelude::*;
use redis::Cmd;

use super::*;

/// A reply that a server may send, as bytes.
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
    let line =
        |sign: &'static str| text().prop_map(move |text| format!("{sign}{text}\r\n").into_bytes());
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
    /// A reply is found when its last byte has arrived and not before, in any pieces, and reads as
    /// with the parser of the crate `redis`.
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
                Ok(value) => prop_assert_eq!(read_value(&reply).unwrap(), value),
                Err(_) => prop_assert!(read_value(&reply).is_err()),
            }
        }
    }

    /// No input causes a panic, and no reply is found to be longer than the input.
    #[test]
    fn no_input_causes_a_panic(bytes in prop::collection::vec(
        prop_oneof![any::<u8>(), prop::sample::select(b"*$:-+_%|>~\r\n0123456789".to_vec())],
        0..200,
    )) {
        if let Ok(Some(length)) = Framer::default().find(&bytes) {
            prop_assert!(length <= bytes.len());
            let _ = read_value(&bytes[..length]);
        }
    }
}

#[test]
fn malformed_replies_are_refused() {
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
    assert!(
        read_value(b"$3\r\nabcde").is_err(),
        "a text without its end"
    );
    assert!(read_value(b"_\xff\r\n").is_err(), "nothing, and something");
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
        // None of them is too large, but all of them together are.
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
        // Twice: the first reply must not count for the second.
        let twice = [reply.as_bytes(), reply.as_bytes()].concat();
        let mut framer = Framer::default();
        for begin in [0, reply.len()] {
            assert_eq!(framer.find(&twice[begin..]).unwrap(), Some(reply.len()));
            assert_eq!(framer.values, values);
        }
    }
}

#[test]
fn a_reply_that_arrives_byte_by_byte_is_searched_once() {
    let zeros = "0".repeat(LINE_MAX_BYTES - 100);
    for reply in [
        format!("-{}\r\n", "x".repeat(LINE_MAX_BYTES - 100)),
        // A header of many digits is not read again for each following byte.
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
    /// The crate `redis` encodes the same words to the same bytes.
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

#[test]
fn an_excess_is_known_again_as_an_error() {
    for excess in Excess::ALL {
        assert_eq!(Excess::of(&RedisError::from(excess)), Some(excess));
    }
    let other = (ErrorKind::Client, "the server sent too much");
    assert_eq!(Excess::of(&RedisError::from(other)), None);
}
