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
-- claim became free, if that is known better than the record knows it.
local function write(i, ballot, key_left, seat, since)
  local record = records[i]
  if ballot <= ceiling then
    record.fence = math.max(record.fence, ballot)
  end
  -- Before the seat is overwritten: it may tell.
  record.free_since = since or free_since(i)
  record.seat, record.stranger = seat, values[i] and not seat
  local text = string.format('2:%.0f:%.0f:%.0f:%d', record.fence, record.closed, record.free_since,
    record.stranger and 1 or 0)
  if seat then
    text = text .. string.format(':%.0f:%.0f:', seat.ballot, seat.until_ms) .. seat.token .. ':'
      .. seat.label
  end
  redis.call('SET', KEYS[claims + i], text, 'PX', math.max(tonumber(ARGV[3]), key_left))
end
