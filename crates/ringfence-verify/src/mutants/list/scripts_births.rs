//! The scripts of the Redis node that decide about births: `join` and `init`.

use super::{Mutant, edit};

const INIT: &str = "crates/ringfence/src/node/redis/scripts/init.lua";
const JOIN: &str = "crates/ringfence/src/node/redis/scripts/join.lua";

mutants! {
    /// `init` searches all keys for locks before it reports that there are none.
    LuaInitSearchCutShort:
        edit(INIT, "",
            "if not complete and mode ~= 'force' then",
            "if false then");

    /// A durable node skips the quarantine only if its record was written by a durable run.
    LuaDurableBefore:
        edit(JOIN, "",
            "is_birth = not (was_durable == '1' and durable and same_epoch)",
            "is_birth = not (durable and same_epoch)");

    /// A durable node skips the quarantine only if it is durable now.
    LuaDurableNow:
        edit(JOIN, "",
            "is_birth = not (was_durable == '1' and durable and same_epoch)",
            "is_birth = not (was_durable == '1' and same_epoch)");

    /// A durable node skips the quarantine only if it was never promoted.
    LuaNeverPromoted:
        edit(JOIN, "",
            "local replicated = was_replicated == '1' or moved or has_replicas or former_id",
            "local replicated = was_replicated == '1' or moved or has_replicas");

    /// The birth record of another run is not taken for the current run's.
    LuaRunNotCompared:
        edit(JOIN, "",
            "local same_run, same_epoch = stored_run == run_id,",
            "local same_run, same_epoch = true,");

    /// A client that may not run INFO changes no record of the same epoch.
    LuaUnseenChangesRecord:
        edit(JOIN, "",
            "if unseen and same_run and same_epoch then",
            "if false then");

    /// A server that was promoted during its run has a new birth, although its run id is the same.
    LuaBirthByRunIdAlone:
        edit(JOIN, "",
            "is_birth = not same_epoch or moved and (former_id or not remembers)",
            "is_birth = not same_epoch");

    /// If a server may have forgotten its promotion, another replication id is a new birth.
    LuaFormerIdForgotten:
        edit(JOIN, "",
            "is_birth = not same_epoch or moved and (former_id or not remembers)",
            "is_birth = not same_epoch or moved and former_id");

    /// A server that once had a replica stays marked as replicated.
    LuaReplicatedMarkForgotten:
        edit(JOIN, "",
            "local replicated = was_replicated == '1' or moved or has_replicas or former_id",
            "local replicated = moved or has_replicas or former_id");

    /// A server that once had a replica is not durable.
    LuaReplicaKeepsDurable:
        edit(JOIN, "",
            "local durable = lossless or synced and not replicated
             local quarantine_ms",
            "local durable = lossless or synced
             local quarantine_ms");

    /// Two births of one run are two incarnations.
    LuaBirthsAlike:
        edit(JOIN, "",
            "local later = string.format('%.0f', math.max(now, since + 1))",
            "local later = since");

    /// A client without Sentinels never overwrites a record that has an epoch.
    LuaEpochOverwritten:
        edit(JOIN, "",
            "if not stored_run or stored_epoch ~= '-' and epoch == '-' then",
            "if not stored_run then");

    /// Another configuration epoch of the Sentinels is a birth, within one run.
    LuaEpochNotCompared:
        edit(JOIN, "",
            "is_birth = not same_epoch or moved and (former_id or not remembers)",
            "is_birth = moved and (former_id or not remembers)");

    /// Another configuration epoch of the Sentinels is a birth, also of a durable server.
    LuaEpochOfDurableNotCompared:
        edit(JOIN, "",
            "is_birth = not (was_durable == '1' and durable and same_epoch)",
            "is_birth = not (was_durable == '1' and durable)");

    /// The number of Sentinels in the record is never lowered.
    LuaSentinelsLowered:
        edit(JOIN, "",
            "sentinels = string.format('%.0f', math.max(sentinels, stored_sentinels))",
            "sentinels = string.format('%.0f', sentinels)");

    /// A birth is written only on the server that the handshake looked at.
    LuaJoinsAnotherServer:
        edit(JOIN, "",
            r#"if server and string.match(server, '\nrun_id:(%x+)') ~= run_id
                 or id ~= replication_id or replication and not"#,
            "if replication and not");

    /// The birth record of another database is a birth.
    LuaBirthIgnoresDatabase:
        edit(JOIN, "",
            "if tonumber(stored_database) ~= tonumber(database) then",
            "if false then");
}
