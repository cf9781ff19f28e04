-- Fast path of an acquire: one free claim, the caller's turn, and the usual grant.
if its_turn and not values[1] then
  local ballot, ttl, kept = ARGV[5], ARGV[6], ARGV[3]
  local ends = string.format('%.0f', now_ms + ttl)
  if kept + 0 < ttl + 0 then
    kept = ttl
  end
  if grant(KEYS[1], KEYS[2], values[2], ARGV[4], ballot, ARGV[7], ends, 'PX', kept, ticket) then
    if ticket then
      -- A holder leaves the queue: its ticket would block other waiters.
      redis.call('ZREM', lease, ticket)
      redis.call('ZREM', order, ticket)
      if redis.call('EXISTS', lease) == 0 then
        redis.call('DEL', KEYS[3], order)
      end
    end
    return { clock, ballot + 0, 'granted' }
  end
end
