-- The beginning of every lock operation: checks the birth record, reads the keys of the claims, and
-- reads the clock.
--
-- KEYS: the lock key of each claim, then the record of each, then the queue mark of each, then
-- born.
-- ARGV: born as the client saw it, window in us, retention in ms, token; then the operation's own
-- arguments. A `?` before born asks to compare the replication id, too. If a claim is shared, the
-- token is followed by a blank and one letter for each claim: s or x.
--
-- `values[i]` is the value of the lock key of claim i.
local values = redis.call('MGET', unpack(KEYS))
-- FLUSHALL, an empty restart, a snapshot rolled back, a promoted replica: the node may have
-- forgotten locks, so it decides nothing until the client knows of it.
if values[#KEYS] ~= ARGV[1] then
  local born = values[#KEYS]
  if not born or ARGV[1] ~= '?' .. born then
    return { 'newborn' }
  end
  -- A master that was demoted and promoted again has the old born, but lost the locks that it
  -- granted before. Its replication id differs.
  local info = redis.pcall('INFO', 'replication')
  local id = string.match(born, '^$BORN_VERSION %x+ (%x+) ')
  if type(info) ~= 'string' or not string.find(info, '\nrole:master\r', 1, true)
    or not string.find(info, '\nmaster_replid:' .. (id or '') .. '\r', 1, true) then
    return { 'newborn' }
  end
end

local MAX = 9007199254740991
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local now_ms = math.floor(clock / 1000)
-- No ballot above the ceiling is ever stored. A fence below `min_fence` counts as `min_fence`.
local ceiling, min_fence = math.min(clock + ARGV[2], MAX), math.max(clock - ARGV[2], 0)

