-- Reads the records of all claims. The operation's own file follows in the same chunk.
--
-- Every call of the script creates each function anew, so there are few here, and none that only
-- some operations need.
local claims = (#KEYS - 1) / 3
local token, shares = ARGV[4], {}
local blank = string.find(token, ' ', 1, true)
if blank then
  for i = 1, claims do
    shares[i] = string.sub(token, blank + i, blank + i) == 's'
  end
  token = string.sub(token, 1, blank - 1)
end
-- Each record as the ledger defines it: `fence` is the effective fence, `read_fence` that of shared
-- claims if it is higher. The seat counts only while its token is the lock key's value. The stored
-- text and its patterns are in mod.rs.
local records = {}
for i = 1, claims do
  local record = { fence = min_fence, read_fence = 0, closed = 0, free_since = 0, stranger = false }
  local text = values[claims + i]
  if text then
    local _, read_fence = string.match(text, '$RECORD_READERS')
    if read_fence then
      text = string.gsub(text, '$RECORD_READERS', '$RECORD_ALONE')
    end
    local fence, closed, free_since, stranger, rest =
      string.match(text, '$RECORD_PARTS')
    local ballot, until_ms, owner, label = '0', '0', nil, nil
    if rest and rest ~= '' then
      ballot, until_ms, owner, label = string.match(rest, '$RECORD_SEAT')
    end
    -- An unreadable record must not count as absent: its fence would be lost.
    if not fence or not ballot
      or math.max(tonumber(fence), tonumber(closed), tonumber(free_since), tonumber(ballot),
        tonumber(until_ms), tonumber(read_fence or 0)) > MAX then
      return redis.error_reply('DAMAGED ' .. i)
    end
    record.fence = math.max(min_fence, tonumber(fence))
    if read_fence and tonumber(read_fence) > record.fence then
      record.read_fence = tonumber(read_fence)
    end
    record.closed = tonumber(closed)
    record.free_since, record.stranger = tonumber(free_since), stranger == '1'
    if owner then
      record.seat = {
        ballot = tonumber(ballot), until_ms = tonumber(until_ms), token = owner, label = label,
      }
    end
  end
  records[i] = record
end

-- The seat of claim i, if its token is still the value of the lock key.
local function seated(i)
  local seat = records[i].seat
  return seat and seat.token == values[i] and seat or nil
end

-- Replies are flat: clock, floor, answer, then the answer's own values.
local function reply(answer, ...)
  local floor = 0
  for i = 1, claims do
    floor = math.max(floor, records[i].fence, shares[i] and 0 or records[i].read_fence)
  end
  return { clock, floor, answer, ... }
end

-- The holder of claim i, as other clients may see it: position of the claim, label, the public half
-- of a token of ours, the remaining time, and how many tickets are ahead of the caller. The value
-- of another library is secret as a whole, and may have no expiry.
local function holder(i, ahead)
  local left = redis.call('PTTL', KEYS[i])
  -- A tombstone contains no secret.
  local id = string.match(values[i], '^(%x%x%x%x%x%x%x%x%x%x)%.')
    or string.match(values[i], '^kept%.%x%x%x%x%x%x%x%x%x%x$')
  local seat = seated(i)
  return i - 1, seat and seat.label or false, id or false, left >= 0 and left, ahead or 0
end
