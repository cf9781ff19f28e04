//! The scripts, one Lua file per operation and one per part that several share, with the hashes under
//! which a server knows them.

use std::sync::LazyLock;

use crate::node::redis::key::SCRIPT_CONSTANTS;

/// One script and its hash.
#[derive(Debug)]
pub(crate) struct Script {
    /// The Lua.
    pub(crate) text: String,
    /// SHA-1 of the Lua, in hexadecimal: what `EVALSHA` takes.
    pub(crate) hash: String,
}

/// Every script, ready to be called.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    acquire: Script::new(lock_script!(
        fast "fast_line", "fast_held", "fast_grant", "fast_acquire";
        "write", "share", "seat", "line", "enter_queue", "notice", "enter", "acquire"
    )),
    extend: Script::new(lock_script!(
        "write", "share", "seat", "prolong", "not_held", "extend"
    )),
    downgrade: Script::new(lock_script!(
        "write",
        "share",
        "seat",
        "prolong",
        "not_held",
        "line",
        "wake_client",
        "wake",
        "downgrade"
    )),
    release: Script::new(lock_script!(
        fast "fast_line", "fast_retire", "wake_client", "fast_release";
        "write", "share", "unshare", "not_held", "line", "enter_queue", "notice", "enter", "retire",
        "wake", "release"
    )),
    restore: Script::new(lock_script!(
        "write", "share", "seat", "prolong", "not_held", "restore"
    )),
    refresh: Script::new(lock_script!(
        "write",
        "line",
        "enter_queue",
        "notice",
        "enter",
        "refresh"
    )),
    acquire_slot: Script::new(lock_script!(
        "write",
        "seat",
        "line",
        "slots",
        "enter_queue",
        "notice",
        "acquire_slot"
    )),
    release_slot: Script::new(lock_script!(
        "write",
        "line",
        "slots",
        "enter_queue",
        "retire",
        "wake_client",
        "release_slot"
    )),
    refresh_slots: Script::new(lock_script!(
        "write",
        "line",
        "slots",
        "enter_queue",
        "notice",
        "refresh_slots"
    )),
    arrive: Script::new(lock_script!("latch", "wake_client", "arrive")),
    attend: Script::new(lock_script!(
        "write",
        "line",
        "enter_queue",
        "latch",
        "attend"
    )),
    inspect: Script::new(lock_script!("inspect")),
    fast_bundle: Script::new(concat!(
        include_str!("found.lua"),
        include_str!("fast_grant.lua"),
        include_str!("fast_retire.lua"),
        include_str!("fast_bundle.lua")
    )),
    extend_bundle: Script::new(concat!(
        include_str!("found.lua"),
        include_str!("extend_bundle.lua")
    )),
    plain_extend: Script::new(include_str!("plain_extend.lua")),
    plain_release: Script::new(include_str!("plain_release.lua")),
    plain_release_bundle: Script::new(include_str!("plain_release_bundle.lua")),
    join: Script::new(include_str!("join.lua")),
    init: Script::new(include_str!("init.lua")),
});

/// See [`SCRIPTS`].
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) extend: Script,
    pub(crate) downgrade: Script,
    pub(crate) release: Script,
    pub(crate) restore: Script,
    pub(crate) refresh: Script,
    pub(crate) acquire_slot: Script,
    pub(crate) release_slot: Script,
    pub(crate) refresh_slots: Script,
    pub(crate) arrive: Script,
    pub(crate) attend: Script,
    pub(crate) inspect: Script,
    pub(crate) fast_bundle: Script,
    pub(crate) extend_bundle: Script,
    pub(crate) plain_extend: Script,
    pub(crate) plain_release: Script,
    pub(crate) plain_release_bundle: Script,
    /// Sent as a whole: rare, and not worth a place in the server's cache.
    pub(crate) join: Script,
    /// See `join`.
    pub(crate) init: Script,
}

impl Scripts {
    /// The scripts that are called by their hash, to be loaded at every handshake.
    pub(crate) fn by_hash(&self) -> [&Script; 17] {
        [
            &self.acquire,
            &self.extend,
            &self.downgrade,
            &self.release,
            &self.restore,
            &self.refresh,
            &self.acquire_slot,
            &self.release_slot,
            &self.refresh_slots,
            &self.arrive,
            &self.attend,
            &self.inspect,
            &self.fast_bundle,
            &self.extend_bundle,
            &self.plain_extend,
            &self.plain_release,
            &self.plain_release_bundle,
        ]
    }
}

impl Script {
    fn new(text: &'static str) -> Self {
        let mut text = text.to_owned();
        for (name, value) in SCRIPT_CONSTANTS {
            text = text.replace(name, value);
        }
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

/// The text of an operation on claims: they all begin alike, then come the parts that they share
/// with some, then the operation itself. Where most calls can end early, that part stands before
/// everything that only the others need.
macro_rules! lock_script {
    (fast $($fast:literal),+; $($part:literal),+) => {
        concat!(
            include_str!("found.lua"),
            $(include_str!(concat!($fast, ".lua")),)+
            include_str!("claims.lua"),
            include_str!("readers.lua"),
            $(include_str!(concat!($part, ".lua"))),+
        )
    };
    ($($part:literal),+) => {
        concat!(
            include_str!("found.lua"),
            include_str!("claims.lua"),
            include_str!("readers.lua"),
            $(include_str!(concat!($part, ".lua"))),+
        )
    };
}
use lock_script;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_of_a_script_has_a_value() {
        let mut scripts = SCRIPTS.by_hash().to_vec();
        scripts.extend([&SCRIPTS.join, &SCRIPTS.init]);
        for Script { text, .. } in &scripts {
            let named =
                |(at, _)| text[at + 1..].starts_with(|next: char| next.is_ascii_uppercase());
            assert!(!text.match_indices('$').any(named), "{text}");
        }
        for (name, value) in SCRIPT_CONSTANTS {
            let is_used = scripts.iter().any(|script| script.text.contains(value));
            assert!(is_used, "{name}");
        }
    }
}
