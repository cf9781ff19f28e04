-- A bundle: many calls on as many names, each a usual acquire or a usual final release
-- (fast_grant.lua, fast_retire.lua). No name occurs twice, so the values read at the beginning hold
-- for every call. The bundle skips unusual calls, and the client sends each of them again by
-- itself.
--
-- ARGV from 4 on: one letter for each call, the token of each, the ballot of each, and the terms:
-- pairs of a ttl in ms and a label. The letter `0` is a release; any other letter is an acquire
-- with the terms of that number.
-- Reply: the clock, and for each call its floor, or false if it was skipped.
--
-- In this loop locals are measurably cheaper than globals, and `PXAT` is cheaper than `PX`, which
-- the server rewrites as `PXAT` for its replicas even if it has none.
local call, byte = redis.call, string.byte
local names, args = KEYS, ARGV
local calls, retention, letters = (#names - 1) / 3, args[3], args[4]
local ballots, marks, terms_at = 4 + calls, 2 * calls, 3 + 2 * calls
local freed_now = string.format(':%.0f:0', now_ms)
local kept_until = string.format('%.0f', now_ms + retention)
local leases, freed, replies = {}, {}, { clock }
for i = 1, calls do
  local value, record, floor = values[i], values[calls + i], false
  local token, text = args[4 + i], args[ballots + i]
  local ballot, terms = tonumber(text), 2 * (byte(letters, i) - 48)
  if values[marks + i] then
    -- Skip: the name may have a wait queue.
  elseif terms > 0 and not value then
    local lease = leases[terms]
    if not lease then
      local ttl = args[terms_at + terms]
      local ends = string.format('%.0f', now_ms + ttl)
      local longer = tonumber(retention) < tonumber(ttl) and ends or kept_until
      lease = {
        ends = ends, text = ':' .. ends .. ':', kept_until = longer,
        label = args[terms_at + terms + 1],
      }
      leases[terms] = lease
    end
    local after = granted(record, ballot, text, lease.text, token, lease.label)
    if after and call('SET', names[i], token, 'NX', 'PXAT', lease.ends) then
      call('SET', names[calls + i], after, 'PXAT', lease.kept_until)
      floor = ballot
    end
  elseif terms == 0 and value == token and record then
    local after, fence = retired(record, ballot, text, freed_now)
    if after then
      call('SET', names[calls + i], after, 'PXAT', kept_until)
      floor, freed[#freed + 1] = fence, names[i]
    end
  end
  replies[i + 1] = floor
end
-- Delete last: a bundle that fails before has deleted nothing, and each call can be sent again by
-- itself.
if freed[1] then
  call('DEL', unpack(freed))
end
return replies
