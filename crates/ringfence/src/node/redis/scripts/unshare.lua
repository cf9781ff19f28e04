-- Removes this token from the readers of claim i. Closes its ballot only if a restore of it may be
-- under way: the ballots of other readers may be lower, and these readers must be able to restore.
local function unshare(i, reader, ballot, final, fate_unknown)
  local mark = KEYS[2 * claims + i]
  local leases = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LEASES', 1)
  local labels = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LABELS', 1)
  redis.call('ZREM', leases, token)
  redis.call('HDEL', labels, token)
  mine[i] = nil
  if final and fate_unknown and ballot <= ceiling then
    records[i].closed = math.max(records[i].closed, ballot)
  end
  -- An acquire with a higher ballot may still arrive, and only the write fence stops it. The
  -- acquire that arrived does not raise the write fence: else every leaving reader would delay new
  -- readers.
  local reads = not (fate_unknown and reader.ballot < ballot)
  if redis.call('ZCOUNT', leases, string.format('%.0f', now_ms), '+inf') > 0 then
    mark_shared(i, leases, labels, reader.ballot, ballot, reads)
  else
    redis.call('DEL', KEYS[i], leases, labels)
    values[i] = false
    write(i, ballot, 0, nil, final and now_ms or records[i].free_since, reads)
  end
end
