-- Writes the record of claim i, with the seat that `record` still has, and re-arms its expiry beyond
-- that of the key it vouches for. A ballot above the ceiling raises nothing.
local function write(i, ballot, key_left)
  local record = records[i]
  if ballot <= ceiling then
    record.fence = math.max(record.fence, ballot)
  end
  local text = string.format('1:%.0f:%.0f', record.fence, record.closed)
  if record.owner then
    text = text .. string.format(':%.0f:', record.ballot) .. record.owner .. ':' .. record.label
  end
  redis.call('SET', KEYS[claims + i], text, 'PX', math.max(tonumber(ARGV[3]), key_left))
end
