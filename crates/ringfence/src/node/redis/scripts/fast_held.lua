-- Fast path of an acquire of one claim that another client holds, for an exclusive caller with a
-- ticket. Otherwise finds out whether it is the caller's turn: the queue is empty and the caller
-- has no ticket, or the caller's ticket is the first. The general code below gives the same answers
-- at three times the cost; all other cases are left to it.
local ticket, exclusive = ARGV[10], not string.find(ARGV[4], ' ', 1, true)
local its_turn = #KEYS == 4 and exclusive and not values[3] and not ARGV[8]
if order and ticket and exclusive and kept_until >= now_ms + 2 * ARGV[8]
  and (ARGV[9] == '0' or string.sub(ticket, 1, 20) + 1000000 >= clock) then
  if not values[1] then
    its_turn = redis.call('ZRANK', order, ticket) == 0
  elseif values[1] ~= ARGV[4] and values[2] then
    local fence, owner, label =
      string.match(values[2], '$RECORD_HOLDER')
    local id = string.match(values[1], '^(%x%x%x%x%x%x%x%x%x%x)%.')
    if id and owner == values[1] and tonumber(fence) <= MAX then
      if redis.call('ZADD', lease, now_ms + ARGV[8], ticket) > 0 then
        redis.call('ZADD', order, 0, ticket)
      end
      local left, ahead = redis.call('PTTL', KEYS[1]), redis.call('ZRANK', order, ticket)
      return {
        clock, math.max(min_fence, tonumber(fence)), 'held', 0, label, id, left >= 0 and left,
        ahead or 0,
      }
    end
  end
end
