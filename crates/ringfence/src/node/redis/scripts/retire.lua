-- Ends what this token has at claim i, or may still get there, under `ballot`. `ours`: it holds the
-- claim. If the claim is free, the fence rises only if the acquire may still arrive: raising it
-- always would let polling clients starve all others. `tombstone`: the seat of the tombstone that
-- replaced the key.
local function retire(i, ours, ballot, final, fate_unknown, tombstone)
  if not (ours or final or fate_unknown) then
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
  elseif values[i] then
    key_left, kept = redis.call('PTTL', KEYS[i]), seated(i)
  end
  if final and ballot <= ceiling then
    record.closed = math.max(record.closed, ballot)
  end
  write(i, (ours or fate_unknown) and ballot or 0, key_left, kept, since)
end
