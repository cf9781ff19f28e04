-- Since when nobody holds claim i. A lease that ran out freed it then; what vanished in another way,
-- a stranger's key or one deleted by hand, is missed only now.
local function free_since(i)
  local record = records[i]
  if record.seat and record.seat.token ~= values[i] then
    return math.max(record.free_since, math.min(now_ms, record.seat.until_ms + 1))
  elseif not record.seat and record.stranger then
    return now_ms
  end
  return record.free_since
end

-- Writes the record of claim i with `seat`, if somebody is to have one, and re-arms its expiry beyond
-- that of the key it vouches for. A ballot above the ceiling raises nothing. `since` is when the
-- claim became free, if that is known better than the record knows it. `reads`: the ballot is that of
-- a shared claim.
local function write(i, ballot, key_left, seat, since, reads)
  local record = records[i]
  if ballot <= ceiling and reads then
    record.read_fence = math.max(record.read_fence, ballot)
  elseif ballot <= ceiling then
    record.fence = math.max(record.fence, ballot)
  end
  -- Whoever is above the one is above the other.
  local both = record.read_fence > record.fence
  record.read_fence = both and record.read_fence or 0
  -- Before the seat is overwritten: it may tell.
  record.free_since = since or free_since(i)
  record.seat, record.stranger = seat, values[i] and not seat
  local fences = string.format(both and '3:%.0f:%.0f' or '2:%.0f', record.fence, record.read_fence)
  local text = fences .. string.format(':%.0f:%.0f:%d', record.closed, record.free_since,
    record.stranger and 1 or 0)
  if seat then
    text = text .. string.format(':%.0f:%.0f:', seat.ballot, seat.until_ms) .. seat.token .. ':'
      .. seat.label
  end
  redis.call('SET', KEYS[claims + i], text, 'PX', math.max(tonumber(ARGV[3]), key_left))
end

-- The error of a key that is no string. Which type it has may be a secret of the server's, but not a
-- reason to fail in another way.
local function foreign(i)
  return redis.error_reply('FOREIGN ' .. i .. ' ' .. (redis.pcall('TYPE', KEYS[i]).ok or ''))
end
