-- The beginning of every lock operation: checks the birth record, reads the keys of the claims, and
-- reads the clock.
--
-- KEYS: the lock key of each claim, then the record of each, then the queue mark of each, then
-- born.
-- ARGV: born as the client saw it, window in us, retention in ms, token; then the operation's own
-- arguments. On a server with a failover behind it born is preceded by `?`, the time from which the
-- server grants (if it is in quarantine), `:`, the latest time at which an acquire may be executed,
-- and a blank; both times in us of the server's clock, or empty. `!` instead of `?`: our user may
-- not run INFO. If a claim is shared, the token is followed by a blank and one letter for each
-- claim: s or x.
--
-- `values[i]` is the value of the lock key of claim i.
--
-- Every call pays for this part. A local costs less than a global, named keys less than `unpack`,
-- `+ 0` less than `tonumber`, and a text that is cut from the clock's own less than
-- `string.format`.
local KEYS, ARGV, call, match = KEYS, ARGV, redis.call, string.match
local values = #KEYS == 4 and call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
  or call('MGET', unpack(KEYS))
local MAX = 9007199254740991
local grants_from, not_after = 0, MAX
-- FLUSHALL, an empty restart, a snapshot rolled back, a promoted replica: the node may have
-- forgotten locks, so it decides nothing until the client knows of it.
if values[#KEYS] ~= ARGV[1] then
  local born = values[#KEYS]
  local sign, from, latest, known = match(ARGV[1], '^([?!])(%d*):(%d*) (.+)$')
  if not born or known ~= born then
    return { 'newborn' }
  end
  -- A master that was demoted and promoted again has the old born, but lost the locks that it
  -- granted before. Its replication id differs. Some servers do not report the id.
  local id = match(born, '^$BORN_VERSION %x+ (%x+) ')
  if id and sign == '?' then
    local info = redis.pcall('INFO', 'replication')
    if type(info) ~= 'string' or not string.find(info, '\nrole:master\r', 1, true)
      or not string.find(info, '\nmaster_replid:' .. id .. '\r', 1, true) then
      return { 'newborn' }
    end
  end
  grants_from, not_after = tonumber(from) or 0, tonumber(latest) or MAX
end

local time = call('TIME')
local clock = time[1] * 1000000 + time[2]
-- The time in ms, as a number and as a text.
local now_ms = (clock - clock % 1000) / 1000
local now = time[1] .. string.sub('00000' .. time[2], -6, -4)
-- No ballot above the ceiling is ever stored. A fence below `min_fence` counts as `min_fence`.
local ceiling, min_fence = clock + ARGV[2], clock - ARGV[2]
if ceiling > MAX then
  ceiling = MAX
end
if min_fence < 0 then
  min_fence = 0
end

