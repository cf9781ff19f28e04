-- A bundle: many calls on as many names, each an acquire or a final release of the usual sort
-- (swift_acquire.lua, swift_release.lua). No name is there twice, so what was read at the beginning
-- holds for every one of them. Whatever is unusual is left alone, and the client sends it again by
-- itself.
--
-- ARGV from 4 on: a letter for each call, the token of each, the ballot of each, and the terms: pairs
-- of a ttl in ms and a label. The letter is `0` for a release; for an acquire it says which terms.
-- Reply: the clock, and for each call its floor, or false where nothing was done.
--
-- Locals are cheaper than globals, where two texts are the same, so are the numbers, and a number of
-- less than 16 digits is below MAX: in a loop that is felt. So is `PX`, of which the server makes a
-- `PXAT` for its replicas, whether there are any or not.
local call, match, byte, tonumber = redis.call, string.match, string.byte, tonumber
local names, args = KEYS, ARGV
local calls, retention, letters = (#names - 1) / 3, args[3], args[4]
local now_text, kept_until = string.format('%.0f', now_ms), string.format('%.0f', now_ms + retention)
local leases, freed, said = {}, {}, { clock }
for i = 1, calls do
  local value, record, floor = values[i], values[calls + i], false
  local token, text = args[4 + i], args[4 + calls + i]
  local ballot, terms = tonumber(text), 2 * (byte(letters, i) - 48)
  if values[2 * calls + i] or ballot > ceiling then
    -- Somebody may be in line, or the caller is ahead.
  elseif terms > 0 and not value then
    local fence, closed, since = '0', '0', '0'
    if record then
      -- Mostly the last holder's ballot is the fence, and closed.
      fence, since = match(record, '^2:(%d+):%1:(%d+):0$')
      closed = fence
      if not fence then
        fence, closed, since = match(record, '^2:(%d+):(%d+):(%d+):0$')
      end
    end
    local lease = leases[terms]
    if not lease then
      local ttl = args[3 + 2 * calls + terms]
      local ends = string.format('%.0f', now_ms + ttl)
      local longer = tonumber(retention) < tonumber(ttl) and ends or kept_until
      lease = { ends = ends, kept_until = longer, label = args[4 + 2 * calls + terms] }
      leases[terms] = lease
    end
    if fence and ballot > ground and ballot > tonumber(fence)
      and (closed == fence or tonumber(closed) <= MAX) and (#since < 16 or tonumber(since) <= MAX)
      and call('SET', names[i], token, 'NX', 'PXAT', lease.ends) then
      call('SET', names[calls + i], '2:' .. text .. ':' .. closed .. ':' .. since .. ':0:' .. text .. ':'
        .. lease.ends .. ':' .. token .. ':' .. lease.label, 'PXAT', lease.kept_until)
      floor = ballot
    end
  elseif terms == 0 and value == token and record then
    local fence, closed, hers = match(record, '^2:(%d+):(%d+):%d+:[01]:(%d+):%d+:[^:]+:')
    -- Whoever else may have sat there: under a ballot no higher, it changes nothing.
    if hers and (hers == text or tonumber(hers) <= ballot)
      and (fence == text or tonumber(fence) <= MAX) and tonumber(closed) <= MAX then
      local high = fence ~= text and tonumber(fence) > ballot
      floor = high and tonumber(fence) or ballot
      fence = high and fence or text
      if floor < ground then
        floor, fence = ground, string.format('%.0f', ground)
      end
      closed = tonumber(closed) > ballot and closed or text
      call('SET', names[calls + i], '2:' .. fence .. ':' .. closed .. ':' .. now_text .. ':0', 'PXAT',
        kept_until)
      freed[#freed + 1] = names[i]
    end
  end
  said[i + 1] = floor
end
-- Last, so that a bundle that breaks off has deleted nothing and can be sent again call by call.
if freed[1] then
  call('DEL', unpack(freed))
end
return said
