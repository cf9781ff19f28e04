-- Since when claim i is free. An expired lease freed it at its end. If the key vanished in another
-- way (it was a stranger's, or an operator deleted it), the claim counts as free from now on.
local function free_since(i)
  local record = records[i]
  if record.seat and record.seat.token ~= values[i] then
    return math.max(record.free_since, math.min(now_ms, record.seat.until_ms + 1))
  elseif not record.seat and record.stranger then
    return now_ms
  end
  return record.free_since
end

-- Writes the record of claim i with `seat`, if the claim is to have one, and sets its expiry beyond
-- that of the lock key. A ballot above the ceiling raises nothing. `since`: when the claim became
-- free, if known better than from the record. `reads`: the ballot is that of a shared claim.
local function write(i, ballot, key_left, seat, since, reads)
  local record = records[i]
  if ballot <= ceiling and reads then
    record.read_fence = math.max(record.read_fence, ballot)
  elseif ballot <= ceiling then
    record.fence = math.max(record.fence, ballot)
  end
  -- A read fence at or below the fence need not be stored.
  local both = record.read_fence > record.fence
  record.read_fence = both and record.read_fence or 0
  -- Before the seat is overwritten, since free_since reads it.
  record.free_since = since or free_since(i)
  record.seat, record.stranger = seat, values[i] and not seat
  local fences = string.format(both and '3:%.0f:%.0f' or '$RECORD_VERSION:%.0f', record.fence,
    record.read_fence)
  local text = fences .. string.format(':%.0f:%.0f:%d', record.closed, record.free_since,
    record.stranger and 1 or 0)
  if seat then
    text = text .. string.format(':%.0f:%.0f:', seat.ballot, seat.until_ms) .. seat.token .. ':'
      .. seat.label
  end
  redis.call('SET', KEYS[claims + i], text, 'PX', math.max(tonumber(ARGV[3]), key_left))
end

-- The error for a key that is not a string. TYPE may be denied to our user; then the type is left
-- out.
local function foreign(i)
  return redis.error_reply('FOREIGN ' .. i .. ' ' .. (redis.pcall('TYPE', KEYS[i]).ok or ''))
end
