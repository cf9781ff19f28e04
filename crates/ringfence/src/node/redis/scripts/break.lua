-- Break: an operator ends the holds of a claim, or of a slot of a semaphore, up to a ballot.
-- ARGV: ballot, the highest ballot that is broken, 1 if a holder without a record is removed, the
-- id of the only holder to remove or '', the slot or '', for how many ms the break is remembered,
-- operator, reason.
local ballot, up_to, foreign_too = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local only, slot, keep_ms = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local i = slot and slot + 2 or 1
if i > claims then
  return reply('removed', 0)
end

local function id_of(owner)
  return string.match(owner, '^(%x%x%x%x%x%x%x%x%x%x)%.')
    or string.match(owner, '^kept%.%x%x%x%x%x%x%x%x%x%x$')
end

local function meant(seat)
  return seat.ballot <= up_to and (only == '' or id_of(seat.token) == only)
end

-- The holders to remove, and whether others stay.
local victims, others = {}, 0
local mark = KEYS[2 * claims + i]
local leases = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LEASES', 1)
local labels = string.gsub(mark, '}:$QUEUE_MARK', '}:$READER_LABELS', 1)
local present = seated(i)
if values[i] == SHARED then
  local readers = redis.call('ZRANGEBYSCORE', leases, string.format('%.0f', now_ms), '+inf')
  table.sort(readers)
  for _, reader in ipairs(readers) do
    local of, label = string.match(redis.call('HGET', labels, reader) or '', '^(%d+):(.*)$')
    if not of then
      return redis.error_reply('DAMAGED ' .. i)
    end
    local seat = { token = reader, ballot = tonumber(of), label = label }
    if meant(seat) then
      victims[#victims + 1] = seat
    else
      others = others + 1
    end
  end
elseif present and meant(present) then
  victims[1] = present
elseif values[i] and not present and foreign_too and only == '' then
  victims[1] = { token = values[i], ballot = 0, label = '' }
elseif values[i] then
  return reply('held', holder(i))
end
local record = records[i]
if ballot <= math.max(record.fence, record.read_fence) then
  return reply('stale')
elseif ballot > ceiling then
  return reply('ahead')
end

-- No ballot above the new fence is closed: later holders must stay restorable.
record.closed = math.max(record.closed, math.min(up_to, ballot))
for _, seat in ipairs(values[i] == SHARED and victims or {}) do
  redis.call('ZREM', leases, seat.token)
  redis.call('HDEL', labels, seat.token)
end
if others > 0 then
  mark_shared(i, leases, labels, 0, ballot, false)
else
  if values[i] == SHARED then
    redis.call('DEL', leases, labels)
  end
  if values[i] then
    redis.call('DEL', KEYS[i])
    values[i] = false
  end
  write(i, ballot, 0, nil, victims[1] and now_ms or nil)
end

if victims[1] then
  -- One line for each: no control characters. Only the latest ones are kept.
  local function printable(text)
    return (string.gsub(text, '%c', ' '))
  end
  local lines, key = {}, broken_key(i)
  for line in string.gmatch(redis.call('GET', key) or '', '[^\n]+') do
    lines[#lines + 1] = line
  end
  for _, seat in ipairs(victims) do
    lines[#lines + 1] = string.format('%.0f\t%.0f\t%.0f\t%s\t', clock, ballot, seat.ballot,
      id_of(seat.token) or '-') .. printable(ARGV[11]) .. '\t' .. printable(seat.label) .. '\t'
      .. printable(ARGV[12])
  end
  local first = math.max(#lines - $BREAKS_MAX + 1, 1)
  local left = math.max(redis.call('PTTL', key), keep_ms, 1)
  redis.call('SET', key, table.concat(lines, '\n', first), 'PX', string.format('%.0f', left))
end

if slot and queues[1] and not values[i] and victims[1] then
  wake_served({ slot })
elseif queues[i] and not slot and not values[i] and victims[1] then
  wake_first(i, nil, false)
end
for _, other in ipairs(woken) do
  wake_client(other, delays[other])
end
return reply('removed', #victims)
