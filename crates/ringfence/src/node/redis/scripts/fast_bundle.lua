-- A bundle: many calls on as many names, each an acquire or a final release of the usual sort
-- (fast_grant.lua, fast_retire.lua). No name is there twice, so what was read at the beginning
-- holds for every one of them. Whatever is unusual is left alone, and the client sends it again by
-- itself.
--
-- ARGV from 4 on: a letter for each call, the token of each, the ballot of each, and the terms: pairs
-- of a ttl in ms and a label. The letter is `0` for a release; for an acquire it says which terms.
-- Reply: the clock, and for each call its floor, or false where nothing was done.
--
-- Locals are cheaper than globals: in a loop that is felt. So is `PX`, of which the server makes a
-- `PXAT` for its replicas, whether there are any or not.
local call, byte = redis.call, string.byte
local names, args = KEYS, ARGV
local calls, retention, letters = (#names - 1) / 3, args[3], args[4]
local ballots, marks, terms_at = 4 + calls, 2 * calls, 3 + 2 * calls
local freed_now = string.format(':%.0f:0', now_ms)
local kept_until = string.format('%.0f', now_ms + retention)
local leases, freed, said = {}, {}, { clock }
for i = 1, calls do
  local value, record, floor = values[i], values[calls + i], false
  local token, text = args[4 + i], args[ballots + i]
  local ballot, terms = tonumber(text), 2 * (byte(letters, i) - 48)
  if values[marks + i] then
    -- Somebody may be in line.
  elseif terms > 0 and not value then
    local lease = leases[terms]
    if not lease then
      local ttl = args[terms_at + terms]
      local ends = string.format('%.0f', now_ms + ttl)
      local longer = tonumber(retention) < tonumber(ttl) and ends or kept_until
      lease = {
        ends = ends, said = ':' .. ends .. ':', kept_until = longer, label = args[terms_at + terms + 1],
      }
      leases[terms] = lease
    end
    local after = granted(record, ballot, text, lease.said, token, lease.label)
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
  said[i + 1] = floor
end
-- Last, so that a bundle that breaks off has deleted nothing and can be sent again call by call.
if freed[1] then
  call('DEL', unpack(freed))
end
return said
