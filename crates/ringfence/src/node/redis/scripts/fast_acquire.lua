-- Fast path of an acquire: one free claim, the caller's turn, and the usual grant.
if its_turn and not values[1] then
  local now, ends = string.format('%.0f', now_ms), string.format('%.0f', now_ms + ARGV[6])
  local kept = tonumber(ARGV[3]) < tonumber(ARGV[6]) and ARGV[6] or ARGV[3]
  if grant(KEYS[1], KEYS[2], values[2], ARGV[4], ARGV[5], ARGV[7], now, ends, 'PX', ARGV[6], kept,
      ticket) then
    if ticket then
      -- A holder leaves the queue: its ticket would block other waiters.
      redis.call('ZREM', lease, ticket)
      redis.call('ZREM', order, ticket)
      if redis.call('EXISTS', lease) == 0 then
        redis.call('DEL', KEYS[3], order)
      end
    end
    return { clock, tonumber(ARGV[5]), 'granted' }
  end
end
