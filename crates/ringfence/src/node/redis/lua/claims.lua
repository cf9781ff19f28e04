-- What every lock operation begins with: is this the incarnation that the client shook hands with,
-- and what stands under the claimed names? The operation's own file follows in the same chunk.
--
-- KEYS: born, then the lock key of each claim, then the record of each claim.
-- ARGV: born as the client saw it, window in us, retention in ms, token; then the operation's own.
local window, retention, token = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local claims = (#KEYS - 1) / 2
local stored = redis.call('MGET', unpack(KEYS))
-- FLUSHALL, an empty restart, a snapshot rolled back, a promoted replica: whatever this node has
-- forgotten, it must not decide anything before the client knows.
if stored[1] ~= ARGV[1] then
  return { 'newborn' }
end

local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local MAX = 9007199254740991
-- No ballot above the ceiling is ever stored; no fence counts below the ground.
local ceiling, ground = math.min(clock + window, MAX), math.max(clock - window, 0)

local function lock_key(i) return KEYS[1 + i] end
local function record_key(i) return KEYS[1 + claims + i] end
local function value(i) return stored[1 + i] end
local function digits(number) return string.format('%.0f', number) end

-- `1:fence:closed` or `1:fence:closed:ballot:token:label`; the label is last because it may hold
-- anything. A record that cannot be read is never taken for an absent one: its fence is lost.
local NO_RECORD = { fence = 0, closed = 0 }
local records, damaged = {}, nil
for i = 1, claims do
  local text = stored[1 + claims + i]
  local record = NO_RECORD
  if text then
    local fence, closed, rest = string.match(text, '^1:(%d+):(%d+)(.*)$')
    record = { fence = tonumber(fence), closed = tonumber(closed) }
    if rest and rest ~= '' then
      local ballot
      ballot, record.token, record.label = string.match(rest, '^:(%d+):([^:]+):(.*)$')
      record.ballot = tonumber(ballot)
    end
    if not fence or (rest ~= '' and not record.ballot)
      or math.max(record.fence, record.closed, record.ballot or 0) > MAX then
      damaged = damaged or i
      record = NO_RECORD
    end
  end
  -- A seat counts only while its token is the lock key's value.
  if record.token and record.token ~= value(i) then
    record.ballot, record.token, record.label = nil, nil, nil
  end
  records[i] = record
end
if damaged then
  return redis.error_reply('DAMAGED ' .. damaged)
end

local function effective_fence(i) return math.max(records[i].fence, ground) end
local function seated(i) return records[i].ballot or 0 end

-- Milliseconds that the lock key has left: -1 without an expiry.
local lefts = {}
local function left(i)
  lefts[i] = lefts[i] or redis.call('PTTL', lock_key(i))
  return lefts[i]
end

-- Replies are flat: clock, floor, answer, then the answer's own.
local function reply(answer, ...)
  local floor = 0
  for i = 1, claims do
    floor = math.max(floor, effective_fence(i))
  end
  return { clock, floor, answer, ... }
end

-- The public half of a token of ours; another library's value is a secret as a whole.
local function public_id(i)
  return string.match(value(i), '^(%x%x%x%x%x%x%x%x%x%x)%.') or false
end

local function for_ms(i)
  local ms = left(i)
  return ms >= 0 and ms
end

-- Who holds claim `i`, as others may see it.
local function holder(i)
  return i - 1, records[i].label or false, public_id(i), for_ms(i)
end

-- For a token that does not hold every claim: who is in the way, or 'gone'.
local function not_held()
  local gone = false
  for i = 1, claims do
    if value(i) and value(i) ~= token then
      return i
    end
    gone = gone or not value(i)
  end
  return nil, gone
end

-- Writes the record, and re-arms its expiry beyond that of the key it vouches for.
local function write(i, ballot, closed, seat_ballot, seat_token, seat_label, key_left)
  local fence = effective_fence(i)
  if ballot <= ceiling then
    fence = math.max(fence, ballot)
  end
  local text = '1:' .. digits(fence) .. ':' .. digits(closed)
  if seat_token then
    text = text .. ':' .. digits(seat_ballot) .. ':' .. seat_token .. ':' .. seat_label
  end
  redis.call('SET', record_key(i), text, 'PX', digits(math.max(retention, key_left)))
  records[i] = { fence = fence, closed = closed }
end

-- A key that MGET shows as absent may be a list or a hash. Of several claims none may be written
-- before all are known to be free; of one, `SET NX` finds out by itself.
local function foreign_type()
  if claims > 1 then
    for i = 1, claims do
      if not value(i) and redis.call('EXISTS', lock_key(i)) == 1 then
        return redis.error_reply('FOREIGN ' .. i)
      end
    end
  end
end

-- Seats this token for at least `ttl` ms, never for less than it already has: shortening would free
-- the lock under a guard that still counts on it. Answers an error if the key is not a string.
local function seat(i, ballot, label, ttl)
  local key_left = ttl
  if value(i) then
    if left(i) >= 0 and left(i) < ttl then
      redis.call('PEXPIRE', lock_key(i), digits(ttl))
    else
      key_left = left(i)
    end
  elseif not redis.call('SET', lock_key(i), token, 'NX', 'PX', digits(ttl)) then
    return redis.error_reply('FOREIGN ' .. i)
  end
  write(i, ballot, records[i].closed, ballot, token, label, key_left)
end

-- Keeps this token in the seat that it has, under the higher of the two ballots.
local function prolong(i, ballot, ttl)
  local kept = seated(i)
  if ballot <= ceiling then
    kept = math.max(kept, ballot)
  end
  return seat(i, kept, records[i].label or '', ttl)
end
