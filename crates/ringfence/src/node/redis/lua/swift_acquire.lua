-- Where most acquires end: one claim, to be held alone. Either nobody waits for it, the caller neither,
-- or the caller has a ticket, and the claim is held or its turn has come. What is said here the long
-- way below would say too, at three times the price; whatever is unusual goes there.
local ticket, alone = ARGV[10], not string.find(ARGV[4], ' ', 1, true)
local its_turn = #KEYS == 4 and alone and not values[3] and not ARGV[8]
if order and ticket and alone and kept_until >= now_ms + 2 * ARGV[8]
  and (ARGV[9] == '0' or string.sub(ticket, 1, 20) + 1000000 >= clock) then
  if not values[1] then
    its_turn = redis.call('ZRANK', order, ticket) == 0
  elseif values[1] ~= ARGV[4] and values[2] then
    local fence, owner, label =
      string.match(values[2], '^2:(%d+):%d+:%d+:0:%d+:%d+:([^:]+):(.*)$')
    local id = string.match(values[1], '^(%x%x%x%x%x%x%x%x%x%x)%.')
    if id and owner == values[1] and tonumber(fence) <= MAX then
      if redis.call('ZADD', lease, now_ms + ARGV[8], ticket) > 0 then
        redis.call('ZADD', order, 0, ticket)
      end
      local left, ahead = redis.call('PTTL', KEYS[1]), redis.call('ZRANK', order, ticket)
      return {
        clock, math.max(ground, tonumber(fence)), 'held', 0, label, id, left >= 0 and left, ahead or 0,
      }
    end
  end
end
if its_turn and not values[1] then
  local ballot, fence, closed, since = tonumber(ARGV[5]), '0', '0', '0'
  if values[2] then
    fence, closed, since = string.match(values[2], '^2:(%d+):(%d+):(%d+):0$')
  end
  if fence and ballot > math.max(ground, tonumber(fence)) and ballot <= ceiling
    and (closed == fence or tonumber(closed) <= MAX) and tonumber(since) <= MAX
    and redis.call('SET', KEYS[1], ARGV[4], 'NX', 'PX', ARGV[6]) then
    redis.call('SET', KEYS[2], '2:' .. ARGV[5] .. ':' .. closed .. ':' .. since .. ':0:' .. ARGV[5]
      .. string.format(':%.0f:', now_ms + ARGV[6]) .. ARGV[4] .. ':' .. ARGV[7],
      'PX', tonumber(ARGV[3]) < tonumber(ARGV[6]) and ARGV[6] or ARGV[3])
    if ticket then
      -- A holder waits no longer: its ticket would stand in the way of others.
      redis.call('ZREM', lease, ticket)
      redis.call('ZREM', order, ticket)
      if redis.call('EXISTS', lease) == 0 then
        redis.call('DEL', KEYS[3], order)
      end
    end
    return { clock, ballot, 'granted' }
  end
end
