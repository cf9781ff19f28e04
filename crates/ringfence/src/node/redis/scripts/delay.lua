-- Whether this token has claim i only because of its lock delay: no more than `delay` ms is left of
-- the lease, so the holder's own time is over. Only receipts send a delay.
local function in_delay(i, delay)
  if delay == 0 then
    return false
  elseif values[i] == token then
    local left = redis.call('PTTL', KEYS[i])
    return left >= 0 and left <= delay
  end
  return mine[i] and mine[i].until_ms - now_ms <= delay
end
