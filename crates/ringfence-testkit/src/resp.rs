//! Just enough RESP to pair the commands of a client with the replies of its server. Both are
//! well-behaved here, so nothing is validated.

/// The length of the first value in `bytes`, if it is complete.
pub(crate) fn value_end(bytes: &[u8]) -> Option<usize> {
    let line = line_end(bytes)?;
    match bytes[0] {
        b'$' | b'=' | b'!' => {
            let end = match number(&bytes[1..line]) {
                length @ 0.. => line + length as usize + 2,
                _ => line,
            };
            (end <= bytes.len()).then_some(end)
        }
        b'*' | b'~' | b'>' => values_end(bytes, line, number(&bytes[1..line])),
        b'%' => values_end(bytes, line, 2 * number(&bytes[1..line])),
        _ => Some(line),
    }
}

/// The words of a complete command: an array of texts, or one line.
pub(crate) fn words(command: &[u8]) -> Vec<String> {
    if !command.starts_with(b"*") {
        let line = String::from_utf8_lossy(command);
        return line.split_whitespace().map(str::to_owned).collect();
    }
    let mut rest = &command[line_end(command).unwrap_or(command.len())..];
    let mut words = Vec::new();
    while let Some(end) = value_end(rest) {
        words.push(String::from_utf8_lossy(text(&rest[..end])).into_owned());
        rest = &rest[end..];
    }
    words
}

/// The values of a complete array; none of any other value.
pub(crate) fn items(array: &[u8]) -> Vec<&[u8]> {
    let mut items = Vec::new();
    if !array.starts_with(b"*") {
        return items;
    }
    let mut rest = &array[line_end(array).unwrap_or(array.len())..];
    while let Some(end) = value_end(rest) {
        let (item, behind) = rest.split_at(end);
        items.push(item);
        rest = behind;
    }
    items
}

/// The content of a complete text value. In RESP3 the server may put the format before it: `txt:`.
pub(crate) fn text(value: &[u8]) -> &[u8] {
    let begin = line_end(value).unwrap_or(value.len());
    let text = value.get(begin..value.len() - 2).unwrap_or_default();
    match value[0] {
        b'=' => text.get(4..).unwrap_or_default(),
        _ => text,
    }
}

/// `text` as a reply.
pub(crate) fn bulk(text: &[u8]) -> Vec<u8> {
    [
        format!("${}\r\n", text.len()).as_bytes(),
        text,
        b"\r\n".as_slice(),
    ]
    .concat()
}

fn values_end(bytes: &[u8], begin: usize, count: i64) -> Option<usize> {
    (0..count).try_fold(begin, |end, _| Some(end + value_end(&bytes[end..])?))
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(2)
        .position(|pair| pair == b"\r\n")
        .map(|at| at + 2)
}

fn number(line: &[u8]) -> i64 {
    let digits = String::from_utf8_lossy(line);
    digits.trim_end().parse().unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_every_kind_of_value_is_found_only_if_it_is_complete() {
        let values: [&[u8]; 11] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":7\r\n",
            b"_\r\n",
            b"$-1\r\n",
            b"$4\r\na\r\nb\r\n",
            b"=5\r\ntxt:x\r\n",
            b"*0\r\n",
            b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b">2\r\n+message\r\n+x\r\n",
        ];
        for value in values {
            let followed = [value, b":9\r\n".as_slice()].concat();
            assert_eq!(value_end(&followed), Some(value.len()), "{value:?}");
            for cut in 0..value.len() {
                assert_eq!(value_end(&value[..cut]), None, "{value:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn words_and_texts_are_read() {
        assert_eq!(words(b"PING\r\n"), ["PING"]);
        assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), ["GET", "k"]);
        assert_eq!(text(b"$2\r\nab\r\n"), b"ab");
        assert_eq!(text(b"=6\r\ntxt:ab\r\n"), b"ab");
        assert_eq!(text(&bulk(b"ab")), b"ab");
    }
}
