-- A bundle of extends (extend.lua), each of one claim that its token holds exclusively and whose
-- lease ends sooner than requested. No name occurs twice. The bundle skips unusual calls, and the
-- client sends each of them again by itself. Extending twice is the same as once, so a bundle that
-- fails can be sent again.
--
-- KEYS: the lock key of each call, then the record of each, then born.
-- ARGV from 4 on: the token of each call, the ballot of each, the ttl of each in ms.
-- Reply: the clock, and for each call its floor, or false if it was skipped.
local call, match, max, tonumber = redis.call, string.match, math.max, tonumber
local names, args = KEYS, ARGV
local calls, retention, replies = (#names - 1) / 2, tonumber(args[3]), { clock }
for i = 1, calls do
  local token, record, floor = args[3 + i], values[calls + i], false
  if record and values[i] == token then
    local fence, closed, since, _, seat = match(record, '$RECORD_PARTS')
    local seat_ballot, ends, owner, label = match(seat or '', '$RECORD_SEAT')
    local ballot, ttl = tonumber(args[3 + calls + i]), tonumber(args[3 + 2 * calls + i])
    if owner == token and max(tonumber(fence), tonumber(closed), tonumber(since),
      tonumber(seat_ballot), tonumber(ends)) <= MAX then
      local left = call('PTTL', names[i])
      if left >= 0 and left < ttl then
        local higher = tonumber(seat_ballot)
        higher = ballot <= ceiling and max(higher, ballot) or higher
        floor = max(min_fence, tonumber(fence), higher <= ceiling and higher or 0)
        call('PEXPIRE', names[i], ttl)
        local head = string.format('$RECORD_VERSION:%.0f:%s:%s:0:%.0f:%.0f:', floor, closed, since, higher,
          now_ms + ttl)
        call('SET', names[calls + i], head .. token .. ':' .. label, 'PX', max(retention, ttl))
      end
    end
  end
  replies[i + 1] = floor
end
return replies
