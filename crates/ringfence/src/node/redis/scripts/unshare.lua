-- Takes this token from those who share claim i. Its ballot is closed only if a restore of it may be
-- under way: those of others who still share it may be lower, and must be able to come back.
local function unshare(i, reader, ballot, final, fate_unknown)
  local mark = KEYS[2 * claims + i]
  local leases = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LEASES', 1)
  local who = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LABELS', 1)
  redis.call('ZREM', leases, token)
  redis.call('HDEL', who, token)
  mine[i] = nil
  if final and fate_unknown and ballot <= ceiling then
    records[i].closed = math.max(records[i].closed, ballot)
  end
  -- An acquire of a higher ballot may be on its way still, and only the write fence stops it. The one
  -- that came is no reason to raise it: every reader that leaves would hold up those who come.
  local reads = not (fate_unknown and reader.ballot < ballot)
  if redis.call('ZCOUNT', leases, string.format('%.0f', now_ms), '+inf') > 0 then
    mark_shared(i, leases, who, reader.ballot, ballot, reads)
  else
    redis.call('DEL', KEYS[i], leases, who)
    values[i] = false
    write(i, ballot, 0, nil, final and now_ms or records[i].free_since, reads)
  end
end
