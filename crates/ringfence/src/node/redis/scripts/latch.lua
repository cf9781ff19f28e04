-- A latch: the claim's own key is a sorted set of the parties that have arrived. The scores are
-- times at which the latch was made; the lowest counts. `made` is that time, or nil if no party has
-- arrived yet.
local made = tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])

-- Keeps the latch for at least `ttl` ms, and never for less than it has left.
local function keep(ttl)
  if redis.call('PTTL', KEYS[1]) < ttl then
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end

-- When the latch was made, how many parties have arrived, and if `list`, which.
local function arrivals(list)
  local parties = list and redis.call('ZRANGE', KEYS[1], 0, -1) or {}
  local answer = reply('arrivals', made or false, list and #parties or redis.call('ZCARD', KEYS[1]))
  for j, party in ipairs(parties) do
    answer[5 + j] = party
  end
  return answer
end
