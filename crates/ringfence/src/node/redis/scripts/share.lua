-- Writes SHARED for as long as the last of the readers of claim i, and the record behind it. `ballot`
-- is that of whoever comes or goes; `raised` and `reads` say what it does to which fence.
local function mark_shared(i, leases, who, ballot, raised, reads)
  local last = redis.call('ZRANGE', leases, -1, -1, 'WITHSCORES')
  local until_ms = tonumber(last[2])
  local label = string.match(redis.call('HGET', who, last[1]) or '', '^%d+:(.*)$') or ''
  local kept = values[i] == SHARED and seated(i)
  local left = math.max(until_ms - now_ms, 1)
  values[i] = SHARED
  redis.call('SET', KEYS[i], SHARED, 'PX', string.format('%.0f', left))
  -- For a little longer: SHARED without readers would be taken for another program's.
  redis.call('PEXPIRE', leases, string.format('%.0f', left + 1000))
  redis.call('PEXPIRE', who, string.format('%.0f', left + 1000))
  write(i, raised, left, {
    ballot = math.max(kept and kept.ballot or 0, ballot), until_ms = until_ms, token = SHARED, label = label,
  }, nil, reads)
end

-- Has this token share claim i for at least `ttl` ms, never for less than it already has. Answers an
-- error if the key is not a string, and then has written nothing.
local function share(i, ballot, label, ttl)
  local mark = KEYS[2 * claims + i]
  local leases = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LEASES', 1)
  local who = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LABELS', 1)
  local until_ms = now_ms + ttl
  if values[i] == SHARED then
    until_ms = math.max(until_ms, mine[i] and mine[i].until_ms or 0)
    local over = redis.call('ZRANGEBYSCORE', leases, '-inf', string.format('(%.0f', now_ms))
    for from = 1, #over, 500 do
      local to = math.min(from + 499, #over)
      redis.call('ZREM', leases, unpack(over, from, to))
      redis.call('HDEL', who, unpack(over, from, to))
    end
  else
    if values[i] then
      -- It holds the claim alone. An older server reads the remaining time anew, and so too low; but
      -- the oldest records do not know when their seat ends.
      local alone = seated(i)
      local told = alone and alone.until_ms < MAX and alone.until_ms or 0
      until_ms = math.max(until_ms, now_ms + redis.call('PTTL', KEYS[i]), told)
    elseif not redis.call('SET', KEYS[i], SHARED, 'NX', 'PX', ttl) then
      return foreign(i)
    end
    -- Whoever shared it before has lost it.
    redis.call('DEL', leases, who)
  end
  redis.call('ZADD', leases, string.format('%.0f', until_ms), token)
  redis.call('HSET', who, token, string.format('%.0f:', ballot) .. label)
  mark_shared(i, leases, who, ballot, ballot, true)
  mine[i] = { ballot = ballot, until_ms = until_ms, label = label }
end
