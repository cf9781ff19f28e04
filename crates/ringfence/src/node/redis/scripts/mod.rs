//! The scripts: one Lua file per operation, and one per part that several share. A server finds a
//! script by its hash.

use std::sync::LazyLock;

use crate::ledger::SHARED;

use super::handshake::born::{LOSSLESS, VERSION};
use super::wire::wake_listeners::WAKE_CHANNEL;

/// The node's birth record.
pub(crate) const BORN_KEY: &str = "ringfence:born";

/// The purpose of the key of a name's record.
pub(crate) const RECORD: &str = "record";
/// The purpose of the key that says that a name may have a wait queue. The scripts replace it by
/// the other purposes: the two sets of the queue, and the two keys of the readers.
pub(crate) const QUEUE: &str = "queue";
pub(crate) const QUEUE_ORDER: &str = "queue-order";
pub(crate) const QUEUE_LEASES: &str = "queue-leases";
pub(crate) const READER_LEASES: &str = "readers";
const READER_LABELS: &str = "reader-labels";
/// The purpose of the key that lists the broken holds of a name.
pub(crate) const BROKEN: &str = "broken";
/// Every purpose.
pub(crate) const PURPOSES: [&str; 7] = [
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

/// [`crate::message::List::PAGES_MAX`] as text.
const PAGES_MAX: &str = "16";

/// Constants that the scripts share with the Rust code: the placeholder in a script, and the text
/// that replaces it before the script is sent.
const SCRIPT_CONSTANTS: [(&str, &str); 13] = [
    ("$RECORD_KEY", RECORD),
    ("$QUEUE_MARK", QUEUE),
    ("$QUEUE_ORDER", QUEUE_ORDER),
    ("$QUEUE_LEASES", QUEUE_LEASES),
    ("$READER_LEASES", READER_LEASES),
    ("$READER_LABELS", READER_LABELS),
    ("$BROKEN", BROKEN),
    ("$BREAKS_MAX", BREAKS_MAX),
    ("$PAGES_MAX", PAGES_MAX),
    ("$BORN_VERSION", VERSION),
    ("$LOSSLESS", LOSSLESS),
    ("$SHARED", SHARED),
    ("$WAKE_CHANNEL", WAKE_CHANNEL),
];

/// The placeholders of the scripts for a name's record: its version, and the patterns for its
/// fields.
///
/// A record is `2:fence:closed:free since:stranger`, followed by `:ballot:until:token:label` if it
/// has a seat. The label comes last because it may contain anything. A record with a read fence
/// begins with `3:fence:read fence:closed`; the rest is the same.
const RECORD_CONSTANTS: [(&str, &str); 10] = [
    ("$RECORD_VERSION", "2"),
    ("$VERSION_BYTE", "50"),
    // Fence and closed ballot.
    ("$RECORD_FENCES", "^2:(%d+):(%d+):"),
    // Fence, closed ballot, free since; of a record without a seat.
    ("$RECORD_FREE", "^2:(%d+):(%d+):(%d+):0$"),
    // Fence, closed ballot, ballot of the seat.
    (
        "$RECORD_BALLOTS",
        "^2:(%d+):(%d+):%d+:[01]:(%d+):%d+:[^:]+:",
    ),
    // Fence, token, label.
    (
        "$RECORD_HOLDER",
        "^2:(%d+):%d+:%d+:[01]:%d+:%d+:([^:]+):(.*)$",
    ),
    // Fence, closed ballot, free since, stranger, and the seat or nothing.
    ("$RECORD_PARTS", "^2:(%d+):(%d+):(%d+):([01])(.*)$"),
    // Ballot, until, token, label.
    ("$RECORD_SEAT", "^:(%d+):(%d+):([^:]+):(.*)$"),
    // With a read fence: the part before it, and the read fence.
    ("$RECORD_READERS", "^3:(%d+):(%d+):"),
    ("$RECORD_ALONE", "2:%1:"),
];

/// One script and its hash.
#[derive(Debug)]
pub(crate) struct Script {
    /// The Lua.
    pub(crate) text: String,
    /// SHA-1 of the Lua in hexadecimal, for `EVALSHA`.
    pub(crate) hash: String,
}

/// The text of a script: its files, one after the other. An operation on claims (`lock`) begins
/// with the same files as the others, then come parts that some operations share, then the
/// operation itself. A fast path (`fast`) comes before everything that only other calls need.
macro_rules! text {
    (lock $($part:ident)+) => { text!(found claims readers $($part)+) };
    (fast($($fast:ident)+) $($part:ident)+) => { text!(found $($fast)+ claims readers $($part)+) };
    ($($part:ident)+) => { concat!($(include_str!(concat!(stringify!($part), ".lua"))),+) };
}

macro_rules! scripts {
    ({ $($name:ident: [$($text:tt)+])+ } as a whole { $($rare:ident: [$($rare_text:tt)+])+ }) => {
        /// See [`SCRIPTS`].
        #[derive(Debug)]
        pub(crate) struct Scripts {
            $(pub(crate) $name: Script,)+
            $(pub(crate) $rare: Script,)+
        }

        /// Every script, ready to be called.
        pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            $($name: Script::new(text!($($text)+)),)+
            $($rare: Script::new(text!($($rare_text)+)),)+
        });

        impl Scripts {
            /// The scripts that are called by their hash. Every handshake loads them.
            pub(crate) fn by_hash(&self) -> Vec<&Script> {
                vec![$(&self.$name),+]
            }
        }
    };
}

scripts! {{
    acquire: [fast(limits fast_line fast_held fast_grant fast_acquire)
        write share seat line enter_queue notice enter acquire]
    // For a server in quarantine, which the fast path does not know.
    acquire_quarantined: [lock limits write share seat line enter_queue notice enter acquire]
    extend: [lock write share seat prolong not_held broken delay extend]
    downgrade: [lock write share seat prolong not_held broken line wake_client wake downgrade]
    release: [fast(fast_line fast_retire wake_client fast_release)
        write share unshare not_held line enter_queue notice enter retire wake delay release]
    restore: [lock write share seat prolong not_held broken restore]
    break_hold: [lock write share broken line wake_client wake slots served break]
    refresh: [lock write line enter_queue notice enter refresh]
    acquire_slot: [lock limits write seat line slots enter_queue slot_queue notice acquire_slot]
    release_slot: [lock write line slots enter_queue slot_queue retire wake_client served delay
        release_slot]
    refresh_slots: [lock write line slots enter_queue slot_queue notice refresh_slots]
    arrive: [lock latch wake_client arrive]
    attend: [lock write line enter_queue latch attend]
    inspect: [lock inspect]
    list: [lock broken list]
    rights: [rights]
    fast_bundle: [found fast_grant fast_retire fast_bundle]
    extend_bundle: [found extend_bundle]
    plain_extend: [plain_extend]
    plain_release: [plain_release]
    plain_release_bundle: [plain_release_bundle]
} as a whole {
    // Rare, so not worth a place in the server's cache.
    join: [info join]
    init: [info init]
}}

impl Scripts {
    /// The scripts of users who may only look, and may not send a script. Clients that take locks
    /// load them, although they seldom call them.
    pub(crate) fn of_lookers(&self) -> [&Script; 3] {
        [&self.inspect, &self.list, &self.rights]
    }
}

impl Script {
    fn new(text: &'static str) -> Self {
        let mut text = text.to_owned();
        for (name, value) in SCRIPT_CONSTANTS.into_iter().chain(RECORD_CONSTANTS) {
            text = text.replace(name, value);
        }
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_remember_as_many_breaks_as_the_ledger() {
        assert_eq!(BREAKS_MAX, crate::ledger::BREAKS_MAX.to_string());
        assert_eq!(PAGES_MAX, crate::message::List::PAGES_MAX.to_string());
    }

    #[test]
    fn every_constant_of_a_script_has_a_value() {
        let mut scripts = SCRIPTS.by_hash();
        scripts.extend([&SCRIPTS.join, &SCRIPTS.init]);
        for Script { text, .. } in &scripts {
            let named =
                |(at, _)| text[at + 1..].starts_with(|next: char| next.is_ascii_uppercase());
            assert!(!text.match_indices('$').any(named), "{text}");
        }
        for (name, value) in SCRIPT_CONSTANTS.into_iter().chain(RECORD_CONSTANTS) {
            let is_used = scripts.iter().any(|script| script.text.contains(value));
            assert!(is_used, "{name}");
        }
    }
}
