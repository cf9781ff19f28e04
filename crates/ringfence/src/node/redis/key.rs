//! Where a name's side record and its line stand.

use crate::ledger::SHARED;

use super::command::side_key;

/// The node's birth record.
pub(super) const BORN_KEY: &str = "ringfence:born";

/// What the name of every channel for wakes begins with.
pub(super) const WAKE_CHANNEL: &str = "ringfence:wake:";

/// Stands before keys that have no hash tag and cannot be one, behind `{}`. That is an empty tag, so
/// Redis hashes the whole key; and because the CRC16 of all that stands before it is zero, it hashes to
/// the slot of the rest.
pub(super) const UNTAGGED: &str = "onoi:";

/// The key of the side record of the lock at `key`, in the same cluster slot.
///
/// The whole key follows the tag, so that `x` and `{x}` do not share a record.
pub(super) fn record_key(key: &str) -> String {
    side_key(key, "").concat()
}

/// Stands behind the tag in the key of a wait queue's mark, where a record's key has nothing: such a key
/// belongs to no record. The scripts put the other words in its place: for the two sets of the queue,
/// and for the two keys of the readers. CRC16 runs through each word and comes out as it went in, so
/// that even without a tag the slot stays the same.
pub(super) const MARK_WORD: &str = "lineqclm";
const ORDER_WORD: &str = "rankjgpk";
const QUEUE_LEASES_WORD: &str = "tilllna";
const READER_LEASES_WORD: &str = "leasesaanc";
const READER_LABELS_WORD: &str = "whoavjp";
const SET_WORDS: [&str; 4] = [
    ORDER_WORD,
    QUEUE_LEASES_WORD,
    READER_LEASES_WORD,
    READER_LABELS_WORD,
];

/// What the scripts share with the rest of the program: the name that a script uses, and the text that
/// takes its place before the script is sent.
pub(super) const SCRIPT_CONSTANTS: [(&str, &str); 7] = [
    ("$QUEUE_MARK", MARK_WORD),
    ("$QUEUE_ORDER", ORDER_WORD),
    ("$QUEUE_LEASES", QUEUE_LEASES_WORD),
    ("$READER_LEASES", READER_LEASES_WORD),
    ("$READER_LABELS", READER_LABELS_WORD),
    ("$SHARED", SHARED),
    ("$WAKE_CHANNEL", WAKE_CHANNEL),
];

/// The keys of the record, of the line and of those who share, for the lock at `key`.
pub(super) fn side_keys(key: &str) -> impl Iterator<Item = String> {
    let words = ["", MARK_WORD].into_iter().chain(SET_WORDS);
    words.map(move |word| side_key(key, word).concat())
}

/// The channel on which `client` hears of its turns.
pub(super) fn wake_channel(client: &str) -> String {
    format!("{WAKE_CHANNEL}{client}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Cmd;

    use super::*;
    use crate::name::hash_tag;
    use crate::node::redis::command::{write_mark_key, write_record_key};

    fn mark_key(key: &str) -> String {
        side_key(key, MARK_WORD).concat()
    }

    /// CRC16/XMODEM, as the cluster specification has it.
    fn slot(key: &str) -> u16 {
        let hashed = hash_tag(key).unwrap_or(key);
        let crc = hashed.bytes().fold(0u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
            })
        });
        crc % 16384
    }

    #[test]
    fn the_slot_function_knows_the_specification_s_example() {
        assert_eq!(slot("123456789"), 0x31c3);
    }

    #[test]
    fn records_are_told_apart() {
        assert_eq!(record_key("x"), "ringfence:{x}:x");
        assert_eq!(record_key("{x}"), "ringfence:{x}:{x}");
        assert_eq!(record_key("a{b}c"), "ringfence:{b}:a{b}c");
        assert_eq!(record_key("{}"), "ringfence:{}onoi:{}");
        assert_eq!(record_key("{"), "ringfence:{{}:{");
        assert_eq!(mark_key("a{b}c"), "ringfence:{b}lineqclm:a{b}c");
        assert_eq!(mark_key("{}"), "ringfence:{}lineqclmonoi:{}");
    }

    #[test]
    fn a_key_is_written_as_it_is_said() {
        for key in ["x", "{x}", "a{b}c", "{}", "{", "}"] {
            let mut cmd = Cmd::new();
            write_record_key(key, &mut cmd);
            write_mark_key(key, &mut cmd);
            let mut said = Cmd::new();
            said.arg(record_key(key)).arg(mark_key(key));
            assert_eq!(cmd.get_packed_command(), said.get_packed_command());
        }
    }

    proptest! {
        #[test]
        fn a_record_is_in_the_slot_of_its_key(key in "[{}:ab]{1,12}|\\PC{1,20}") {
            prop_assert_eq!(slot(&record_key(&key)), slot(&key), "{}", record_key(&key));
        }

        #[test]
        fn a_line_is_in_the_slot_of_its_key(key in "[{}:ab]{1,12}|\\PC{1,20}") {
            let mark = mark_key(&key);
            for word in SET_WORDS {
                let part = mark.replacen(MARK_WORD, word, 1);
                prop_assert_eq!(slot(&part), slot(&key), "{}", part);
            }
            prop_assert_eq!(slot(&mark), slot(&key), "{}", mark);
        }

        #[test]
        fn a_line_is_nobody_s_record(a in "[{}:abonilqcm]{1,12}", b in "[{}:abonilqcm]{1,12}") {
            prop_assert_ne!(mark_key(&a), record_key(&b));
        }

        #[test]
        fn no_two_keys_share_a_record(a in "[{}:ab]{1,8}", b in "[{}:ab]{1,8}") {
            prop_assert_eq!(record_key(&a) == record_key(&b), a == b);
        }
    }
}
