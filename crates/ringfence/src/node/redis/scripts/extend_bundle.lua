-- A bundle of extends (extend.lua), each of one claim that its token holds exclusively and whose
-- lease ends sooner than requested. No name occurs twice. The bundle skips unusual calls, and the
-- client sends each of them again by itself. Extending twice is the same as once, so a bundle that
-- fails can be sent again.
--
-- KEYS: the lock key of each call, then the record of each, then born.
-- ARGV from 4 on: the token of each call, the ballot of each, the ttl of each in ms.
-- Reply: the clock, and for each call its floor, or false if it was skipped.
local max = math.max
local names, args = KEYS, ARGV
local calls, retention, replies = (#names - 1) / 2, args[3] + 0, { clock }
for i = 1, calls do
  local token, record, floor = args[3 + i], values[calls + i], false
  if record and values[i] == token then
    local fence, closed, since, _, seat = match(record, '$RECORD_PARTS')
    local seat_ballot, ends, owner, label = match(seat or '', '$RECORD_SEAT')
    local ballot, ttl = args[3 + calls + i] + 0, args[3 + 2 * calls + i] + 0
    if owner == token and max(fence + 0, closed + 0, since + 0, seat_ballot + 0, ends + 0) <= MAX then
      local left = call('PTTL', names[i])
      if left >= 0 and left < ttl then
        local higher = seat_ballot + 0
        higher = ballot <= ceiling and max(higher, ballot) or higher
        floor = max(min_fence, fence + 0, higher <= ceiling and higher or 0)
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
