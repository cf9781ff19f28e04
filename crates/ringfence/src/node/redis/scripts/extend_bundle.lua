-- A bundle of extends (extend.lua), each of one claim that its token holds alone and that ends sooner
-- than asked for. No name is there twice. Whatever is unusual is left alone, and the client sends it
-- again by itself. What is done twice is done as once, so a bundle that breaks off can be sent again.
--
-- KEYS: the lock key of each call, then the record of each, then born.
-- ARGV from 4 on: the token of each call, the ballot of each, the ttl of each in ms.
-- Reply: the clock, and for each call its floor, or false where nothing was done.
local call, match, max, tonumber = redis.call, string.match, math.max, tonumber
local names, args = KEYS, ARGV
local calls, retention, said = (#names - 1) / 2, tonumber(args[3]), { clock }
for i = 1, calls do
  local token, record, floor = args[3 + i], values[calls + i], false
  if record and values[i] == token then
    local fence, closed, since, hers, ends, owner, label =
      match(record, '^2:(%d+):(%d+):(%d+):[01]:(%d+):(%d+):([^:]+):(.*)$')
    local ballot, ttl = tonumber(args[3 + calls + i]), tonumber(args[3 + 2 * calls + i])
    if owner == token and max(tonumber(fence), tonumber(closed), tonumber(since), tonumber(hers),
      tonumber(ends)) <= MAX then
      local left = call('PTTL', names[i])
      if left >= 0 and left < ttl then
        hers = ballot <= ceiling and max(tonumber(hers), ballot) or tonumber(hers)
        floor = max(ground, tonumber(fence), hers <= ceiling and hers or 0)
        call('PEXPIRE', names[i], ttl)
        call('SET', names[calls + i], string.format('2:%.0f:%s:%s:0:%.0f:%.0f:', floor, closed, since,
          hers, now_ms + ttl) .. token .. ':' .. label, 'PX', max(retention, ttl))
      end
    end
  end
  said[i + 1] = floor
end
return said
