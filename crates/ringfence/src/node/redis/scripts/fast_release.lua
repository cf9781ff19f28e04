-- Fast path of a release: one claim, held exclusively, final, without a time for which other
-- clients are kept out. The claim has no queue, or a usual one. The general code below gives the
-- same result; all other cases are left to it.
local ticket = ARGV[10]
if #KEYS == 4 and values[1] == ARGV[4] and values[2] and ARGV[6] == '1' and ARGV[9] == '0'
  and ARGV[8] == '0' and (not values[3] or order) then
  local after, floor =
    retired(values[2], tonumber(ARGV[5]), ARGV[5], string.format(':%.0f:0', now_ms))
  if after then
    -- Delete first: a server at its memory limit lets a script write after it has freed memory.
    redis.call('DEL', KEYS[1])
    redis.call('SET', KEYS[2], after, 'PX', ARGV[3])
    if order then
      -- One more than are woken, since the caller's ticket may be among them.
      local first, woken = redis.call('ZRANGE', order, 0, 2), 0
      if first[1] == ticket and not first[2] then
        redis.call('DEL', KEYS[3], order, lease)
      elseif ticket and redis.call('ZREM', lease, ticket) > 0 then
        redis.call('ZREM', order, ticket)
      end
      for _, other in ipairs(first) do
        if other ~= ticket and woken < 2 then
          -- The first waiter is woken at once. The second retries after the grace, in case the
          -- first does not. The grace is the last field of born.
          local wait = woken == 0 and '0' or string.match(ARGV[1], '^.* (%d+)$')
          wake_client(string.sub(other, 21), wait)
          woken = woken + 1
        end
      end
    end
    return { clock, floor, 'released' }
  end
end
