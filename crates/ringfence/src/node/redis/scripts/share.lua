-- Writes SHARED to the lock key of claim i until the last reader's lease ends, and the record.
-- `ballot` is that of the reader that enters or leaves; `raised` is the ballot that raises a fence,
-- and `reads` says whether it is the read fence.
local function mark_shared(i, leases, labels, ballot, raised, reads)
  local last = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')
  local until_ms = tonumber(last[2])
  local label = string.match(redis.call('HGET', labels, last[1]) or '', '^%d+:(.*)$') or ''
  local kept = values[i] == SHARED and seated(i)
  local left = math.max(until_ms - now_ms, 1)
  values[i] = SHARED
  redis.call('SET', KEYS[i], SHARED, 'PX', string.format('%.0f', left))
  -- The readers' keys are kept a little longer: SHARED without readers would count as another
  -- program's.
  redis.call('PEXPIRE', leases, string.format('%.0f', left + 1000))
  redis.call('PEXPIRE', labels, string.format('%.0f', left + 1000))
  local seat_ballot = math.max(kept and kept.ballot or 0, ballot)
  write(i, raised, left, {
    ballot = seat_ballot, until_ms = until_ms, token = SHARED, label = label,
  }, nil, reads)
end

-- Makes this token a reader of claim i for at least `ttl` ms, and never for less than it already
-- has.
-- Returns an error if the key is not a string; then nothing was written.
local function share(i, ballot, label, ttl)
  local mark = KEYS[2 * claims + i]
  local leases = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LEASES', 1)
  local labels = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LABELS', 1)
  local until_ms = now_ms + ttl
  if values[i] == SHARED then
    until_ms = math.max(until_ms, mine[i] and mine[i].until_ms or 0)
    local expired = redis.call('ZRANGEBYSCORE', leases, '-inf', string.format('(%.0f', now_ms))
    for from = 1, #expired, 500 do
      local to = math.min(from + 499, #expired)
      redis.call('ZREM', leases, unpack(expired, from, to))
      redis.call('HDEL', labels, unpack(expired, from, to))
    end
  else
    if values[i] then
      -- This token holds the claim exclusively. Servers before 7 read the clock for each command,
      -- so PTTL may be too low; the record has the exact end.
      local exclusive = seated(i)
      local recorded = exclusive and exclusive.until_ms or 0
      until_ms = math.max(until_ms, now_ms + redis.call('PTTL', KEYS[i]), recorded)
    elseif not redis.call('SET', KEYS[i], SHARED, 'NX', 'PX', ttl) then
      return foreign(i)
    end
    -- Earlier readers have lost the claim.
    redis.call('DEL', leases, labels)
  end
  redis.call('ZADD', leases, string.format('%.0f', until_ms), token)
  redis.call('HSET', labels, token, string.format('%.0f:', ballot) .. label)
  mark_shared(i, leases, labels, ballot, ballot, true)
  mine[i] = { ballot = ballot, until_ms = until_ms, label = label }
end
