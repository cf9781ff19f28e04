-- Arrive at a latch. ARGV: how long to keep it in ms, how many parties it waits for, when it was
-- made in us or nothing if the caller does not know, then the parties.
local ttl, count, since = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if since and since > ceiling then
  -- With a latch made in the future, nodes would count that were born after it was really made.
  return reply('ahead')
end
-- A node that does not know the latch accepts no party, unless the caller says when the latch was
-- made.
if not (made or since) or not ARGV[8] then
  return arrivals(true)
end
made = math.min(made or since, since or made)
local stamp, added, BATCH = string.format('%.0f', made), 0, 500
for from = 8, #ARGV, BATCH do
  local scored = {}
  for j = from, math.min(from + BATCH - 1, #ARGV) do
    local n = #scored
    scored[n + 1], scored[n + 2] = stamp, ARGV[j]
  end
  added = added + redis.call('ZADD', KEYS[1], 'LT', unpack(scored))
end
keep(ttl)
if added > 0 and values[3] and redis.call('ZCARD', KEYS[1]) >= count then
  -- Enough parties have arrived, as far as this node knows: wake all waiters and remove their
  -- tickets. A waiter that needs more parties enters the queue again.
  local order = string.gsub(KEYS[3], '}:$QUEUE_MARK', '}:$QUEUE_ORDER', 1)
  local lease = string.gsub(KEYS[3], '}:$QUEUE_MARK', '}:$QUEUE_LEASES', 1)
  local tickets = redis.call('ZRANGEBYSCORE', lease, string.format('%.0f', now_ms), '+inf')
  for _, ticket in ipairs(tickets) do
    wake_client(ticket, '0')
  end
  redis.call('DEL', KEYS[3], order, lease)
end
return arrivals(true)
