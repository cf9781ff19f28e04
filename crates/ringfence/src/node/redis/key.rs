//! Where a name's side record stands.

/// The node's birth record.
pub(super) const BORN_KEY: &str = "ringfence:born";

/// Stands before keys that have no hash tag and cannot be one. `{}` is an empty tag, so Redis hashes
/// the whole key; and because the CRC16 of this prefix is zero, it hashes to the slot of the rest.
const UNTAGGED_PREFIX: &str = "ringfence:{}onoi:";

/// The key of the side record of the lock at `key`, in the same cluster slot.
///
/// The whole key follows the tag, so that `x` and `{x}` do not share a record.
pub(super) fn record_key(key: &str) -> String {
    match hash_tag(key) {
        Some(tag) => format!("ringfence:{{{tag}}}:{key}"),
        None if key.contains('}') => format!("{UNTAGGED_PREFIX}{key}"),
        None => format!("ringfence:{{{key}}}:{key}"),
    }
}

/// Redis' rule: what stands between the first `{` and the first `}` after it, unless that is empty.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    }

    proptest! {
        #[test]
        fn a_record_is_in_the_slot_of_its_key(key in "[{}:ab]{1,12}|\\PC{1,20}") {
            prop_assert_eq!(slot(&record_key(&key)), slot(&key), "{}", record_key(&key));
        }

        #[test]
        fn no_two_keys_share_a_record(a in "[{}:ab]{1,8}", b in "[{}:ab]{1,8}") {
            prop_assert_eq!(record_key(&a) == record_key(&b), a == b);
        }
    }
}
