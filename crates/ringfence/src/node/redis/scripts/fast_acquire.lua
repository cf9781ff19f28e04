-- Fast path of an acquire: one free claim, the caller's turn, and the usual grant.
if its_turn and not values[1] then
  local ballot = tonumber(ARGV[5])
  local after =
    granted(values[2], ballot, ARGV[5], string.format(':%.0f:', now_ms + ARGV[6]), ARGV[4], ARGV[7])
  if after and redis.call('SET', KEYS[1], ARGV[4], 'NX', 'PX', ARGV[6]) then
    redis.call('SET', KEYS[2], after, 'PX',
      tonumber(ARGV[3]) < tonumber(ARGV[6]) and ARGV[6] or ARGV[3])
    if ticket then
      -- A holder leaves the queue: its ticket would block other waiters.
      redis.call('ZREM', lease, ticket)
      redis.call('ZREM', order, ticket)
      if redis.call('EXISTS', lease) == 0 then
        redis.call('DEL', KEYS[3], order)
      end
    end
    return { clock, ballot, 'granted' }
  end
end
