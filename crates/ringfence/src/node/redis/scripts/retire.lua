-- Ends what this token has, or may still get, at claim i under `ballot`. `ours`: it holds the claim.
-- Retiring always would let pollers starve everyone else: against an absent key the fence rises only
-- if the acquire may still be on its way. `tombstone`: the seat of what was put in the key's place.
local function retire(i, ours, ballot, final, fate_unknown, tombstone)
  if not (ours or final or fate_unknown) then
    return
  end
  local record, key_left, kept, since = records[i], 0, tombstone, nil
  if ours then
    -- The holder is done: from now on those in the queue have their time to come. An attempt that
    -- comes and goes must not restart that time.
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
