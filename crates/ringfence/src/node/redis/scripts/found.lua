-- What every lock operation begins with: is this the incarnation that the client shook hands with,
-- what stands under the claimed names, and what time is it?
--
-- KEYS: the lock key of each claim, then the record of each, then the mark of each's line, then born.
-- ARGV: born as the client saw it, window in us, retention in ms, token; then the operation's own. A
-- `?` stands before born if the replication id is to be compared, too.
-- If a claim is shared, a blank and a letter for each claim stand behind the token: s or x.
--
-- `values[i]` is what stands at the lock key of claim i.
local values = redis.call('MGET', unpack(KEYS))
-- FLUSHALL, an empty restart, a snapshot rolled back, a promoted replica: whatever this node has
-- forgotten, it must not decide anything before the client knows.
if values[#KEYS] ~= ARGV[1] then
  local born = values[#KEYS]
  if not born or ARGV[1] ~= '?' .. born then
    return { 'newborn' }
  end
  -- A master that was demoted and promoted again has the old born, and not the locks that it granted
  -- before; but it has another replication id.
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
-- No ballot above the ceiling is ever stored; no fence counts below the ground.
local ceiling, ground = math.min(clock + ARGV[2], MAX), math.max(clock - ARGV[2], 0)

