//! Names as nodes report them, which may be wrong or hostile.

use std::sync::Arc;

use super::{Name, RESERVED, SLOT};

impl Name {
    /// The name at `key`, as a node reports it: of a lock, or of a part of a semaphore or latch.
    /// `None` if no client of ours uses such a key.
    pub fn of_key(key: &str) -> Option<Self> {
        if !key.starts_with(RESERVED) {
            return Self::new("", key).ok();
        }
        let found = Self(Arc::from(key));
        let given = Self::new("", found.given()).ok()?;
        let same = match found.part_word()? {
            SLOT => given.slot(found.slot_number()?),
            "admission" => given.admission(),
            "latch" => given.latch(),
            _ => return None,
        };
        (same == found).then_some(found)
    }

    /// The number of the slot, if this is a slot of a semaphore.
    pub fn slot_number(&self) -> Option<u32> {
        match self.of_part()? {
            (SLOT, slot) => slot.split_once(':')?.0.parse().ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_name_or_part_is_read_back() {
        for given in ["x", "{x}y", "a}b", "}", "a:b", "slot:1:{x}", "latch"] {
            let name = Name::new("", given).unwrap();
            let parts = [name.admission(), name.slot(0), name.slot(41), name.latch()];
            for key in parts.into_iter().chain([name]) {
                assert_eq!(Name::of_key(key.as_str()), Some(key.clone()));
                assert_eq!(key.given(), given);
            }
        }
        let slot = Name::new("", "x").unwrap().slot(41);
        assert_eq!(slot.slot_number(), Some(41));
        assert_eq!(Name::of_key("x").unwrap().slot_number(), None);
    }

    #[test]
    fn a_key_that_no_client_writes_is_no_name() {
        let long = "x".repeat(1025);
        for key in [
            "",
            &long,
            "ringfence:born",
            "ringfence:{x}:record:x",
            "ringfence:{x}:slot:01:x",
            "ringfence:{x}:slot:x",
            "ringfence:{x}:slot:4294967296:x",
            "ringfence:{x}:latch:y",
            "ringfence:{x}:latch:",
            "ringfence:{x}:latch:ringfence:{x}:latch:x",
        ] {
            assert_eq!(Name::of_key(key), None, "{key}");
        }
    }
}
