-- What every lock operation begins with: is this the incarnation that the client shook hands with,
-- and what stands under the claimed names? The operation's own file follows in the same chunk.
--
-- KEYS: the lock key of each claim, then the record of each claim, then born.
-- ARGV: born as the client saw it, window in us, retention in ms, token; then the operation's own.
--
-- A function here is made anew at every call of the script, so there are few, and none that only
-- some operations need.
local claims = (#KEYS - 1) / 2
local token = ARGV[4]
-- `values[i]` is what stands at the lock key of claim i.
local values = redis.call('MGET', unpack(KEYS))
-- FLUSHALL, an empty restart, a snapshot rolled back, a promoted replica: whatever this node has
-- forgotten, it must not decide anything before the client knows.
if values[#KEYS] ~= ARGV[1] then
  return { 'newborn' }
end

local MAX = 9007199254740991
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
-- No ballot above the ceiling is ever stored; no fence counts below the ground.
local ceiling, ground = math.min(clock + ARGV[2], MAX), math.max(clock - ARGV[2], 0)

-- Each record as the ledger sees it: `fence` is the effective one, `ballot` and `label` are those of
-- the seat, which counts only while its token is the lock key's value.
-- Stored as `1:fence:closed` or `1:fence:closed:ballot:token:label`; the label is last because it
-- may hold anything.
local records = {}
for i = 1, claims do
  local record = { fence = ground, closed = 0, ballot = 0 }
  local text = values[claims + i]
  if text then
    local fence, closed, seat = string.match(text, '^1:(%d+):(%d+)(.*)$')
    local ballot, owner, label = '0', nil, nil
    if seat and seat ~= '' then
      ballot, owner, label = string.match(seat, '^:(%d+):([^:]+):(.*)$')
    end
    -- A record that cannot be read is never taken for an absent one: its fence would be lost.
    if not fence or not ballot
      or math.max(tonumber(fence), tonumber(closed), tonumber(ballot)) > MAX then
      return redis.error_reply('DAMAGED ' .. i)
    end
    record.fence = math.max(ground, tonumber(fence))
    record.closed = tonumber(closed)
    if owner and owner == values[i] then
      record.ballot, record.owner, record.label = tonumber(ballot), owner, label
    end
  end
  records[i] = record
end

-- Replies are flat: clock, floor, answer, then the answer's own.
local function reply(answer, ...)
  local floor = 0
  for i = 1, claims do
    floor = math.max(floor, records[i].fence)
  end
  return { clock, floor, answer, ... }
end

-- Who holds claim i, as others may see it: position, label, the public half of a token of ours, and
-- for how long. Another library's value is a secret as a whole, and may have no expiry.
local function holder(i)
  local left = redis.call('PTTL', KEYS[i])
  local id = string.match(values[i], '^(%x%x%x%x%x%x%x%x%x%x)%.')
  return i - 1, records[i].label or false, id or false, left >= 0 and left
end
