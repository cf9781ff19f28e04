-- Fast path of a release: one claim, held exclusively, final, without a time for which other
-- clients are kept out and without a lock delay. The claim has no queue, or a usual one. The general code below gives the
-- same result; all other cases are left to it.
local ticket = ARGV[11]
if #KEYS == 4 and values[1] == ARGV[4] and values[2] and ARGV[6] == '1' and ARGV[9] == '0'
  and ARGV[8] == '0' and ARGV[10] == '0' and (not values[3] or order) then
  -- One more than are woken, since the caller's ticket may be among them.
  local first, closes = order and redis.call('ZRANGE', order, 0, 2) or {}, ARGV[7] == '1'
  local alone = not first[1] or first[1] == ticket and not first[2]
  local writes, after = closes or not alone, nil
  if writes then
    after = retired(values[2], ARGV[5], closes)
  end
  if after or not writes and is_latest(values[2], ARGV[5]) then
    -- Delete first: a server at its memory limit lets a script write after it has freed memory.
    call('DEL', KEYS[1])
    if after then
      call('SET', KEYS[2], after, 'PX', ARGV[3])
    end
    if order and alone then
      redis.call('DEL', KEYS[3], order, lease)
    elseif order and ticket and redis.call('ZREM', lease, ticket) > 0 then
      redis.call('ZREM', order, ticket)
    end
    local woken = 0
    for _, other in ipairs(first) do
      if other ~= ticket and woken < 2 then
        -- The first waiter is woken at once. The second retries after the grace, in case the first
        -- does not. The grace is the last field of born.
        local wait = woken == 0 and '0' or string.match(ARGV[1], '^.* (%d+)$')
        wake_client(other, wait)
        woken = woken + 1
      end
    end
    local floor = ARGV[5] + 0
    return { clock, floor > min_fence and floor or min_fence, 'released' }
  end
end
