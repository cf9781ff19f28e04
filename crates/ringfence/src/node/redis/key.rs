//! The keys that a Redis node uses beside the lock's own key, and the channels for wakes.
//!
//! Every side key is `ringfence:{tag}:purpose:NAME`. The tag is the hash tag of the name, or the
//! whole name, so that all keys of a name have one hash tag. It contains no `}`, the purpose
//! contains no `:`, and the name comes last: no two names or purposes share a key.

use crate::ledger::SHARED;
use crate::name::{Name, side_key_tag};

use super::handshake::born::{LOSSLESS, VERSION};

/// The node's birth record.
pub(super) const BORN_KEY: &str = "ringfence:born";

/// The beginning of the name of every channel for wakes.
pub(super) const WAKE_CHANNEL: &str = "ringfence:wake:";

/// The purpose of the key of a name's record.
pub(super) const RECORD: &str = "record";
/// The purpose of the key that says that a name may have a wait queue. The scripts replace it by
/// the other purposes: the two sets of the queue, and the two keys of the readers.
pub(super) const QUEUE: &str = "queue";
const QUEUE_ORDER: &str = "queue-order";
const QUEUE_LEASES: &str = "queue-leases";
const READER_LEASES: &str = "readers";
const READER_LABELS: &str = "reader-labels";
/// The purpose of the key that lists the broken holds of a name.
pub(super) const BROKEN: &str = "broken";
const PURPOSES: [&str; 7] = [
    RECORD,
    QUEUE,
    QUEUE_ORDER,
    QUEUE_LEASES,
    READER_LEASES,
    READER_LABELS,
    BROKEN,
];

/// [`crate::ledger::BREAKS_MAX`] as text.
const BREAKS_MAX: &str = "64";

/// Constants that the scripts share with the Rust code: the placeholder in a script, and the text
/// that replaces it before the script is sent.
pub(super) const SCRIPT_CONSTANTS: [(&str, &str); 12] = [
    ("$RECORD_KEY", RECORD),
    ("$QUEUE_MARK", QUEUE),
    ("$QUEUE_ORDER", QUEUE_ORDER),
    ("$QUEUE_LEASES", QUEUE_LEASES),
    ("$READER_LEASES", READER_LEASES),
    ("$READER_LABELS", READER_LABELS),
    ("$BROKEN", BROKEN),
    ("$BREAKS_MAX", BREAKS_MAX),
    ("$BORN_VERSION", VERSION),
    ("$LOSSLESS", LOSSLESS),
    ("$SHARED", SHARED),
    ("$WAKE_CHANNEL", WAKE_CHANNEL),
];

/// The pieces of the key for `purpose` of the lock at `key`. `tag` is the key's [`side_key_tag`].
pub(super) fn side_key_parts<'a>(tag: &'a str, purpose: &'a str, key: &'a str) -> [&'a str; 6] {
    [SIDE_KEYS, tag, "}:", purpose, ":", key]
}

/// The key of the record of the lock at `key`.
pub(super) fn record_key(key: &str) -> String {
    side_key(key, RECORD)
}

/// Every side key of the lock at `key`: record, wait queue and readers.
pub(super) fn side_keys(key: &str) -> impl Iterator<Item = String> {
    PURPOSES
        .into_iter()
        .map(move |purpose| side_key(key, purpose))
}

fn side_key(key: &str, purpose: &str) -> String {
    side_key_parts(&side_key_tag(key), purpose, key).concat()
}

/// The beginning of every side key.
pub(super) const SIDE_KEYS: &str = "ringfence:{";

/// The name of the lock, slot or latch that is held or queued for by a write of `key`. `None` if it
/// says nothing of that, or another program uses the key.
pub(super) fn changed_name(key: &str) -> Option<Name> {
    let (_, rest) = key.strip_prefix(SIDE_KEYS)?.split_once("}:")?;
    let (purpose, name) = rest.split_once(':')?;
    match purpose {
        RECORD | QUEUE => Name::of_key(name),
        "slot" | "latch" => Name::of_key(key),
        _ => None,
    }
}

/// The channel on which `client` receives wakes.
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

    /// Keys with every kind of brace, and with our own words and separators.
    const ODD_KEYS: &str = "([{}:ab]|}:record:|}:queue:|slot:1:|ringfence:){1,8}";

    fn mark_key(key: &str) -> String {
        side_key(key, QUEUE)
    }

    #[test]
    fn the_scripts_remember_as_many_breaks_as_the_ledger() {
        assert_eq!(BREAKS_MAX, crate::ledger::BREAKS_MAX.to_string());
    }

    #[test]
    fn an_operator_can_read_the_keys() {
        assert_eq!(record_key("x"), "ringfence:{x}:record:x");
        assert_eq!(record_key("{x}"), "ringfence:{x}:record:{x}");
        assert_eq!(record_key("a{b}c"), "ringfence:{b}:record:a{b}c");
        assert_eq!(record_key("{}"), "ringfence:{{}:record:{}");
        assert_eq!(record_key("{"), "ringfence:{{}:record:{");
        assert_eq!(record_key("a}b"), "ringfence:{ab}:record:a}b");
        assert_eq!(record_key("}"), "ringfence:{-}:record:}");
        assert_eq!(mark_key("a{b}c"), "ringfence:{b}:queue:a{b}c");
        assert_eq!(side_key("x", QUEUE_ORDER), "ringfence:{x}:queue-order:x");
        assert_eq!(side_key("x", READER_LEASES), "ringfence:{x}:readers:x");
    }

    #[test]
    fn a_key_is_written_to_a_command_unchanged() {
        for key in ["x", "{x}", "a{b}c", "{}", "{", "}", "a}b"] {
            let mut cmd = Cmd::new();
            write_record_key(key, &mut cmd);
            write_mark_key(key, &mut cmd);
            let mut expected = Cmd::new();
            expected.arg(record_key(key)).arg(mark_key(key));
            assert_eq!(cmd.get_packed_command(), expected.get_packed_command());
        }
    }

    #[test]
    fn a_write_tells_which_name_has_changed() {
        let name = Name::new("", "a{b}c").unwrap();
        for part in [name.clone(), name.slot(3), name.admission(), name.latch()] {
            for purpose in [RECORD, QUEUE] {
                let key = side_key(part.as_str(), purpose);
                assert_eq!(changed_name(&key).as_ref(), Some(&part), "{key}");
            }
            for purpose in [QUEUE_ORDER, QUEUE_LEASES, READER_LEASES, BROKEN] {
                assert_eq!(changed_name(&side_key(part.as_str(), purpose)), None);
            }
        }
        for part in [name.slot(3), name.latch()] {
            assert_eq!(changed_name(part.as_str()).as_ref(), Some(&part));
        }
        for other in [
            "",
            "ringfence:born",
            "ringfence:{x",
            "ringfence:{x}",
            "ringfence:{x}:y",
        ] {
            assert_eq!(changed_name(other), None, "{other}");
        }
    }

    proptest! {
        /// The server names any key that begins as ours do.
        #[test]
        fn a_key_of_another_program_is_no_problem(key in "ringfence:\\{[{}:a]{0,6}|\\PC{0,20}") {
            changed_name(&key);
        }

        /// A server hashes only the tag. A name with a tag, or without `}`, hashes to the same
        /// slot.
        #[test]
        fn all_side_keys_of_a_name_have_its_hash_tag(key in "[{}:ab]{1,12}|\\PC{1,20}") {
            for side_key in side_keys(&key) {
                prop_assert_eq!(hash_tag(&side_key), Some(&*side_key_tag(&key)));
            }
            if let Some(tag) = hash_tag(&key) {
                prop_assert_eq!(side_key_tag(&key), tag);
            } else if !key.contains('}') {
                prop_assert_eq!(side_key_tag(&key), key.as_str());
            }
        }

        /// As `line.lua` and `fast_line.lua` do it.
        #[test]
        fn the_scripts_find_the_purpose_behind_the_first_brace(key in ODD_KEYS) {
            for purpose in PURPOSES {
                let from_mark = mark_key(&key).replacen("}:queue", &format!("}}:{purpose}"), 1);
                prop_assert_eq!(from_mark, side_key(&key, purpose));
            }
        }

        #[test]
        fn no_two_names_or_purposes_share_a_key(a in ODD_KEYS, b in ODD_KEYS) {
            for (i, one) in all_keys(&a).into_iter().enumerate() {
                for (j, other) in all_keys(&b).iter().enumerate() {
                    prop_assert_eq!(one == *other, i == j && a == b, "{} {}", one, other);
                }
            }
        }
    }

    /// The keys of the lock, the semaphore and the latch of one name.
    fn all_keys(name: &str) -> Vec<String> {
        let mut keys = vec![name.to_owned()];
        keys.extend(side_keys(name));
        if let Ok(name) = Name::new("", name) {
            for part in [name.admission(), name.slot(0), name.slot(1), name.latch()] {
                keys.push(part.as_str().to_owned());
                keys.extend(side_keys(part.as_str()));
            }
        }
        keys
    }
}
