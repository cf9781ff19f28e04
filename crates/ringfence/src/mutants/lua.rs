//! Where a rule is kept in a script: the piece of its text that is replaced, and what takes its place.

use super::{Mutant, is_chosen};

use Mutant::*;

/// The text of a script, broken if the chosen mutant breaks it.
pub fn mutated(text: &'static str) -> &'static str {
    let mut broken = text.to_owned();
    for (mutant, piece, instead) in PIECES {
        if is_chosen(*mutant) {
            broken = broken.replace(piece, instead);
        }
    }
    match broken == text {
        true => text,
        false => broken.leak(),
    }
}

/// Each piece stands in one script file, once.
const PIECES: &[(Mutant, &str, &str)] = &[
    (
        LuaBornNotChecked,
        "if values[#KEYS] ~= ARGV[1] then",
        "if false then",
    ),
    (
        LuaFenceNotChecked,
        "if ballot <= math.max(records[i].fence, shares[i] and 0 or records[i].read_fence) then",
        "if false then",
    ),
    (
        LuaSwiftFenceNotChecked,
        "if fence and ballot > math.max(ground, tonumber(fence)) and ballot <= ceiling",
        "if fence and ballot <= ceiling",
    ),
    (
        LuaRecordPinsFloor,
        "record.fence = math.max(ground, tonumber(fence))",
        "record.fence = tonumber(fence)",
    ),
    (
        LuaCeilingNotChecked,
        "elseif ballot > ceiling then\n      ahead = true",
        "elseif false then\n      ahead = true",
    ),
    (
        LuaSwiftCeilingNotChecked,
        "if fence and ballot > math.max(ground, tonumber(fence)) and ballot <= ceiling",
        "if fence and ballot > math.max(ground, tonumber(fence))",
    ),
    (
        LuaStoredAboveCeiling,
        "elseif ballot <= ceiling then\n    record.fence",
        "elseif true then\n    record.fence",
    ),
    (
        LuaWriterIgnoresReadFence,
        "if ballot <= math.max(records[i].fence, shares[i] and 0 or records[i].read_fence) then",
        "if ballot <= records[i].fence then",
    ),
    (
        LuaReaderRaisesWriteFence,
        "mark_shared(i, leases, who, ballot, ballot, true)",
        "mark_shared(i, leases, who, ballot, ballot, false)",
    ),
    (
        LuaStrangeMarkerIsFree,
        "values[i] = SHARED .. ' of another program'",
        "values[i] = redis.call('DEL', KEYS[i]) < 0",
    ),
    (
        LuaAnyTokenHolds,
        "local ours = values[i] == token or shares[i] and mine[i]",
        "local ours = values[i] or shares[i] and mine[i]",
    ),
    (
        LuaLowerBallotRegranted,
        "elseif ours and ballot < hers then",
        "elseif false then",
    ),
    (
        LuaLeaseShortened,
        "if left >= 0 and left < ttl then",
        "if left >= 0 then",
    ),
    (
        LuaShareShortened,
        "until_ms = math.max(until_ms, mine[i] and mine[i].until_ms or 0)",
        "",
    ),
    (
        LuaExtendRecreates,
        "if held or gone then\n  return reply('gone')",
        "if held then\n  return reply('gone')",
    ),
    (
        LuaExtendKeepsBallot,
        "local higher = ballot <= ceiling and math.max(kept.ballot, ballot) or kept.ballot",
        "local higher = kept.ballot",
    ),
    (
        LuaBundleExtendKeepsBallot,
        "hers = ballot <= ceiling and max(tonumber(hers), ballot) or tonumber(hers)",
        "hers = tonumber(hers)",
    ),
    (
        LuaBundleExtendIgnoresOwner,
        "if record and values[i] == token then",
        "if record and values[i] then",
    ),
    (
        LuaReleaseIgnoresOwner,
        "local ours = values[i] == token or reader",
        "local ours = values[i] or reader",
    ),
    (
        LuaReleaseIgnoresBallot,
        "if hers and hers.ballot > ballot then",
        "if false then",
    ),
    (
        LuaSwiftReleaseIgnoresBallot,
        "if owner == ARGV[4] and tonumber(hers) <= ballot and ballot <= ceiling",
        "if owner == ARGV[4] and ballot <= ceiling",
    ),
    (
        LuaNoRetirement,
        "write(i, (ours or fate_unknown) and ballot or 0, key_left, kept, since)\n  end\n  if lines",
        "write(i, ours and ballot or 0, key_left, kept, since)\n  end\n  if lines",
    ),
    (
        LuaRetireAlways,
        "elseif ours or final or fate_unknown then",
        "else",
    ),
    (
        LuaRetireAlways,
        "write(i, (ours or fate_unknown) and ballot or 0, key_left, kept, since)\n  end\n  if lines",
        "write(i, ballot, key_left, kept, since)\n  end\n  if lines",
    ),
    (
        LuaReaderNotClosed,
        "  if final and fate_unknown and ballot <= ceiling then",
        "  if false then",
    ),
    (
        LuaKeptOnlyWhereHeld,
        "if keep > 0 and ours or anew then",
        "if keep > 0 and ours then",
    ),
    (
        LuaKeptAfterClosed,
        "not values[i] and ballot > record.closed",
        "not values[i]",
    ),
    (
        LuaFinalReleaseNotClosed,
        "      record.closed = math.max(record.closed, ballot)\n    end\n    write",
        "    end\n    write",
    ),
    (
        LuaSwiftReleaseNotClosed,
        "closed = tonumber(closed) > ballot and closed or ARGV[5]",
        "",
    ),
    (
        LuaUndoSetsFreeSince,
        "since = final and now_ms or record.free_since\n    end\n    -- The lease",
        "since = now_ms\n    end\n    -- The lease",
    ),
    (
        LuaUndoWakesSender,
        "tell(i, stays and ticket, false)",
        "tell(i, nil, false)",
    ),
    (
        LuaRestoreIgnoresClosed,
        "if ballot <= records[i].closed then",
        "if false then",
    ),
    (
        LuaTryLockJumpsQueue,
        "local queue = not ours and lines[i] and ahead_of(i, ticket) or 0",
        "local queue = not ours and lines[i] and ticket and ahead_of(i, ticket) or 0",
    ),
    (
        LuaSwiftJumpsQueue,
        "its_turn = redis.call('ZRANK', order, ticket) == 0",
        "its_turn = true",
    ),
    (
        LuaSwiftLapsedCounts,
        "if redis.call('ZCOUNT', lease, 0, now_ms - 1) > 0 then",
        "if false then",
    ),
    (
        LuaSwiftStrangerNamed,
        "if id and owner == values[1] and tonumber(fence) <= MAX then",
        "if id and owner then",
    ),
    (
        LuaSwiftLineFades,
        "if order and ticket and alone and kept_until >= now_ms + 2 * ARGV[8]",
        "if order and ticket and alone",
    ),
    (
        LuaSwiftTicketStays,
        "elseif ticket and redis.call('ZREM', lease, ticket) > 0 then",
        "elseif false then",
    ),
    (
        LuaHolderStaysInLine,
        "local gone, since = { ticket }, queue > 0 and free_since(i)",
        "local gone, since = {}, queue > 0 and free_since(i)",
    ),
    (
        LuaSwiftHolderStaysInLine,
        "redis.call('ZREM', lease, ticket)\n      redis.call('ZREM', order, ticket)",
        "redis.call('ZADD', lease, now_ms + ARGV[8], ticket)",
    ),
    (
        LuaUndoLosesPlace,
        "enter(token, { ticket }, tonumber(ARGV[11]))",
        "",
    ),
    (
        LuaSwiftRunnerUpNotTold,
        "if other ~= ticket and told < 2 then",
        "if other ~= ticket and told < 1 then",
    ),
    (
        LuaDeadHeadBlocks,
        "pass_at = free_since(i) + queue * string.match(ARGV[1], '%d+$')",
        "pass_at = nil",
    ),
    (
        LuaOldTicketAccepted,
        "if ticket and ARGV[9] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock then",
        "if false then",
    ),
    (
        LuaSwiftOldTicketAccepted,
        "and (ARGV[9] == '0' or string.sub(ticket, 1, 20) + 1000000 >= clock) then",
        "then",
    ),
    (
        LuaOldTicketCannotReturn,
        "if ticket and ARGV[9] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock then",
        "if ticket and string.sub(ticket, 1, 20) + 1000000 < clock then",
    ),
    (
        LuaKeyOutlivesRecord,
        "redis.call('SET', KEYS[claims + i], text, 'PX', math.max(tonumber(ARGV[3]), key_left))",
        "redis.call('SET', KEYS[claims + i], text, 'PX', ARGV[3])",
    ),
    (
        LuaNamedSlotReplaced,
        "local held = asked or #free == 0 and 0",
        "asked = asked and not values[asked + 2] and asked\n  local held = asked or #free == 0 and 0",
    ),
    (
        LuaSlotJumpsQueue,
        "passing = ahead >= #free",
        "passing = false",
    ),
    (
        LuaLatchMadeUnasked,
        "if not (made or since) or not ARGV[8] then",
        "since = since or not made and clock or nil\nif not ARGV[8] then",
    ),
    (
        LuaLatchAgeNotKept,
        "made = math.min(made or since, since or made)",
        "made = made or since",
    ),
    (
        LuaDurableBefore,
        "is_birth = not (lasted == '1' and durable)",
        "is_birth = not durable",
    ),
    (
        LuaDurableNow,
        "is_birth = not (lasted == '1' and durable)",
        "is_birth = lasted ~= '1'",
    ),
    (
        LuaNeverPromoted,
        "local replicated = marked == '1' or moved or has_replicas or former_id",
        "local replicated = marked == '1' or moved or has_replicas",
    ),
    (
        LuaRunNotCompared,
        "local same_run = owner == run_id",
        "local same_run = true",
    ),
    (
        LuaBirthByRunIdAlone,
        "is_birth = moved and (former_id or not remembers)",
        "is_birth = false",
    ),
    (
        LuaFormerIdForgotten,
        "is_birth = moved and (former_id or not remembers)",
        "is_birth = moved and former_id",
    ),
    (
        LuaReplicatedMarkForgotten,
        "local replicated = marked == '1' or moved or has_replicas or former_id",
        "local replicated = moved or has_replicas or former_id",
    ),
    (
        LuaReplicaKeepsDurable,
        "local durable = synced and not replicated\nlocal quarantine_ms",
        "local durable = synced\nlocal quarantine_ms",
    ),
    (
        LuaBirthsAlike,
        "local later = string.format('%.0f', math.max(now, since + 1))",
        "local later = since",
    ),
    (
        LuaEpochOverwritten,
        "if not owner or epoch ~= '-' then",
        "if not owner then",
    ),
    (
        LuaJoinsAnotherServer,
        "if string.match(server, '\\nrun_id:(%x+)') ~= run_id or id ~= replication_id\n  or not",
        "if not",
    ),
    (
        LuaReplicationIdNotCompared,
        "if type(info) ~= 'string' or not string.find(info, '\\nrole:master\\r', 1, true)\n    or not string.find(info, '\\nmaster_replid:' .. (id or '') .. '\\r', 1, true) then",
        "if false then",
    ),
    (
        LuaPlainReleaseIgnoresOwner,
        "if value ~= ARGV[1] then\n  return value and 'held' or 'gone'\nend\nredis.call('DEL', KEYS[1])",
        "redis.call('DEL', KEYS[1])",
    ),
    (
        LuaPlainBundleIgnoresOwner,
        "if values[i] == ARGV[i] then",
        "if values[i] then",
    ),
    (
        LuaBundleFenceNotChecked,
        "if fence and ballot > ground and ballot > tonumber(fence)\n",
        "if fence\n",
    ),
    (
        LuaBundleCeilingNotChecked,
        "if values[2 * calls + i] or ballot > ceiling then",
        "if values[2 * calls + i] then",
    ),
    (
        LuaBundleJumpsQueue,
        "if values[2 * calls + i] or ballot > ceiling then",
        "if ballot > ceiling then",
    ),
    (
        LuaBundleReleaseIgnoresOwner,
        "elseif terms == 0 and value == token and record then",
        "elseif terms == 0 and value and record then",
    ),
    (
        LuaBundleReleaseIgnoresBallot,
        "if hers and (hers == text or tonumber(hers) <= ballot)\n",
        "if hers\n",
    ),
    (
        LuaBundleReleaseNotClosed,
        "closed = tonumber(closed) > ballot and closed or text",
        "",
    ),
    (
        LuaBundleKeyOutlivesRecord,
        "local longer = tonumber(retention) < tonumber(ttl) and ends or kept_until",
        "local longer = kept_until",
    ),
    (
        LuaInitSearchCutShort,
        "if not complete and mode ~= 'force' then",
        "if false then",
    ),
    (
        LuaMarksNotCompared,
        "if number < mark then",
        "if false then",
    ),
    (
        LuaReadMarkIgnored,
        "math.max(write, floor, access == 'write' and read or 0)",
        "math.max(write, floor)",
    ),
    (LuaReadMarkNotRaised, "read = math.max(read, number)", ""),
    (LuaWriteMarkNotRaised, "write = number", ""),
    (
        LuaGoneMarksAdmit,
        "floor = time[1] * 1000000 + time[2] - keep * 1000",
        "",
    ),
    (
        LuaPlainExtendShortens,
        "if left >= 0 and left < tonumber(ARGV[2]) then",
        "if left >= 0 then",
    ),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_piece_stands_in_one_script_once() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let folders = ["node/redis/lua", "resource/lua"].map(|folder| source.join(folder));
        let files = folders
            .iter()
            .flat_map(|folder| fs::read_dir(folder).unwrap());
        let texts: Vec<String> = files
            .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
            .collect();
        for (mutant, piece, instead) in PIECES {
            let found: usize = texts.iter().map(|text| text.matches(piece).count()).sum();
            assert_eq!(found, 1, "{mutant:?}");
            assert_ne!(piece, instead, "{mutant:?}");
        }
    }
}
