-- Inspect: what this node has of each claim. ARGV: how many readers, tickets and parties to list.
-- Writes nothing, so expired readers and tickets are skipped, not removed.
--
-- Values per claim: 1 if it is held, label, id and remaining ms of the holder, its ballot, the
-- effective fence, the number of waiters; the number of readers, how many follow, and of each: id,
-- label, remaining ms, ballot; how many tickets follow, and of each: since when, id, label, 1 if
-- shared;
-- the permits of an admission record; and of a latch: when it was made, how many parties have
-- arrived, how many follow, and their names.
local views = reply('views')
local since = string.format('%.0f', now_ms)
local readers_max, tickets_max = tonumber(ARGV[5]), tonumber(ARGV[6])

local function add(...)
  for j = 1, select('#', ...) do
    views[#views + 1] = (select(j, ...))
  end
end

-- The key of claim i with another purpose.
local function side_key(i, purpose)
  return (string.gsub(KEYS[2 * claims + i], '}:$QUEUE_MARK', '}:' .. purpose, 1))
end

local function add_readers(i)
  local leases = side_key(i, '$READER_LEASES')
  add(redis.call('ZCOUNT', leases, since, '+inf'))
  local found = redis.call(
    'ZRANGE', leases, '+inf', since, 'BYSCORE', 'REV', 'WITHSCORES', 'LIMIT', 0, readers_max)
  add(#found / 2)
  local labels = side_key(i, '$READER_LABELS')
  for j = 1, #found, 2 do
    local written = redis.call('HGET', labels, found[j]) or ''
    local ballot, label = string.match(written, '^(%d+):(.*)$')
    -- The rest of the token is a secret.
    local id = string.match(found[j], '^(%x%x%x%x%x%x%x%x%x%x)%.')
    add(id or '', label or '', tonumber(found[j + 1]) - now_ms, tonumber(ballot or 0))
  end
end

local function add_tickets(i)
  local order, lease = side_key(i, '$QUEUE_ORDER'), side_key(i, '$QUEUE_LEASES')
  local listed, from, found = {}, 0, nil
  repeat
    -- A ticket begins with a digit; a ticket with a prefix says more of one that is listed.
    found = redis.call('ZRANGE', order, '[0', '(:', 'BYLEX', 'LIMIT', from, 64)
    for _, ticket in ipairs(found) do
      local until_ms = redis.call('ZSCORE', lease, ticket)
      if until_ms and tonumber(until_ms) >= now_ms and #listed < tickets_max then
        listed[#listed + 1] = ticket
      end
    end
    from = from + #found
  until #found < 64 or #listed == tickets_max
  add(#listed)
  for _, ticket in ipairs(listed) do
    add(tonumber(string.sub(ticket, 1, 20)), string.match(ticket, '^([^\n]*)\n?(.*)$', 21))
    add(redis.call('ZSCORE', order, 's' .. ticket) and 1 or 0)
  end
end

local function add_latch(i)
  local made = tonumber(redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2])
  local arrived = made and redis.call('ZCOUNT', KEYS[i], '-inf', '+inf') or 0
  local parties = arrived <= tonumber(ARGV[7]) and redis.call('ZRANGE', KEYS[i], 0, -1) or {}
  add(made or false, arrived, #parties)
  for _, party in ipairs(parties) do
    add(party)
  end
end

for i = 1, claims do
  local label, id, left, _ = false, false, false, nil
  if values[i] then
    _, label, id, left = holder(i)
  end
  local seat, waiting = seated(i), 0
  if values[2 * claims + i] then
    waiting = redis.call('ZCOUNT', side_key(i, '$QUEUE_LEASES'), since, '+inf')
  end
  add(values[i] and 1 or 0, label, id, left, seat and seat.ballot or false)
  add(math.max(records[i].fence, shares[i] and 0 or records[i].read_fence), waiting)
  if values[i] == SHARED then
    add_readers(i)
  else
    add(0, 0)
  end
  if waiting > 0 then
    add_tickets(i)
  else
    add(0)
  end
  -- No name of a user begins with `ringfence:`, and the tag has no closing brace.
  local part = string.match(KEYS[i], '^ringfence:{[^}]*}:(%l+):')
  add(part == 'admission' and tonumber(string.match(values[i] or '', '^%d+$')) or false)
  if part == 'latch' then
    add_latch(i)
  else
    add(false, 0, 0)
  end
end
return views
