-- Makes this token the holder of claim i for at least `ttl` ms, and never for less than it already
-- has: shortening would free the lock while its guard still counts on it. `free_since`: see
-- `write`. Returns an error if the key is not a string; then nothing was written.
local function seat(i, ballot, label, ttl, free_since)
  local key_left, until_ms = ttl, now_ms + ttl
  if values[i] then
    local left = redis.call('PTTL', KEYS[i])
    if left >= 0 and left < ttl then
      redis.call('PEXPIRE', KEYS[i], ttl)
    else
      key_left = left
      until_ms = left >= 0 and now_ms + left or until_ms
    end
  elseif not redis.call('SET', KEYS[i], token, 'NX', 'PX', ttl) then
    return foreign(i)
  end
  values[i] = token
  local taken = { ballot = ballot, until_ms = until_ms, token = token, label = label }
  write(i, ballot, key_left, taken, free_since)
end

-- MGET shows a list or a hash as absent. Of several claims none may be written before all are known
-- to be free. For a single claim, `SET NX` finds out.
local function foreign_type()
  for i = 1, claims do
    if claims > 1 and not values[i] and redis.call('EXISTS', KEYS[i]) == 1 then
      return foreign(i)
    end
  end
end
