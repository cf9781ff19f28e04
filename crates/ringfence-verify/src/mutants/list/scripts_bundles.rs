//! The scripts of the Redis node for batches and for plain locks.

use super::{Mutant, edit};

const EXTEND_BUNDLE: &str = "crates/ringfence/src/node/redis/scripts/extend_bundle.lua";
const PLAIN_EXTEND: &str = "crates/ringfence/src/node/redis/scripts/plain_extend.lua";
const PLAIN_RELEASE: &str = "crates/ringfence/src/node/redis/scripts/plain_release.lua";
const PLAIN_RELEASE_BUNDLE: &str =
    "crates/ringfence/src/node/redis/scripts/plain_release_bundle.lua";
const FAST_BUNDLE: &str = "crates/ringfence/src/node/redis/scripts/fast_bundle.lua";

mutants! {
    /// An extend in a batch does not shorten a lease.
    LuaBundleLeaseShortened:
        edit(EXTEND_BUNDLE, "",
            "if left >= 0 and left < ttl then",
            "if left >= 0 then");

    /// An extend in a batch raises the ballot in the holder's seat.
    LuaBundleExtendKeepsBallot:
        edit(EXTEND_BUNDLE, "",
            "higher = ballot <= ceiling and max(higher, ballot) or higher",
            "");

    /// A batch extends only locks of its own token.
    LuaBundleExtendIgnoresOwner:
        edit(EXTEND_BUNDLE, "",
            "if record and values[i] == token then",
            "if record and values[i] then");

    /// An extend does not shorten the lease of a plain lock.
    LuaPlainExtendShortens:
        edit(PLAIN_EXTEND, "",
            "if left >= 0 and left < tonumber(ARGV[2]) then",
            "if left >= 0 then");

    /// Only the owner releases a plain lock.
    LuaPlainReleaseIgnoresOwner:
        edit(PLAIN_RELEASE, "",
            "if value ~= ARGV[1] then
               return value and 'held' or 'gone'
             end
             redis.call('DEL', KEYS[1])",
            "redis.call('DEL', KEYS[1])");

    /// In a batch only the owner releases a plain lock.
    LuaPlainBundleIgnoresOwner:
        edit(PLAIN_RELEASE_BUNDLE, "",
            "if values[i] == ARGV[i] then",
            "if values[i] then");

    /// In a batch only the owner releases.
    LuaBundleReleaseIgnoresOwner:
        edit(FAST_BUNDLE, "",
            "elseif terms <= 0 and value == token and record then",
            "elseif terms <= 0 and value and record then");

    /// A batch does not pass waiters in the queue.
    LuaBundleJumpsQueue:
        edit(FAST_BUNDLE, "",
            "if values[marks + i] then",
            "if false then");

    /// In a batch a record lives longer than the key that it describes.
    LuaBundleKeyOutlivesRecord:
        edit(FAST_BUNDLE, "",
            "kept = ttl + 0 > retention + 0 and ends
               or string.format('%.0f', now_ms + retention),",
            "kept = string.format('%.0f', now_ms + retention),");

    /// In a batch a final release closes its ballot if something may still arrive.
    LuaBundleNeverCloses:
        edit(FAST_BUNDLE, "",
            "if terms < 0 then",
            "if false then");
}
