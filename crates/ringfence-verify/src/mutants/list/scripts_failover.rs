//! The scripts of the Redis node in the quarantine of a single server with a failover behind it.

use super::{Mutant, edit};

const ACQUIRE: &str = "crates/ringfence/src/node/redis/scripts/acquire.lua";
const ACQUIRE_SLOT: &str = "crates/ringfence/src/node/redis/scripts/acquire_slot.lua";
const BUNDLE: &str = "crates/ringfence/src/node/redis/scripts/fast_bundle.lua";
const LIMITS: &str = "crates/ringfence/src/node/redis/scripts/limits.lua";
const RESTORE: &str = "crates/ringfence/src/node/redis/scripts/restore.lua";

mutants! {
    /// The only node grants nothing in its quarantine.
    LuaQuarantinedNodeGrants:
        edit(ACQUIRE, "",
            "if clock < grants_from then",
            "if false then");

    /// In the quarantine the node enters the ticket of a waiter.
    LuaQuarantineForgetsTicket:
        edit(ACQUIRE, "",
            "if ticket then
               enter(token, { ticket }, lease_ms)",
            "if ticket and clock >= grants_from then
               enter(token, { ticket }, lease_ms)");

    /// The only node grants no slot in its quarantine.
    LuaQuarantinedNodeGrantsSlots:
        edit(ACQUIRE_SLOT, "",
            "if clock < grants_from then",
            "if false then");

    /// A bundle grants nothing in the quarantine.
    LuaBundleGrantsInQuarantine:
        edit(BUNDLE, "",
            "local may_grant = clock >= grants_from and clock <= not_after",
            "local may_grant = clock <= not_after");

    /// A bundle grants nothing after the time that a caller allowed.
    LuaBundleGrantsLate:
        edit(BUNDLE, "",
            "local may_grant = clock >= grants_from and clock <= not_after",
            "local may_grant = clock >= grants_from");

    /// A node does not execute an acquire after the time that its caller allowed.
    LuaLateAcquireExecuted:
        edit(LIMITS, "",
            "if clock > not_after then",
            "if false then");

    /// A restore replaces a holder only in a quarantine.
    LuaRestoreReplacesOutsideQuarantine:
        edit(RESTORE, "",
            "if clock < grants_from and conflicts and seat_now and seat_now.ballot < ballot then",
            "if conflicts and seat_now and seat_now.ballot < ballot then");

    /// A restore replaces only a holder with a lower ballot.
    LuaRestoreReplacesNewer:
        edit(RESTORE, "",
            "if clock < grants_from and conflicts and seat_now and seat_now.ballot < ballot then",
            "if clock < grants_from and conflicts and seat_now then");

    /// A restore never replaces a value without a ballot.
    LuaRestoreReplacesForeign:
        edit(RESTORE, "",
            "if clock < grants_from and conflicts and seat_now and seat_now.ballot < ballot then",
            "if clock < grants_from and conflicts and (not seat_now or seat_now.ballot < ballot)
             then");
}
