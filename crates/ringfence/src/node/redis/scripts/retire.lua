-- Ends what this token has at claim i, or may still get there, under `ballot`. `ours`: it holds the
-- claim. If the claim is free, the fence rises only if the acquire may still arrive: raising it
-- always would let polling clients starve all others. `closes`: a restore may still arrive, and must
-- be refused. `awaited`: tickets are in the queue. `tombstone`: the seat of the tombstone that
-- replaced the key.
local function retire(i, ours, ballot, final, fate_unknown, closes, awaited, tombstone)
  if not (ours or closes or fate_unknown) then
    return
  end
  local record, key_left, kept, since = records[i], 0, tombstone, nil
  if ours then
    -- A final release starts the time that the waiters have to take the claim. An undo must not
    -- restart it.
    since = final and now_ms or record.free_since
  end
  if tombstone then
    key_left = tombstone.until_ms - now_ms
  elseif ours then
    redis.call('DEL', KEYS[i])
    values[i] = false
    if final and not (closes or awaited) then
      -- The usual release writes no record: the seat counts only while the key has its token.
      return
    end
  elseif values[i] then
    key_left, kept = redis.call('PTTL', KEYS[i]), seated(i)
  end
  if closes and ballot <= ceiling then
    record.closed = math.max(record.closed, ballot)
  end
  write(i, (ours or fate_unknown) and ballot or 0, key_left, kept, since)
end
