//! The scripts: one Lua file per operation, and one per part that several share. A server finds a
//! script by its hash.

use std::sync::LazyLock;

use crate::node::redis::key::SCRIPT_CONSTANTS;
use crate::node::redis::record::RECORD_CONSTANTS;

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
