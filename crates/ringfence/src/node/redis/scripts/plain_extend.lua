-- Plain Redlock: compare and PEXPIRE, never for a shorter time. ARGV: token, ttl in ms.
local value = redis.call('GET', KEYS[1])
if value ~= ARGV[1] then
  return value and 'held' or 'gone'
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 'extended'
