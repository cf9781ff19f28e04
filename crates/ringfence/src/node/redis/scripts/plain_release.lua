-- Plain Redlock: compare and delete. ARGV: token.
local value = redis.call('GET', KEYS[1])
if value ~= ARGV[1] then
  return value and 'held' or 'gone'
end
redis.call('DEL', KEYS[1])
return 'released'
