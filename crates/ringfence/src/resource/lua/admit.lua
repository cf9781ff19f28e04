-- Admits a reader or a writer by the two marks at `key`, and raises its mark. Returns nothing, or
-- the error to return. fence: decimal digits. keep_ms: '0' if the marks never expire. Otherwise
-- they expire keep_ms after their time, and fences older than keep_ms are refused.
local function admit(key, access, fence, keep_ms)
  local highest = 9007199254740991
  if not fence or not string.match(fence, '^%d+$') or tonumber(fence) > highest then
    return redis.error_reply('ERR the fence must be a whole number below 2^53')
  end
  if access ~= 'read' and access ~= 'write' then
    return redis.error_reply("ERR the access must be 'read' or 'write'")
  end
  if not keep_ms or not string.match(keep_ms, '^%d+$') or tonumber(keep_ms) > highest / 1000 then
    return redis.error_reply('ERR keep_ms must be a whole number of milliseconds')
  end
  local stored = redis.call('HMGET', key, 'read', 'write')
  local read, write = tonumber(stored[1] or 0), tonumber(stored[2] or 0)
  local number, keep, floor = tonumber(fence), tonumber(keep_ms), 0
  if keep > 0 then
    -- Expired marks are below this floor, so fences that they would have refused are still refused.
    local time = redis.call('TIME')
    floor = time[1] * 1000000 + time[2] - keep * 1000
  end
  local mark = math.max(write, floor, access == 'write' and read or 0)
  if number < mark then
    return redis.error_reply('STALEFENCE fence ' .. fence .. ' is below the mark '
      .. string.format('%.0f', mark))
  end
  if access == 'write' then
    write = number
  else
    read = math.max(read, number)
  end
  redis.call('HSET', key,
    'read', string.format('%.0f', read), 'write', string.format('%.0f', write))
  if keep > 0 then
    local until_ms = math.floor(math.max(read, write) / 1000) + 1 + keep
    redis.call('PEXPIREAT', key, string.format('%.0f', until_ms))
  else
    redis.call('PERSIST', key)
  end
end
