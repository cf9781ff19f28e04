//! The scripts of the Redis node for locks, slots and latches.

use super::{Mutant, edit};

const ACQUIRE: &str = "crates/ringfence/src/node/redis/scripts/acquire.lua";
const ACQUIRE_SLOT: &str = "crates/ringfence/src/node/redis/scripts/acquire_slot.lua";
const ARRIVE: &str = "crates/ringfence/src/node/redis/scripts/arrive.lua";
const CLAIMS: &str = "crates/ringfence/src/node/redis/scripts/claims.lua";
const ENTER_QUEUE: &str = "crates/ringfence/src/node/redis/scripts/enter_queue.lua";
const EXTEND: &str = "crates/ringfence/src/node/redis/scripts/extend.lua";
const FOUND: &str = "crates/ringfence/src/node/redis/scripts/found.lua";
const NOTICE: &str = "crates/ringfence/src/node/redis/scripts/notice.lua";
const PROLONG: &str = "crates/ringfence/src/node/redis/scripts/prolong.lua";
const READERS: &str = "crates/ringfence/src/node/redis/scripts/readers.lua";
const RELEASE: &str = "crates/ringfence/src/node/redis/scripts/release.lua";
const RELEASE_SLOT: &str = "crates/ringfence/src/node/redis/scripts/release_slot.lua";
const RESTORE: &str = "crates/ringfence/src/node/redis/scripts/restore.lua";
const RETIRE: &str = "crates/ringfence/src/node/redis/scripts/retire.lua";
const SEAT: &str = "crates/ringfence/src/node/redis/scripts/seat.lua";
const SERVED: &str = "crates/ringfence/src/node/redis/scripts/served.lua";
const SHARE: &str = "crates/ringfence/src/node/redis/scripts/share.lua";
const SLOT_QUEUE: &str = "crates/ringfence/src/node/redis/scripts/slot_queue.lua";
const FAST_ACQUIRE: &str = "crates/ringfence/src/node/redis/scripts/fast_acquire.lua";
const FAST_GRANT: &str = "crates/ringfence/src/node/redis/scripts/fast_grant.lua";
const FAST_HELD: &str = "crates/ringfence/src/node/redis/scripts/fast_held.lua";
const FAST_LINE: &str = "crates/ringfence/src/node/redis/scripts/fast_line.lua";
const FAST_RELEASE: &str = "crates/ringfence/src/node/redis/scripts/fast_release.lua";
const FAST_RETIRE: &str = "crates/ringfence/src/node/redis/scripts/fast_retire.lua";
const UNSHARE: &str = "crates/ringfence/src/node/redis/scripts/unshare.lua";
const WRITE: &str = "crates/ringfence/src/node/redis/scripts/write.lua";

mutants! {
    /// A ballot at or below the fence is stale.
    LuaFenceNotChecked:
        edit(ACQUIRE, "",
            "if ballot <= math.max(records[i].fence,
                 shares[i] and 0 or records[i].read_fence) then",
            "if false then");

    /// A ballot above the ceiling is not granted.
    LuaCeilingNotChecked:
        edit(ACQUIRE, "",
            "elseif ballot > ceiling then
                   ahead = true",
            "elseif false then
                   ahead = true");

    /// An exclusive grant also needs a ballot above the readers' fence.
    LuaWriterIgnoresReadFence:
        edit(ACQUIRE, "",
            "if ballot <= math.max(records[i].fence,
                 shares[i] and 0 or records[i].read_fence) then",
            "if ballot <= records[i].fence then");

    /// A key is granted again only to its own token.
    LuaAnyTokenHolds:
        edit(ACQUIRE, "",
            "local ours = values[i] == token or shares[i] and mine[i]",
            "local ours = values[i] or shares[i] and mine[i]");

    /// A holder is not granted its key again under a lower ballot.
    LuaLowerBallotRegranted:
        edit(ACQUIRE, "",
            "elseif ours and ballot < seat_ballot then",
            "elseif false then");

    /// `try_lock` does not pass waiters in the queue.
    LuaTryLockJumpsQueue:
        edit(ACQUIRE, "",
            "local before_us = not ours and queues[i] and ahead_of(i, ticket) or 0",
            "local before_us = not ours and queues[i] and ticket and ahead_of(i, ticket) or 0");

    /// A grant removes the holder's ticket from the queue.
    LuaHolderStaysInLine:
        edit(ACQUIRE, "",
            "local gone, since = { ticket }, before_us > 0 and free_since(i)",
            "local gone, since = {}, before_us > 0 and free_since(i)");

    /// A dead waiter at the head of the queue does not block a node forever.
    LuaDeadHeadBlocks:
        edit(ACQUIRE, "",
            "pass_at = free_since(i) + before_us * string.match(ARGV[1], '^.* (%d+)$')",
            "pass_at = nil");

    /// A new ticket with an old time is refused.
    LuaOldTicketAccepted:
        edit(ACQUIRE, "",
            "if ticket and ARGV[9] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock then",
            "if false then");

    /// A ticket that enters the queue again keeps its time, however old.
    LuaOldTicketCannotReturn:
        edit(ACQUIRE, "",
            "if ticket and ARGV[9] == '1' and string.sub(ticket, 1, 20) + 1000000 < clock then",
            "if ticket and string.sub(ticket, 1, 20) + 1000000 < clock then");

    /// A request for a certain slot is not granted another slot.
    LuaNamedSlotReplaced:
        edit(ACQUIRE_SLOT, "",
            "local held = asked or #free == 0 and 0",
            "asked = asked and not values[asked + 2] and asked
               local held = asked or #free == 0 and 0");

    /// A caller waits if at least as many waiters are ahead as slots are free.
    LuaSlotJumpsQueue:
        edit(ACQUIRE_SLOT, "",
            "passing = ahead >= #free",
            "passing = false");

    /// A node records no arrival at a latch that it does not know.
    LuaLatchMadeUnasked:
        edit(ARRIVE, "",
            "if not (made or since) or not ARGV[8] then",
            "since = since or not made and clock or nil
             if not ARGV[8] then");

    /// A latch keeps the earliest reported time of its creation.
    LuaLatchAgeNotKept:
        edit(ARRIVE, "",
            "made = math.min(made or since, since or made)",
            "made = made or since");

    /// No fence below the clock minus the window is accepted.
    LuaRecordPinsFloor:
        edit(CLAIMS, "",
            "record.fence = math.max(min_fence, tonumber(fence))",
            "record.fence = tonumber(fence)");

    /// An extend does not create a key that is gone.
    LuaExtendRecreates:
        edit(EXTEND, "",
            "if held or gone then
               return or_broken('gone')",
            "if held then
               return or_broken('gone')");

    /// Every script answers `newborn` if the birth record differs from the one it was sent.
    LuaBornNotChecked:
        edit(FOUND, "",
            "if not born or known ~= born then",
            "if false then");

    /// A replicated server writes holders only under the replication id of its birth record.
    LuaReplicationIdNotCompared:
        edit(FOUND, "",
            r#"if type(info) ~= 'string' or not string.find(info, '\nrole:master\r', 1, true)
                   or not string.find(info, '\nmaster_replid:' .. id .. '\r', 1,
                       true) then"#,
            "if false then");

    /// A ticket that also waits for another held name is marked, so that it is not passed as dead.
    LuaElsewhereNotMarked:
        edit(ENTER_QUEUE, "",
            "mark_tickets(queue, 'e', elsewhere, tickets, from, to)",
            "");

    /// A waiting caller records that the holder is gone.
    LuaVacatedNotNoticed:
        edit(NOTICE, "",
            "if vacated or stranger and not record.stranger then",
            "if stranger and not record.stranger then");

    /// An extend raises the ballot in the holder's seat.
    LuaExtendKeepsBallot:
        edit(PROLONG, "",
            "local higher = ballot <= ceiling and math.max(kept.ballot, ballot) or kept.ballot",
            "local higher = kept.ballot");

    /// A reader marker without readers is treated as another program's value.
    LuaStrangeMarkerIsFree:
        edit(READERS, "",
            "values[i] = SHARED .. ' of another program'",
            "values[i] = redis.call('DEL', KEYS[i]) < 0");

    /// Only the owner releases.
    LuaReleaseIgnoresOwner:
        edit(RELEASE, "",
            "local ours = values[i] == token or reader",
            "local ours = values[i] or reader");

    /// An undo does not release what was granted under a higher ballot.
    LuaReleaseIgnoresBallot:
        edit(RELEASE, "",
            "if own_seat and own_seat.ballot > ballot then",
            "if false then");

    /// A release raises the fence if an acquire of its token may still arrive.
    LuaNoRetirement:
        edit(RETIRE, "",
            "write(i, (ours or fate_unknown) and ballot or 0, key_left, kept, since)",
            "write(i, ours and ballot or 0, key_left, kept, since)");

    /// A release raises the fence only if an acquire of its token may still arrive.
    LuaRetireAlways:
        edit(RETIRE, "",
            "if not (ours or closes or fate_unknown) then",
            "if false then"),
        edit(RETIRE, "",
            "write(i, (ours or fate_unknown) and ballot or 0, key_left, kept, since)",
            "write(i, ballot, key_left, kept, since)");

    /// A release with waiters in the queue starts their grace period.
    LuaReleaseToWaitersNotNoted:
        edit(RETIRE, "",
            "if final and not (closes or awaited) then",
            "if final and not closes then");

    /// A final release closes its ballot where something may still arrive, not only elsewhere.
    LuaClosesOnlyWhereAnswered:
        edit(RELEASE, "",
            "local closes = final and (fate_unknown or keep > 0 or shares[i])",
            "local closes = final and (not fate_unknown or keep > 0 or shares[i])");

    /// A final release closes its ballot where something of the hold may still arrive.
    LuaFinalReleaseNotClosed:
        edit(RETIRE, "",
            "record.closed = math.max(record.closed, ballot)",
            "");

    /// A request to keep a name from other clients also works after the lease has ended.
    LuaKeptOnlyWhereHeld:
        edit(RELEASE, "",
            "if keep > 0 and ours or anew then",
            "if keep > 0 and ours then");

    /// A repeated request to keep a name does not prolong the time.
    LuaKeptAfterClosed:
        edit(RELEASE, "",
            "not values[i] and ballot > record.closed",
            "not values[i]");

    /// An undo does not restart the grace period of the waiters.
    LuaUndoSetsFreeSince:
        edit(RETIRE, "",
            "since = final and now_ms or record.free_since",
            "since = now_ms");

    /// An undo does not wake its own sender.
    LuaUndoWakesSender:
        edit(RELEASE, "",
            "wake_first(i, stays and ticket, false)",
            "wake_first(i, nil, false)");

    /// An undo of a grant enters the ticket into the queue again.
    LuaUndoLosesPlace:
        edit(RELEASE, "",
            "enter(token, { ticket }, tonumber(ARGV[12]))",
            "");

    /// A restore does not undo a release.
    LuaRestoreIgnoresClosed:
        edit(RESTORE, "",
            "if ballot <= records[i].closed then",
            "if false then");

    /// Neither an extend nor a second grant shortens a lease.
    LuaLeaseShortened:
        edit(SEAT, "",
            "if left >= 0 and left < ttl then",
            "if left >= 0 then");

    /// A shared grant does not change the write fence.
    LuaReaderRaisesWriteFence:
        edit(SHARE, "",
            "mark_shared(i, leases, labels, ballot, ballot, true)",
            "mark_shared(i, leases, labels, ballot, ballot, false)");

    /// Neither an extend nor a second grant shortens a reader's lease.
    LuaShareShortened:
        edit(SHARE, "",
            "until_ms = math.max(until_ms, mine[i] and mine[i].until_ms or 0)",
            "");

    /// On the fast path and in a batch a ballot at or below the fence is stale.
    LuaSwiftFenceNotChecked:
        edit(FAST_GRANT, "",
            "if fence and number > fence + 0 and number > min_fence and number <= ceiling",
            "if fence and number > min_fence and number <= ceiling");

    /// On the fast path and in a batch no fence below the clock minus the window is accepted.
    LuaSwiftGroundNotChecked:
        edit(FAST_GRANT, "",
            "if fence and number > fence + 0 and number > min_fence and number <= ceiling",
            "if fence and number > fence + 0 and number <= ceiling");

    /// On the fast path and in a batch a ballot above the ceiling is not granted.
    LuaSwiftCeilingNotChecked:
        edit(FAST_GRANT, "",
            "if fence and number > fence + 0 and number > min_fence and number <= ceiling",
            "if fence and number > fence + 0 and number > min_fence");

    /// On the fast path a ticket does not pass earlier waiters in the queue.
    LuaSwiftJumpsQueue:
        edit(FAST_HELD, "",
            "its_turn = redis.call('ZRANK', order, ticket) == 0",
            "its_turn = true");

    /// A holder that the record does not know is not reported as the recorded one.
    LuaSwiftStrangerNamed:
        edit(FAST_HELD, "",
            "if id and owner == values[1] and tonumber(fence) <= MAX then",
            "if id and owner then");

    /// The keys of a queue live longer than its tickets.
    LuaSwiftLineFades:
        edit(FAST_HELD, "",
            "if order and ticket and exclusive and kept_until >= now_ms + 2 * ARGV[8]",
            "if order and ticket and exclusive");

    /// A grant on the fast path removes the holder's ticket from the queue.
    LuaSwiftHolderStaysInLine:
        edit(FAST_ACQUIRE, "",
            "redis.call('ZREM', lease, ticket)
                   redis.call('ZREM', order, ticket)",
            "redis.call('ZADD', lease, now_ms + ARGV[8], ticket)");

    /// On the fast path a new ticket with an old time is refused.
    LuaSwiftOldTicketAccepted:
        edit(FAST_HELD, "",
            "and (ARGV[9] == '0' or string.sub(ticket, 1, 20) + 1000000 >= clock) then",
            "then");

    /// On the fast path an expired ticket does not count.
    LuaSwiftLapsedCounts:
        edit(FAST_LINE, "",
            "if redis.call('ZCOUNT', lease, 0, now_ms - 1) > 0 then",
            "if false then");

    /// On the fast path and in a batch a release does not remove a grant with a higher ballot.
    LuaSwiftReleaseIgnoresBallot:
        edit(FAST_RETIRE, "",
            "return find(record, ballot, 3, true) == 3 and",
            "return"),
        edit(FAST_RETIRE, "",
            "if seat_ballot and seat_ballot + 0 <= number and fence + 0 <= number",
            "if seat_ballot");

    /// On the fast path and in a batch a final release closes its ballot if something may still
    /// arrive.
    LuaSwiftReleaseNotClosed:
        edit(FAST_RETIRE, "",
            "local last = closes and closed + 0 < number and ballot or closed",
            "local last = closed");

    /// On the fast path and in a batch a release never lowers the closed ballot.
    LuaSwiftReleaseReopens:
        edit(FAST_RETIRE, "",
            "local last = closes and closed + 0 < number and ballot or closed",
            "local last = closes and ballot or closed");

    /// On the fast path and in a batch a release never lowers the fence.
    LuaSwiftReleaseLowersFence:
        edit(FAST_RETIRE, "",
            "if seat_ballot and seat_ballot + 0 <= number and fence + 0 <= number",
            "if seat_ballot and seat_ballot + 0 <= number");

    /// A release on the fast path removes its ticket from the queue.
    LuaSwiftTicketStays:
        edit(FAST_RELEASE, "",
            "elseif order and ticket and redis.call('ZREM', lease, ticket) > 0 then",
            "elseif false then");

    /// On the fast path the second waiter is woken with the grace period as its delay.
    LuaSwiftRunnerUpNotTold:
        edit(FAST_RELEASE, "",
            "if other ~= ticket and woken < 2 then",
            "if other ~= ticket and woken < 1 then");

    /// The final release of a reader closes its ballot if a restore may still arrive.
    LuaReaderNotClosed:
        edit(UNSHARE, "",
            "if final and fate_unknown and ballot <= ceiling then",
            "if false then");

    /// A ballot above the ceiling is never stored.
    LuaStoredAboveCeiling:
        edit(WRITE, "",
            "elseif ballot <= ceiling then
                 record.fence",
            "elseif true then
                 record.fence");

    /// A record lives longer than the key that it describes.
    LuaKeyOutlivesRecord:
        edit(WRITE, "",
            "redis.call('SET', KEYS[claims + i], text, 'PX',
                 math.max(tonumber(ARGV[3]), key_left))",
            "redis.call('SET', KEYS[claims + i], text, 'PX', ARGV[3])");

    /// A waiter ahead with fewer permits counts only as far as it can use a free slot.
    LuaSlotWaiterCountsRegardless:
        edit(SLOT_QUEUE, "",
            "if number < permits then",
            "if false then");

    /// A freed slot wakes only a waiter that can use it.
    LuaSlotWakesRegardless:
        edit(SERVED, "",
            "if number < own then",
            "if false then");

    /// A receipt is not extended when only the lock delay is left of its lease.
    LuaExtendedInDelay:
        edit(EXTEND, "",
            "if in_delay(i, delay) then",
            "if false then");

    /// A late release of a receipt does not cut the lock delay.
    LuaReleasedInDelay:
        edit(RELEASE, "",
            "if in_delay(i, tonumber(ARGV[10])) then",
            "if false then");

    /// A late release of a permit's receipt does not cut the lock delay.
    LuaSlotReleasedInDelay:
        edit(RELEASE_SLOT, "",
            "selected = selected and not in_delay(i, delay)",
            "");
}
